//! A job graph as a user writes it in a TOML file: a training at the top, or a list of nodes. Paths in it are
//! relative to the file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de::Error};
use syncline_autodiff::{Loss, LossOptions};
use syncline_rpc::input;
use syncline_scheduler::spec::DataSpec;

use super::{
    FieldChange, SubmitError,
    file_weights::FileWeights,
    graph::{GraphNode, JobGraph, NODE_RETRIES, NodeWork},
    model::{FirstValues, Model},
    paths::absolute,
    suggestion::with_suggestion,
    training::{ParamList, Settings, Training},
};
use crate::data::is_url;

/// A job file is written by hand.
const MAX_BYTES: u64 = 4 << 20;

/// The file's form; docs/job-file.md lists its fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    id: String,
    #[serde(default)]
    node: Vec<FileNode>,
    model: Option<FileModel>,
    data: Option<DataSpec>,
    settings: Option<Settings>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: String,
    #[serde(default)]
    after: Vec<String>,
    r#do: NodeAction,
    model: Option<FileModel>,
    data: Option<DataSpec>,
    settings: Option<Settings>,
    #[serde(default = "node_retries")]
    retries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NodeAction {
    Train,
    Evaluate,
    Snapshot,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum FileModel {
    Forward {
        onnx: PathBuf,
        #[serde(deserialize_with = "loss")]
        loss: Loss,
        #[serde(default)]
        loss_options: LossOptions,
        output: Option<String>,
        weights: Option<FileWeights>,
    },
    Ready {
        onnx: PathBuf,
        weights: Option<PathBuf>,
    },
}

impl JobFile {
    /// Reads a job file.
    ///
    /// # Errors
    /// E360 if the file cannot be read, E361 if it is no job file.
    pub fn load(path: &Path) -> Result<JobGraph, SubmitError> {
        Self::load_with(path, &[])
    }

    /// Reads a job file, with other values in some of its fields. Paths among them are relative to the file,
    /// too.
    ///
    /// # Errors
    /// E360 if the file cannot be read, E361 if it is no job file, E369 if there is no such field, or if it
    /// does not take the value.
    pub fn load_with(path: &Path, changes: &[FieldChange]) -> Result<JobGraph, SubmitError> {
        let text = input::read_text(path, MAX_BYTES)
            .map_err(|source| SubmitError::Unreadable { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let no_file = |cause| SubmitError::File { path: path.to_owned(), cause };
        // By itself first: what is wrong with it is said with the line.
        let (mut file, mut written) = Self::read(&text).map_err(no_file)?;
        let refused = |change: &FieldChange, error: &toml::de::Error| {
            // Without the line of a text that nobody has written.
            let mut error = error.clone();
            error.set_input(None);
            change.not_taken(in_plain_words(&change.without_other_place(error.to_string().trim_end())))
        };
        // As text: a second reader, of values, would be a hundredth of the program.
        let read_again = |written: &toml::Table| toml::from_str::<Self>(&written.to_string());
        for change in changes {
            change.apply(&mut written)?;
            file = match (read_again(&written), change.as_text()) {
                (Ok(read), _) => read,
                // What looks like a number may be a name.
                (Err(error), Some(text)) => {
                    text.apply(&mut written)?;
                    read_again(&written).map_err(|_| refused(change, &error))?
                }
                (Err(error), None) => return Err(refused(change, &error)),
            };
        }
        file.resolve(&written, folder).map_err(no_file)
    }

    /// What it says, and how that is written.
    fn read(text: &str) -> Result<(Self, toml::Table), String> {
        let file = toml::from_str(text).map_err(|e| in_plain_words(&e.to_string()))?;
        Ok((file, toml::from_str(text).map_err(|e| e.to_string())?))
    }

    /// The graph; `written` is the same as it was written.
    fn resolve(self, written: &toml::Table, folder: &Path) -> Result<JobGraph, String> {
        if let Some((path, number)) = first_overflow(written) {
            let most = f32::MAX;
            return Err(format!("{path} = {number:e} is too large, numbers go up to {most:.1e}"));
        }
        let Self { id, node: nodes, model, data, settings } = self;
        match (model, data, settings) {
            (None, None, None) if !nodes.is_empty() => {
                let nodes = nodes.into_iter().map(|node| node.resolve(folder)).collect::<Result<_, _>>()?;
                Ok(JobGraph::of_nodes(id, nodes))
            }
            _ if !nodes.is_empty() => Err(
                "`model`, `data` and `settings` belong to the `[[node]]` that trains, or the file has no `[[node]]`".to_owned()
            ),
            (Some(model), Some(data), settings) => {
                Ok(JobGraph::of_training(id, training(model, data, settings, folder)?))
            }
            _ => Err("a job without `[[node]]` is one training: it needs `model` and `data`".to_owned()),
        }
    }
}

/// A message of the reader, which names types of Rust, in words for whoever wrote the file.
fn in_plain_words(message: &str) -> String {
    let words = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0"),
        ("expected i64", "expected a whole number"),
        ("expected f32", "expected a number"),
        (
            "expected struct Normalization",
            "expected a table for an input of the model, such as [data.normalize.image]",
        ),
        (
            "wanted exactly 1 element, more than 1 element",
            "it is of one kind, and this makes two: give it as a whole, { KIND = ... }",
        ),
    ];
    with_suggestion(&words.iter().fold(message.to_owned(), |message, (ty, words)| message.replace(ty, words)))
}

/// The first number that would become infinite as float32, and where it stands: what is wrong with it is said
/// in the words of whoever wrote it.
fn first_overflow(table: &toml::Table) -> Option<(String, f64)> {
    table.iter().find_map(|(name, value)| {
        let (path, number) = overflow_in(value)?;
        Some((format!("{name}{path}"), number))
    })
}

/// The same below one value; the path begins with a dot, or is empty where it is the value itself.
fn overflow_in(value: &toml::Value) -> Option<(String, f64)> {
    let dotted = |(path, number): (String, f64)| (format!(".{path}"), number);
    match value {
        toml::Value::Float(number) => {
            (number.is_finite() && (*number as f32).is_infinite()).then(|| (String::new(), *number))
        }
        toml::Value::Array(items) => (1..).zip(items).find_map(|(n, item): (usize, _)| {
            let (path, number) = overflow_in(item)?;
            Some((format!(".{n}{path}"), number))
        }),
        toml::Value::Table(table) => first_overflow(table).map(dotted),
        _ => None,
    }
}

impl FileNode {
    fn resolve(self, folder: &Path) -> Result<GraphNode, String> {
        let Self { name, after, r#do, model, data, settings, retries } = self;
        let work = match (r#do, model, data, settings) {
            (NodeAction::Train, Some(model), Some(data), settings) => {
                NodeWork::Train(Box::new(training(model, data, settings, folder)?))
            }
            (NodeAction::Train, ..) => {
                return Err(format!("node `{name}` trains: it needs `model` and `data`"));
            }
            (NodeAction::Evaluate, None, None, None) => NodeWork::Evaluate,
            (NodeAction::Snapshot, None, None, None) => NodeWork::Snapshot,
            _ => return Err(format!("node `{name}` does not train: it takes no model, data or settings")),
        };
        Ok(GraphNode { name, after, retries, work })
    }
}

fn training(
    model: FileModel,
    data: DataSpec,
    settings: Option<Settings>,
    folder: &Path,
) -> Result<Training, String> {
    Ok(Training {
        model: model.resolve(folder),
        data: resolve_data(data, folder)?,
        settings: resolve_settings(settings.unwrap_or_default(), folder),
    })
}

impl FileModel {
    fn resolve(self, folder: &Path) -> Model {
        let path = |onnx: PathBuf| match onnx.to_str().is_some_and(is_url) {
            true => onnx,
            false => folder.join(onnx),
        };
        match self {
            Self::Forward { onnx, loss, loss_options: options, output, weights } => {
                let first =
                    |FileWeights { path: file, partial }| FirstValues { file: path(file).into(), partial };
                let weights = weights.map(first);
                Model::Forward { onnx: path(onnx).into(), loss, options, output, weights }
            }
            Self::Ready { onnx, weights } => {
                let weights = weights.map(|weights| path(weights).into());
                Model::Ready { onnx: path(onnx).into(), weights, misplaced: Vec::new() }
            }
        }
    }
}

fn node_retries() -> u32 {
    NODE_RETRIES
}

fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Loss, D::Error> {
    String::deserialize(from)?.parse().map_err(Error::custom)
}

/// Workers are told paths as text.
fn resolve_data(mut data: DataSpec, folder: &Path) -> Result<DataSpec, String> {
    for path in data.paths_mut().into_iter().filter(|path| !is_url(path)) {
        let found = absolute(&folder.join(&*path)).into_os_string();
        *path = found.into_string().map_err(|found| {
            format!(
                "{} is no path in UTF-8, which is what workers are told: give that folder another name",
                found.display()
            )
        })?;
    }
    Ok(data)
}

fn resolve_settings(mut settings: Settings, folder: &Path) -> Settings {
    if let Some(ParamList::File(path)) = &mut settings.params {
        *path = folder.join(&*path);
    }
    if let Some(path) = &mut settings.resume {
        *path = folder.join(&*path);
    }
    settings
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

    use super::*;

    fn parse(text: &str, folder: &Path) -> Result<JobGraph, String> {
        let (file, written) = JobFile::read(text)?;
        file.resolve(&written, folder)
    }

    #[test]
    fn every_mistake_is_named() {
        #[rustfmt::skip]
        let cases = [
            ("no id",            "node = []",                                                        "missing field `id`"),
            ("nothing to do",    "id = 'a'",                                                         "it needs `model` and `data`"),
            ("no data",          "id = 'a'\nmodel.ready.onnx = 'm'",                                 "it needs `model` and `data`"),
            ("both forms",       "id = 'a'\nsettings = {}\n[[node]]\nname = 'n'\ndo = 'evaluate'",   "belong to the `[[node]]` that trains"),
            ("unknown verb",     "id = 'a'\n[[node]]\nname = 'n'\ndo = 'fly'",                       "unknown variant `fly`"),
            ("train needs data", "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'",                     "needs `model` and `data`"),
            ("misspelt field",   "id = 'a'\n[[node]]\nname = 'n'\ndo = 'evaluate'\naftr = []",       "unknown field `aftr`"),
            ("bad policy",       "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.policy = 'x'", "E003"),
            ("bad precision",    "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.precision = 'fp8'", "unknown variant `fp8`"),
            ("near precision",   "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.precision = 'bf61'", "did you mean `bf16`?"),
            ("near optimizer",   "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.optimizer.adm = {}", "did you mean `adam`?"),
            ("near policy",      "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings.policy = 'local_sgd:8'", "did you mean `local-sgd`?"),
            ("near loss",        "id = 'a'\nmodel.forward = { onnx = 'm', loss = 'hubber' }",             "did you mean `huber`?"),
            ("too much",         "id = 'a'\n[[node]]\nname = 'n'\ndo = 'snapshot'\nsettings = {}",   "takes no model"),
        ];
        for (name, text, want) in cases {
            let error = parse(text, Path::new("/")).unwrap_err();
            assert!(error.contains(want), "{name}: {error}");
        }
    }

    #[test]
    fn a_training_at_the_top_of_the_file_is_that_job_with_its_nodes_written_down() {
        let training = "model.ready.onnx = 'm'\ndata.source.csv.path = 'a.csv'\nsettings.epochs = 3\n";
        let node = format!("[[node]]\nname = 'train'\ndo = 'train'\n{training}");
        let split = "data.split = { test_every = 5 }\n";
        let test = "[[node]]\nname = 'test'\ndo = 'evaluate'\nafter = ['train']\n";
        let cases = [
            (training.to_owned(), node.clone()),
            (format!("{training}{split}"), format!("{node}{split}{test}")),
        ];
        for (short, long) in cases {
            let [short, long] =
                [short, long].map(|text| parse(&format!("id = 'a'\n{text}"), Path::new("/")).unwrap());
            assert_eq!(
                format!("{:?} {:?}", short.id, short.nodes),
                format!("{:?} {:?}", long.id, long.nodes)
            );
        }
    }

    #[test]
    fn a_change_of_a_field_that_there_is_not_is_answered_with_those_that_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
        fs::write(&path, format!("{head}data = {{ source = {{ csv = {{ path = 'a.csv' }} }} }}")).unwrap();
        let load = |changes: &[&str]| {
            let changes: Vec<FieldChange> = changes.iter().map(|change| change.parse().unwrap()).collect();
            JobFile::load_with(&path, &changes)
        };
        let mut graph = load(&["settings.batch=64", "n.settings.learning_rate=1", "id=b"]).unwrap();
        assert_eq!(graph.id, "b");
        let training = graph.trainings_mut().next().unwrap();
        assert_eq!((training.settings.batch, training.settings.learning_rate), (64, Some(1.0)));
        let mut graph = load(&["data.normalize.image.scale=0.5", "data.normalize.'x.1'={}"]).unwrap();
        let data = &graph.trainings_mut().next().unwrap().data;
        assert_eq!(data.normalize.keys().collect::<Vec<_>>(), ["image", "x.1"]);
        assert_eq!(data.normalization_of("image").scale, 0.5);
        #[rustfmt::skip]
        let cases = [
            ("settings.btach=64",     "unknown field `btach`, expected one of `optimizer`, `learning_rate`"),
            ("settings.batch=many",   "expected a whole number from 0 to 4294967295"),
            ("settings.policy=bps",   "[E003] `bps` is not a policy: expected one of bsp, "),
            ("settings.policy=bps",   "did you mean `bsp`?"),
            ("settings.lr=0.1",       "did you mean `learning_rate`?"),
            ("data.source.idx=1",     "give it as a whole, { KIND = ... }"),
            ("data.normalize.x.scal=2", "did you mean `scale`?"),
            ("data.normalize.scale=2", "expected a table for an input of the model, such as [data.normalize.image]"),
        ];
        for (change, want) in cases {
            let error = load(&["settings.epochs=2", change]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("[E369] `{change}` cannot be set: ")), "{error}");
            assert!(error.contains(want), "{error}");
            assert!(error.matches("[E003]").count() <= 1, "{error}");
            assert!(!error.contains("in `"), "the change says where: {error}");
        }
        let error = load(&["data={source={csv={path='a.csv',headr=1}}}"]).unwrap_err().to_string();
        assert!(error.contains("headr") && error.contains("in `node.data.source`"), "{error}");
        // What looks like a number may be a name.
        assert_eq!(load(&["id=2024"]).unwrap().id, "2024");
        let error = load(&["settings.learning_rate=1e308"]).unwrap_err().to_string();
        assert!(error.contains("node.1.settings.learning_rate = 1e308 is too large"), "{error}");
    }

    #[test]
    fn a_folder_whose_name_is_no_utf_8_is_said_to_be_that_and_not_to_be_missing() {
        let folder = Path::new(OsStr::from_bytes(b"/jobs/\xff"));
        let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
        let error = parse(&format!("{head}data = {{ source = {{ csv = {{ path = 'a.csv' }} }} }}"), folder);
        let error = error.unwrap_err();
        assert!(error.contains("a.csv is no path in UTF-8"), "{error}");
    }

    #[test]
    fn a_number_that_float32_cannot_hold_is_named_as_it_was_written() {
        let settings = ["learning_rate = 1e308", "optimizer = { sgd = { weight_decay = -2.5e40 } }"];
        let said = settings.map(|settings| {
            let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
            let data = "data = { source = { csv = { path = 'a.csv' } } }\n";
            parse(&format!("{head}{data}settings = {{ {settings} }}"), Path::new("/")).unwrap_err()
        });
        assert_eq!(said[0], "node.1.settings.learning_rate = 1e308 is too large, numbers go up to 3.4e38");
        assert!(said[1].starts_with("node.1.settings.optimizer.sgd.weight_decay = -2.5e40 "), "{}", said[1]);
    }

    #[test]
    fn a_number_that_is_none_is_answered_without_the_types_of_a_programming_language() {
        #[rustfmt::skip]
        let cases = [
            ("epochs = -1",                    "invalid value: integer `-1`, expected a whole number from 0 to 4294967295"),
            ("batch = 'many'",                 "invalid type: string \"many\", expected a whole number from 0 to 4294967295"),
            ("seed = 1.5",                     "expected a whole number from 0\n"),
            ("checkpoint = { every_s = -60 }", "expected a whole number from 0 to 4294967295"),
            ("warmup = 'long'",                "expected a number\n"),
        ];
        for (settings, words) in cases {
            let text = format!("id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nsettings = {{ {settings} }}");
            let error = parse(&text, Path::new("/")).unwrap_err();
            assert!(error.contains(words), "{settings}: {error}");
        }
    }

    #[test]
    fn a_key_of_several_words_is_also_read_as_it_was_spelt_before() {
        let head = "id = 'a'\n[[node]]\nname = 'n'\ndo = 'train'\nmodel = { ready = { onnx = 'm' } }\n";
        for split in ["test_every = 5", "test_percent = 10", "test_last_percent = 10"] {
            let [new, old] = [split.to_owned(), split.replace('_', "-")].map(|split| {
                let data =
                    format!("data = {{ source = {{ csv = {{ path = 'a.csv' }} }}, split = {{ {split} }} }}");
                let graph = parse(&format!("{head}{data}"), Path::new("/")).unwrap();
                let NodeWork::Train(training) = &graph.nodes[0].work else { unreachable!("it trains") };
                training.data.split
            });
            assert_eq!(new, old, "{split}");
        }
    }

    #[test]
    fn every_source_in_the_documentation_is_read() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/data.md");
        let page = fs::read_to_string(page).unwrap();
        let head = "id = 'a'\nmodel = { ready = { onnx = 'm' } }\n";
        let snippets: Vec<_> =
            page.split("```toml\n[data]").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(snippets.len(), 15);
        for snippet in snippets {
            let graph = parse(&format!("{head}[data]{snippet}"), Path::new("/data")).unwrap();
            let NodeWork::Train(training) = &graph.nodes[0].work else { unreachable!("it trains") };
            assert!(training.data.paths().iter().all(|path| path.starts_with("/data/")), "{snippet}");
            assert!(training.data.has_test() && !training.data.paths().is_empty(), "{snippet}");
        }
    }
}
