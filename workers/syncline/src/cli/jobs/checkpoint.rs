//! `syncline checkpoint`: a training's checkpoint as a file.

use std::path::PathBuf;

use serde_json::json;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{
    ConnectionArgs, Failure, block_on_until_stopped, exported::ExportError, log_as_command, print, print_json,
};

#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {
    /// Id of the job, which may be running or over
    job: JobId,
    /// Where to write it, as safetensors; `submit --resume` goes on from it
    file: PathBuf,
    /// Number of the checkpoint, instead of the newest
    #[arg(long, value_name = "N")]
    number: Option<u64>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CheckpointArgs) -> Result<(), Failure> {
    log_as_command();
    if args.file.symlink_metadata().is_ok() && !args.force {
        return Err(ExportError::Exists { path: args.file.clone() }.into());
    }
    let cluster = args.connection.find()?;
    let saved = block_on_until_stopped(async {
        let (client, _) = Client::connect(&cluster).await?;
        Ok::<_, Failure>(client.save_checkpoint(&args.job, args.number, &args.file).await?)
    })?;
    let (job, file) = (&args.job, args.file.display());
    if args.json {
        return print_json(&json!({
            "job": job, "checkpoint": saved.number, "samples": saved.samples, "epoch": saved.epoch,
            "file": file.to_string(), "bytes": saved.bytes,
        }));
    }
    print(&format!(
        "checkpoint {} of {job}, {} samples, epoch {}, in {file}, {} bytes",
        saved.number, saved.samples, saved.epoch, saved.bytes
    ))
}
