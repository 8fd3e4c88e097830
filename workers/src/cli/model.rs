//! `syncline model show`: what is in a model or a snapshot.

use std::{
    fs,
    path::{Path, PathBuf},
};

use syncline_engine::cli::{Failure, log_as_command, print, print_json};

use super::{model_failure, onnx_report, snapshot_report, submit_failure};
use crate::{onnx, submit::SubmitError};

#[derive(Debug, clap::Subcommand)]
pub enum ModelCommand {
    /// Show inputs, outputs, parameters and operators of an ONNX model, or the tensors of a .safetensors snapshot
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// An ONNX model, or a snapshot whose name ends with .safetensors
    file: PathBuf,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &ModelCommand) -> Result<(), Failure> {
    log_as_command();
    let ModelCommand::Show(args) = command;
    let bytes = read(&args.file)?;
    if args.file.extension().is_some_and(|e| e == "safetensors") {
        let report = snapshot_report::of(&args.file, &bytes)?;
        return if args.json { print_json(&report) } else { print(&report.text()) };
    }
    let model = onnx::parse(&bytes).map_err(model_failure)?;
    let report = onnx_report::of(&model);
    if args.json { print_json(&report) } else { print(&report.text()) }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| submit_failure(SubmitError::Read { path: path.to_owned(), source }))
}
