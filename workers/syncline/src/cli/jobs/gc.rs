//! `syncline gc`: removes what no job needs any more from the parameter servers' disks.

use std::time::Duration;

use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, TimeUnit, block_on, log_as_command, print_json, say, time};

#[derive(Debug, clap::Args)]
pub struct GcArgs {
    /// Spare what was uploaded or asked for within this time: a submission uploads first; a number alone is seconds
    #[arg(long, alias = "older-than-s", value_name = "TIME", default_value = "1h", value_parser = time(TimeUnit::Seconds))]
    older_than: Duration,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GcArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let removed = block_on(async { Ok(Client::connect(&cluster).await?.0.gc(args.older_than).await?) })?;
    if args.json {
        return print_json(&removed);
    }
    say(&format!("removed {} blobs, {:.1} MB, that no job names", removed.blobs, removed.bytes as f64 / 1e6));
    Ok(())
}
