//! `syncline gc`: removes what no job needs any more from the parameter servers' disks.

use std::time::Duration;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command, number, print_json, say};

#[derive(Debug, clap::Args)]
pub struct GcArgs {
    /// Spare what was uploaded or asked for within this time: a submission uploads first
    #[arg(long, value_name = "S", default_value_t = 3_600, value_parser = number::<u64>("whole seconds, such as 3600 for an hour"))]
    older_than_s: u64,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GcArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let older_than = Duration::from_secs(args.older_than_s);
    let removed = block_on(async { Ok(Client::connect(&cluster).await?.0.gc(older_than).await?) })?;
    if args.json {
        return print_json(&removed);
    }
    say(&format!("removed {} blobs, {:.1} MB, that no job names", removed.blobs, removed.bytes as f64 / 1e6));
    Ok(())
}
