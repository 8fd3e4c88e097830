//! `syncline predict`: what a trained model says of samples, and how often it is right.

mod arrays_file;
mod figures;
mod table_file;
mod tables;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use syncline_kit::Device;
use syncline_scheduler::{ids::JobId, spec::DataSpec};
use syncline_workers::{
    blocking,
    client::{Client, TrainedJob},
    data::{FileError, MAX_FILE_BYTES},
    predict::{LabelUse, PredictError, PredictOptions, Predicted, Predictor, Samples},
    process::INTERRUPTED,
    worker::load_runtime,
};

use self::{
    arrays_file::ArraysFile,
    figures::Report,
    table_file::{Destination, TableFile},
};
use crate::cli::{
    CliError, ConnectionArgs, Failure, block_on, end_at_once, exported::ExportError, listen_for_stop,
    log_as_command, models::progress::Progress, print, print_json, say, whole_file::unknown_ending,
};

/// Most samples that are computed at once unprompted.
const MOST_AT_ONCE: u32 = 256;

#[derive(Debug, clap::Args)]
pub struct PredictArgs {
    /// Id of a training that is over, or that wrote a snapshot
    job: JobId,
    /// Files in place of those of the job, in the same form; all of their samples are looked at. `-` is the
    /// standard input
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',', conflicts_with = "samples")]
    data: Vec<PathBuf>,
    /// Which samples of the job's data; if not given those that test, or else validate, or else all
    #[arg(long, value_enum)]
    samples: Option<Part>,
    /// The files have no labels to compare with; label columns that are there are skipped
    #[arg(long, requires = "data")]
    unlabeled: bool,
    /// Take the columns of a CSV file in the order of the job's data, whatever their names are, and without
    /// reading that; columns that the job's `inputs` name are found by these names
    #[arg(long, requires = "data")]
    by_place: bool,
    /// Write a CSV file with a row for each sample: its number, its label, what is predicted, and what the
    /// model gives; a name that ends with .npz gets the same as arrays of numpy, of any size; `-` or a
    /// pipe gets rows as they come, and figures go to stderr with `-`
    #[arg(long, value_name = "FILE.csv|FILE.npz")]
    out: Option<PathBuf>,
    /// Samples that are computed at once; if not given as many as a worker computes on, at most 256
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: Option<u32>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A part of the data.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Test,
    Validation,
    Train,
    All,
}

