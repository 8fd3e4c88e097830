//! `syncline model export`: trained parameters back in the user's own forward model, in the form that
//! predicts, or alone.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;
use syncline_rpc::status::{JobPhase, JobStatus};
use syncline_scheduler::{
    ids::JobId,
    spec::{DataSpec, SettingList},
};
use syncline_workers::{
    client::Client,
    export::{fill, fill_partially},
    normalization::{formula, formulas},
};

use super::{read, write};
use crate::cli::{
    CliError, ConnectionArgs, Exit, Failure, block_on_until_stopped, exported::ExportError::Exists, print,
    print_json, say, whole_file::unknown_ending,
};

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct ExportArgs {
    /// A training that is over, however it ended, or that has written a snapshot; its model and its weights
    /// come from the parameter server
    #[arg(value_name = "JOB", required_unless_present = "snapshot", conflicts_with = "snapshot")]
    job: Option<JobId>,
    /// Where to write the trained model, a name that ends with .onnx; of a job, one that ends with
    /// .safetensors or .st gets what was trained alone
    #[arg(value_name = "OUT.onnx")]
    out: PathBuf,
    /// A file of a snapshot or a checkpoint, instead of a job
    #[arg(long, value_name = "FILE", requires = "model")]
    snapshot: Option<PathBuf>,
    /// The forward model that was trained, with --snapshot
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    model: Option<PathBuf>,
    /// Leave out what the snapshot has and the model has not, such as the layers that only training needs
    #[arg(long, requires = "snapshot")]
    partial: bool,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Let the model take numbers as they are in the job's data: `scale`, `mean` and `std` become nodes
    /// before its inputs
    #[arg(long, conflicts_with = "snapshot")]
    with_normalization: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Exported {
    /// Job or file that the weights are of.
    of: String,
    file: String,
    bytes: u64,
    /// Parameters in it.
    parameters: usize,
    /// `onnx` or `safetensors`.
    format: &'static str,
    /// How numbers of the data become what the inputs of the model take that have none of their own, such as
    /// `(x * 0.0625 - mean) / std`; none where they take them as they are.
    normalization: Option<String>,
    /// The same of each input that has its own, by name; `x` where it takes them as they are.
    normalize: BTreeMap<String, String>,
}

/// What was done to the inputs of a model, or nothing that one has to know.
#[derive(Debug, Default)]
struct Formulas {
    shared: Option<String>,
    of_inputs: BTreeMap<String, String>,
}

impl Formulas {
    fn of(data: &DataSpec) -> Self {
        Self { shared: formula(data), of_inputs: formulas(data) }
    }
}

impl Exported {
    fn text(&self) -> String {
        let what = match self.format {
            SAFETENSORS => "the weights".to_owned(),
            _ => format!("{} parameters", self.parameters),
        };
        let takes = self.inputs_in_words().map(|inputs| {
            format!(
                "\n{inputs} of numbers x of the data; the model has the numbers in its metadata (`syncline.normalization`), \
                 and --with-normalization lets it take x"
            )
        });
        format!("{what} of {} in {}{}", self.of, self.file, takes.unwrap_or_default())
    }

    /// What the float inputs are; `None` where all are the numbers of the data.
    fn inputs_in_words(&self) -> Option<String> {
        let is_scaled = self.normalization.is_some() || self.normalize.values().any(|formula| formula != "x");
        let own = self.normalize.iter().map(|(input, formula)| format!("its input `{input}` is {formula}"));
        let others = if self.normalize.is_empty() { "its float inputs" } else { "its other float inputs" };
        let shared = self.normalization.iter().map(|formula| format!("{others} are {formula}"));
        is_scaled.then(|| own.chain(shared).collect::<Vec<_>>().join(", "))
    }
}

const ONNX: &str = "onnx";
const SAFETENSORS: &str = "safetensors";

/// The last weights of a job that did not come to its end may be anything.
fn warn_if_cut_short(job: &JobStatus) {
    if let (JobPhase::Failed | JobPhase::Canceled, Some(outcome)) = (job.state, job.outcome()) {
        say(&format!("job {} is {outcome}; these are its last weights", job.id));
    }
}

/// What a file is to hold, as its ending says.
fn format(out: &Path, of_job: bool) -> Result<&'static str, Failure> {
    match out.extension().and_then(|ending| ending.to_str()) {
        Some("onnx") => Ok(ONNX),
        Some("safetensors" | "st") if of_job => Ok(SAFETENSORS),
        _ => {
            let hint = match of_job {
                true => "there are .onnx, the trained model, and .safetensors or .st, what was trained alone",
                false => "--snapshot writes a model, a name that ends with .onnx",
            };
            Err(unknown_ending(out, hint))
        }
    }
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let format = format(&args.out, args.job.is_some())?;
    if args.with_normalization && format != ONNX {
        let what = "--with-normalization is for a model, a name that ends with .onnx".to_owned();
        return Err(CliError::Setting { what }.into());
    }
    if args.out.symlink_metadata().is_ok() && !args.force {
        return Err(Exists { path: args.out.clone() }.into());
    }
    let exported = match (&args.job, &args.snapshot, &args.model) {
        (Some(job), ..) => {
            let cluster = args.connection.find()?;
            block_on_until_stopped(async {
                let (client, _) = Client::connect(&cluster).await?;
                let job = client.status(job).await?.job;
                let exported = export_job(&client, &job, format, args).await?;
                warn_if_cut_short(&job);
                Ok::<_, Failure>(exported)
            })?
        }
        (None, Some(snapshot), Some(model)) => {
            let source = snapshot.display().to_string();
            let (model, weights) = (read(model)?, read(snapshot)?);
            let trained = match args.partial {
                false => fill(&model, &source, &weights)?,
                true => {
                    let (trained, left_out) = fill_partially(&model, &source, &weights)?;
                    if !left_out.is_empty() {
                        say(&format!("the model has no {}: left out", left_out.join(", ")));
                    }
                    trained
                }
            };
            put(args, source, format, &trained.onnx, trained.parameters, Formulas::default())?
        }
        _ => {
            let hint = "`syncline jobs` lists the jobs";
            return Err(Failure::new(Exit::Usage, "[E500] neither a job nor a snapshot is named", hint));
        }
    };
    if args.json { print_json(&exported) } else { print(&exported.text()) }
}

