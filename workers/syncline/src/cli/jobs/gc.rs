//! `syncline gc`: removes what no job needs any more from the parameter servers' disks.

use std::time::Duration;

use serde::Serialize;
use syncline_rpc::{Collected, Forgotten};
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, TimeUnit, block_on, log_as_command, print_json, say, time};

#[derive(Debug, clap::Args)]
pub struct GcArgs {
    /// Spare what was uploaded or asked for within this time: a submission uploads first; a number alone is seconds
    #[arg(long, alias = "older-than-s", value_name = "TIME", default_value = "1h", value_parser = time(TimeUnit::Seconds))]
    older_than: Duration,
    /// Also remove the checkpoints of jobs that the cluster does not know any more. Those of jobs that Redis has lost are among them
    #[arg(long)]
    checkpoints: bool,
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
}

pub(crate) fn run(args: &GcArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let client = Client::connect(&cluster).await?.0;
        let uploads = client.gc(args.older_than).await?;
        if !args.json {
            let megabytes = uploads.bytes as f64 / 1e6;
            say(&format!("removed {} blobs, {megabytes:.1} MB, that no job names", uploads.blobs));
        }
        let forgotten = client.gc_checkpoints(args.older_than, args.checkpoints).await?;
        if args.json {
            return print_json(&Removed {
                uploads,
                forgotten_checkpoints: forgotten.folders,
                forgotten_checkpoint_bytes: forgotten.bytes,
            });
        }
        say_forgotten(forgotten, args);
        Ok(())
    })
}

fn say_forgotten(Forgotten { folders, bytes }: Forgotten, args: &GcArgs) {
    let what = format!(
        "checkpoints in {folders} folders, {:.1} MB, of jobs that the cluster does not know, and older than {} s",
        bytes as f64 / 1e6,
        args.older_than.as_secs()
    );
    match (folders, args.checkpoints) {
        (0, false) => {}
        (_, true) => say(&format!("removed {what}")),
        (_, false) => say(&format!("kept {what}; --checkpoints removes them, too")),
    }
}
