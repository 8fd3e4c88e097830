//! `syncline gc`: removes what no job needs any more from the parameter servers' disks.

use std::time::Duration;

use serde::Serialize;
use syncline_rpc::{Collected, FolderGc, Forgotten, JobFolders};
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, TimeUnit, block_on, count, log_as_command, print_json, say, time};

#[derive(Debug, clap::Args)]
pub struct GcArgs {
    /// Spare what was uploaded or asked for within this time: a submission uploads first; a number alone is
    /// seconds
    #[arg(long, alias = "older-than-s", value_name = "TIME", default_value = "1h", value_parser = time(TimeUnit::Seconds))]
    older_than: Duration,
    /// Also remove the checkpoints of jobs that were deleted or replaced, and that the cluster does not know
    /// any more. Those of jobs that Redis has lost are among them
    #[arg(long)]
    checkpoints: bool,
    /// Also remove the snapshots, and last weights, of jobs that were deleted or replaced, or are over for
    /// more than a week
    #[arg(long)]
    snapshots: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What was removed, and what could be.
#[derive(Debug, Serialize)]
struct Removed {
    #[serde(flatten)]
    uploads: Collected,
    forgotten_checkpoints: u64,
    forgotten_checkpoint_bytes: u64,
    forgotten_snapshots: u64,
    forgotten_snapshot_bytes: u64,
}

pub(crate) fn run(args: &GcArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let client = Client::connect(&cluster).await?.0;
        let uploads = client.gc(args.older_than).await?;
        if !args.json {
            let megabytes = uploads.bytes as f64 / 1e6;
            say(&format!("removed {}, {megabytes:.1} MB, that no job names", count(uploads.blobs, "blob")));
        }
        let checkpoints =
            client.gc_folders(JobFolders::Checkpoints, args.older_than, folder_gc(args.checkpoints)).await?;
        if !args.json {
            say_forgotten(JobFolders::Checkpoints, checkpoints, args.checkpoints, args.older_than);
        }
        let snapshots =
            client.gc_folders(JobFolders::Snapshots, args.older_than, folder_gc(args.snapshots)).await?;
        if !args.json {
            say_forgotten(JobFolders::Snapshots, snapshots, args.snapshots, args.older_than);
            return Ok(());
        }
        print_json(&Removed {
            uploads,
            forgotten_checkpoints: checkpoints.folders,
            forgotten_checkpoint_bytes: checkpoints.bytes,
            forgotten_snapshots: snapshots.folders,
            forgotten_snapshot_bytes: snapshots.bytes,
        })
    })
}

fn folder_gc(removes: bool) -> FolderGc {
    if removes { FolderGc::Remove } else { FolderGc::Count }
}

fn say_forgotten(what: JobFolders, Forgotten { folders, bytes }: Forgotten, removed: bool, age: Duration) {
    let name = what.dir_name();
    let found = format!(
        "{name} in {}, {:.1} MB, of jobs that the cluster does not know, and older than {}",
        count(folders, "folder"),
        bytes as f64 / 1e6,
        humantime::format_duration(age)
    );
    match (folders, removed) {
        (0, false) => {}
        (_, true) => say(&format!("removed {found}")),
        (_, false) => say(&format!("kept {found}; --{name} removes them, too")),
    }
}