/// Writes what a job has trained, and no other one that has taken its name meanwhile.
async fn export_job(
    client: &Client,
    status: &JobStatus,
    format: &'static str,
    args: &ExportArgs,
) -> Result<Exported, Failure> {
    let of = format!("job {}", status.id);
    if format == SAFETENSORS {
        if chooses_parameters(&status.settings) {
            say("frozen parameters are not in it: a name that ends with .onnx gets the whole model");
        }
        let weights = client.weights_of(&status.job_ref()).await?;
        return put(args, of, format, weights.as_bytes(), weights.tensors()?.len(), Formulas::default());
    }
    let (trained, train) = client.trained(&status.job_ref()).await?;
    let (trained, formulas) = match args.with_normalization {
        true => (trained.taking_numbers_of_the_data(&train)?, Formulas::default()),
        false => (trained, Formulas::of(&train.data)),
    };
    put(args, of, format, &trained.onnx, trained.parameters, formulas)
}

/// Whether the settings of a job say which parameters train, and so leave some out of its weights.
fn chooses_parameters(settings: &SettingList) -> bool {
    ["settings.freeze", "settings.params", "settings.train"].iter().any(|name| settings.get(name).is_some())
}

fn put(
    args: &ExportArgs,
    of: String,
    format: &'static str,
    bytes: &[u8],
    parameters: usize,
    formulas: Formulas,
) -> Result<Exported, Failure> {
    write(&args.out, bytes, args.force)?;
    let (file, bytes) = (args.out.display().to_string(), bytes.len() as u64);
    let Formulas { shared: normalization, of_inputs: normalize } = formulas;
    Ok(Exported { of, file, bytes, parameters, format, normalization, normalize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_setting_chooses_the_parameters_it_is_said_that_the_others_are_not_in_the_weights() {
        for (name, want) in [
            ("settings.freeze", true),
            ("settings.params", true),
            ("settings.train", true),
            ("settings.seed", false),
        ] {
            let mut list = SettingList::default();
            list.push(name, "['w']");
            assert_eq!(chooses_parameters(&list), want, "{name}");
        }
    }

    #[test]
    fn what_the_inputs_are_is_said_of_each_that_has_its_own_table() {
        #[rustfmt::skip]
        let cases = [
            (None,          vec![],                                      None),
            (Some("x * 2"), vec![],                                      Some("its float inputs are x * 2")),
            (None,          vec![("image", "x")],                        None),
            (None,          vec![("image", "x"), ("table", "x - mean")], Some("its input `image` is x, its input `table` is x - mean")),
            (Some("x * 2"), vec![("table", "x - mean")],                 Some("its input `table` is x - mean, its other float inputs are x * 2")),
        ];
        for (shared, own, want) in cases {
            let exported = Exported {
                of: "job a".to_owned(),
                file: "a.onnx".to_owned(),
                bytes: 1,
                parameters: 1,
                format: ONNX,
                normalization: shared.map(str::to_owned),
                normalize: own.iter().map(|(input, by)| (input.to_string(), by.to_string())).collect(),
            };
            assert_eq!(exported.inputs_in_words().as_deref(), want);
        }
    }

    #[test]
    fn the_ending_says_what_is_written_and_another_one_is_refused_with_those_that_there_are() {
        #[rustfmt::skip]
        let cases = [
            ("a.onnx",        true,  Ok(ONNX)),
            ("a.onnx",        false, Ok(ONNX)),
            ("a.safetensors", true,  Ok(SAFETENSORS)),
            ("a.st",          true,  Ok(SAFETENSORS)),
            ("a.st",          false, Err("a name that ends with .onnx")),
            ("a.pt",          true,  Err(".onnx, the trained model, and .safetensors or .st")),
            ("onnx",          true,  Err(".onnx, the trained model")),
        ];
        for (out, of_job, want) in cases {
            match (format(Path::new(out), of_job), want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{out} {of_job}"),
                (Err(error), Err(words)) => {
                    let text = format!("{error:?}");
                    assert!(text.contains("[E597]") && text.contains(words), "{out} {of_job}: {text}");
                }
                (found, _) => panic!("{out} {of_job}: {found:?}"),
            }
        }
    }
}