impl From<Part> for Samples {
    fn from(part: Part) -> Self {
        match part {
            Part::Test => Self::Test,
            Part::Validation => Self::Validation,
            Part::Train => Self::Train,
            Part::All => Self::All,
        }
    }
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Failure> {
    log_as_command();
    let destination = args.out.as_deref().map(Destination::of);
    let is_stdout = destination == Some(Destination::Stdout);
    if is_stdout && args.json {
        let what = "--json and --out both write to the standard output: name a file, or leave --json out";
        return Err(CliError::Setting { what: what.to_owned() }.into());
    }
    if let (Some(out), Some(Destination::File)) = (&args.out, destination) {
        Form::of(out)?;
    }
    let is_there = |out: &&PathBuf| !args.force && out.symlink_metadata().is_ok();
    if let Some(out) = args.out.as_ref().filter(is_there).filter(|_| destination == Some(Destination::File)) {
        return Err(ExportError::Exists { path: out.clone() }.into());
    }
    let reads_input = args.data.iter().any(|file| is_stdin(file));
    if reads_input && args.data.len() > 1 {
        let what = "--data -, the standard input, has to be the only file".to_owned();
        return Err(CliError::Setting { what }.into());
    }
    let cluster = args.connection.find()?;
    let report = block_on(async {
        let mut stop = listen_for_stop(false)?;
        let fetch = async {
            let (client, _) = Client::connect(&cluster).await?;
            Ok::<_, Failure>(client.trained_job(&args.job).await?)
        };
        let job = tokio::select! {
            job = fetch => job?,
            () = stop.requested() => end_at_once(INTERRUPTED),
        };
        let input = tokio::select! {
            input = blocking(move || reads_input.then(read_stdin).transpose()) => input?,
            () = stop.requested() => end_at_once(INTERRUPTED),
        };
        let options = options_of(args, &job, input)?;
        let opened = {
            let (options, out) = (options.clone(), args.out.clone());
            blocking(move || open(&job, &options, out))
        };
        let (predictor, stream) = tokio::select! {
            opened = opened => opened?,
            // Nothing is written yet.
            () = stop.requested() => end_at_once(INTERRUPTED),
        };
        // What is unfinished goes before the process does.
        let is_stopped = || *stop.flag().borrow();
        let answer = tokio::task::block_in_place(|| predict(args, &options, predictor, stream, is_stopped));
        match answer {
            Err(Ending::Stopped) => end_at_once(INTERRUPTED),
            Err(Ending::Failed(failure)) => Err(failure),
            Ok(report) => Ok(report),
        }
    })?;
    match is_stdout {
        true => say(&report.text()),
        false if args.json => return print_json(&report),
        false => return print(&report.text()),
    }
    Ok(())
}

/// Reads the data, loads the model, and opens what rows are streamed to.
fn open(
    job: &TrainedJob,
    options: &PredictOptions,
    out: Option<PathBuf>,
) -> Result<(Predictor, Option<TableFile>), Failure> {
    let predictor = Predictor::open(&load_runtime(Device::Cpu, &say)?, job, options)?;
    let stream = out.as_deref().map(TableFile::open).transpose()?.flatten();
    Ok((predictor, stream))
}

/// Why there is no answer.
enum Ending {
    /// Ctrl-C, or a signal that asks for the end.
    Stopped,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What errors and figures call it.
const STDIN: &str = "the standard input";

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// All of the standard input, or one byte more than a file may have, which is refused as that of a file is.
fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let cannot_read = |source| PredictError::Data(FileError::Io { path: STDIN.into(), source }.into());
    io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot_read)?;
    Ok(bytes)
}

/// `input`: what the standard input has given, where it is asked for.
fn options_of(
    args: &PredictArgs,
    job: &TrainedJob,
    input: Option<Vec<u8>>,
) -> Result<PredictOptions, Failure> {
    let as_trained = job.train.samples_at_once(None).unwrap_or(job.train.batch).min(MOST_AT_ONCE);
    let batch = args.batch.unwrap_or(as_trained) as usize;
    if args.data.is_empty() {
        let samples = args.samples.map_or_else(|| Samples::most_telling(&job.train.data), Samples::from);
        return Ok(PredictOptions::for_job(job, samples, batch));
    }
    let labels = if args.unlabeled { LabelUse::PassOver } else { LabelUse::Read };
    let mut options = match input {
        Some(bytes) => PredictOptions::for_bytes(job, STDIN, bytes, labels, batch)?,
        None => {
            let files: Vec<String> = args.data.iter().map(|file| file.display().to_string()).collect();
            PredictOptions::for_files(job, &files, labels, batch)?
        }
    };
    if args.by_place {
        options.columns_of = None;
    }
    Ok(options)
}

/// The files that these samples are in.
fn files_of(samples: Samples, data: &DataSpec) -> Vec<&str> {
    let own = match samples {
        Samples::Train => Some(&data.source),
        Samples::Validation => data.validation.as_ref(),
        Samples::Test => data.test.as_ref(),
        Samples::All => return data.paths(),
    };
    own.unwrap_or(&data.source).paths()
}

