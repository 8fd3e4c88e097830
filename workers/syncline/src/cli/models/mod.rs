//! `syncline model`: what is in a model, whether it can be trained, and the graph that trains it.

mod check;
mod export;
mod loss;
mod onnx_report;
pub(in crate::cli) mod progress;
mod snapshot_report;
mod train_graph;

use std::{
    io,
    path::{Path, PathBuf},
};

use syncline_autodiff::{AutodiffError, DeriveOptions, parse_forward, warnings};
use syncline_rpc::input;
use syncline_workers::{
    place_file,
    submit::{SubmitError, read_model, with_weights_beside},
};

use crate::cli::{Exit, Failure, exported::ExportError, log_as_command, print, print_json, say};

#[derive(Debug, clap::Subcommand)]
pub enum ModelCommand {
    /// Show inputs, outputs, parameters and operators of an ONNX model, or the tensors of a .safetensors
    /// snapshot
    Show(ShowArgs),
    /// Write the training graph of a forward model: loss, gradients and metrics as ordinary ONNX operators
    TrainGraph(Box<train_graph::TrainGraphArgs>),
    /// Check the gradients of a model against differences, on random numbers, and say what a step costs
    Check(Box<check::CheckArgs>),
    /// Write trained parameters back into the forward model
    Export(export::ExportArgs),
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// An ONNX model, or a snapshot whose name ends with .safetensors or .st
    file: PathBuf,
    #[command(flatten)]
    params: loss::ParamsArg,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ModelCommand) -> Result<(), Failure> {
    log_as_command();
    match command {
        ModelCommand::Show(args) => show(args),
        ModelCommand::TrainGraph(args) => train_graph::run(args),
        ModelCommand::Check(args) => check::run(args),
        ModelCommand::Export(args) => export::run(args),
    }
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let bytes = read(&args.file)?;
    if args.file.extension().is_some_and(|e| e == "safetensors" || e == "st") {
        let report = snapshot_report::of(&args.file, &bytes)?;
        return if args.json { print_json(&report) } else { print(&report.text()) };
    }
    let model = parse_forward(&bytes)?;
    let options = DeriveOptions { params: args.params.names()?, ..DeriveOptions::default() };
    let report = onnx_report::of(&model, &options)?;
    if args.json { print_json(&report) } else { print(&report.text()) }
}

/// Says what is doubtful about a forward model before it is trained.
fn warn(bytes: &[u8], options: &DeriveOptions) -> Result<Vec<String>, Failure> {
    let model = parse_forward(bytes)?;
    let said = warnings(&model, options)?;
    said.iter().for_each(|warning| say(&format!("warning: {warning}")));
    Ok(said)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes =
        read_model(path).map_err(|source| SubmitError::Unreadable { path: path.to_owned(), source })?;
    Ok(with_weights_beside(path, bytes).map_err(AutodiffError::from)?)
}

/// Writes a file, which is there as a whole or not at all; what stood there stays where that fails.
fn write(path: &Path, bytes: &[u8], replaces: bool) -> Result<(), Failure> {
    // A pipe without a reader would hold us up forever.
    let placed = input::check_replaceable(path).and_then(|()| place_file(path, bytes, replaces));
    placed.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists if !replaces => ExportError::Exists { path: path.to_owned() }.into(),
        _ => {
            let text = format!("[E244] cannot write {}: {source}", path.display());
            Failure::new(Exit::Usage, text, "name a file in a folder that is there and may be written")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_there_is_replaced_only_where_it_may_be_and_a_folder_never() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.onnx");
        write(&file, b"first", false).unwrap();
        assert!(write(&file, b"second", false).unwrap_err().to_string().contains("[E536]"));
        assert_eq!(fs::read(&file).unwrap(), b"first");
        write(&file, b"second", true).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert!(write(dir.path(), b"third", true).unwrap_err().to_string().contains("[E244]"));
    }
}
