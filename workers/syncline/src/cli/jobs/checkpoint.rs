//! `syncline checkpoint`: a training's checkpoint as a file, from a cluster or from the disks of its shards.

use std::path::PathBuf;

use serde_json::json;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use super::checkpoint_parts::Search;
use crate::cli::{
    ConnectionArgs, Failure, block_on_until_stopped, exported::ExportError, log_as_command, print, print_json,
};

#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {
    /// Id of the job, which may be running or over
    #[arg(required_unless_present = "from")]
    job: Option<JobId>,
    /// Where to write it, as safetensors; `submit --resume` goes on from it, or from the id of the job on
    /// the same cluster
    #[arg(required_unless_present_any = ["now", "from"])]
    file: Option<PathBuf>,
    /// Ask no cluster, and search these folders: the state directories of all shards, where Redis has lost
    /// the job. FILE gets the weights alone, from which a job begins; without FILE what is there is
    /// listed
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with = "now")]
    from: Vec<PathBuf>,
    /// Keep one of what is trained now, without waiting for the next that is due
    #[arg(long, conflicts_with = "number")]
    now: bool,
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
    if let Some(path) = args.file.as_ref().filter(|path| path.symlink_metadata().is_ok() && !args.force) {
        return Err(ExportError::Exists { path: path.clone() }.into());
    }
    let job = match &args.job {
        Some(job) if args.from.is_empty() => job,
        job => {
            let search = Search { folders: &args.from, job: job.as_ref(), number: args.number };
            return match &args.file {
                Some(file) => search.write(file, args.force, args.json),
                None => search.list(args.json),
            };
        }
    };
    let cluster = args.connection.find()?;
    let (kept, saved) = block_on_until_stopped(async {
        let (client, _) = Client::connect(&cluster).await?;
        let kept = match args.now {
            true => Some(client.keep_checkpoint(job).await?),
            false => None,
        };
        let saved = match &args.file {
            Some(path) => Some(client.save_checkpoint(job, args.number, path).await?),
            None => None,
        };
        Ok::<_, Failure>((kept, saved))
    })?;
    let (Some(saved), Some(file)) = (saved, &args.file) else {
        return match args.json {
            true => print_json(&json!({ "job": job, "checkpoint": kept })),
            false => print(&format!(
                "checkpoint {} of {job} is on the shards: `syncline submit FILE --id NEW --resume {job}` goes on from it",
                kept.unwrap_or_default()
            )),
        };
    };
    let file = file.display();
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