/// Computes everything, with a row of the file for each sample.
fn predict(
    args: &PredictArgs,
    options: &PredictOptions,
    predictor: Predictor,
    stream: Option<TableFile>,
    is_stopped: impl Fn() -> bool,
) -> Result<Report, Ending> {
    let (samples, mut done, progress) = (predictor.samples(), 0, Progress::new());
    let names = predictor.class_names().to_vec();
    let mut file = match (stream, args.out.as_deref()) {
        (Some(stream), _) => Some(OutFile::Table(stream)),
        (None, Some(path)) => Some(OutFile::create(path, args.force)?),
        (None, None) => None,
    };
    // The rows show how far it is.
    let shows_progress = args.out.as_deref().map(Destination::of) != Some(Destination::Stdout);
    let figures = predictor.run(|predicted| {
        file.iter_mut().try_for_each(|file| file.add(predicted, &names))?;
        done += predicted.rows.len();
        if shows_progress {
            progress.show(&format!("{done} of {samples} samples"));
        }
        if is_stopped() { Err(Ending::Stopped) } else { Ok(()) }
    });
    progress.clear();
    let figures = figures?;
    let written = file.map(OutFile::finish).transpose()?;
    let data = files_of(options.samples, &options.data).join(", ");
    let part = args.data.is_empty().then(|| options.samples.name());
    Ok(Report::new(args.job.clone(), part, data, samples, &figures, &names, written))
}

/// What a file is to hold, as its ending says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    Npz,
}

impl Form {
    fn of(out: &Path) -> Result<Self, Failure> {
        match out.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("npz") => Ok(Self::Npz),
            _ => Err(unknown_ending(out, "there are .csv, a row for each sample, and .npz, arrays of numpy")),
        }
    }
}

/// What takes the predictions.
enum OutFile {
    Table(TableFile),
    Arrays(ArraysFile),
}

impl OutFile {
    fn create(path: &Path, replaces: bool) -> Result<Self, Failure> {
        Ok(match Form::of(path)? {
            Form::Csv => Self::Table(TableFile::create(path, replaces)?),
            Form::Npz => Self::Arrays(ArraysFile::create(path, replaces)?),
        })
    }

    fn add(&mut self, predicted: &Predicted<'_>, names: &[String]) -> Result<(), Failure> {
        match self {
            Self::Table(table) => table.add(predicted, names),
            Self::Arrays(arrays) => Ok(arrays.add(predicted)?),
        }
    }

    fn finish(self) -> Result<PathBuf, ExportError> {
        match self {
            Self::Table(table) => table.finish(),
            Self::Arrays(arrays) => arrays.finish(),
        }
    }
}

impl From<table_file::TooWide> for Failure {
    fn from(table_file::TooWide { numbers }: table_file::TooWide) -> Self {
        let what = format!(
            "the model gives {numbers} numbers for a sample, and a row of a CSV file takes {}: --out FILE.npz takes any",
            table_file::MOST_COLUMNS
        );
        CliError::Setting { what }.into()
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::Source;

    use super::*;

    #[test]
    fn of_samples_the_files_are_named_that_they_are_in() {
        let [train, test, validation] = ["a.npz", "b.npz", "c.npz"].map(Source::npz);
        let own = DataSpec::new(train).with(|d| (d.test, d.validation) = (Some(test), Some(validation)));
        let divided = DataSpec::new(Source::npz("a.npz"));
        #[rustfmt::skip]
        let cases = [
            (Samples::Train, &own,     vec!["a.npz"]), (Samples::Test,       &own, vec!["b.npz"]),
            (Samples::Test,  &divided, vec!["a.npz"]), (Samples::Validation, &own, vec!["c.npz"]),
            (Samples::All,   &own,     vec!["a.npz", "b.npz", "c.npz"]),
        ];
        for (samples, data, want) in cases {
            assert_eq!(files_of(samples, data), want, "{samples:?}");
        }
    }

    #[test]
    fn the_ending_says_what_is_written_and_another_one_is_refused() {
        #[rustfmt::skip]
        let cases = [
            ("a.csv", Some(Form::Csv)), ("a.npz", Some(Form::Npz)), ("a.npy", None), ("a.npz.gz", None), ("csv", None),
        ];
        for (out, want) in cases {
            match (Form::of(Path::new(out)), want) {
                (Ok(found), Some(want)) => assert_eq!(found, want, "{out}"),
                (Err(error), None) => assert!(format!("{error:?}").contains("[E597]"), "{out}: {error:?}"),
                (found, _) => panic!("{out}: {found:?}"),
            }
        }
    }
}
