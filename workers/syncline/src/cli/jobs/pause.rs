//! `syncline pause` and `syncline resume`: nothing more of a job for now.

use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command, print_json, say};

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn pause(args: &PauseArgs) -> Result<(), Failure> {
    set(args, true)
}

pub(crate) fn resume(args: &PauseArgs) -> Result<(), Failure> {
    set(args, false)
}

fn set(args: &PauseArgs, paused: bool) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        match paused {
            true => client.pause(&args.job).await?,
            false => client.resume(&args.job).await?,
        }
        Ok(())
    })?;
    let (state, words) = match paused {
        true => ("paused", "is paused; what workers have already goes on"),
        false => ("resumed", "goes on"),
    };
    if args.json {
        return print_json(&serde_json::json!({ "id": args.job, "state": state }));
    }
    say(&format!("job {} {words}", args.job));
    Ok(())
}
