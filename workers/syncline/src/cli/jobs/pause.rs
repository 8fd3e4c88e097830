//! `syncline pause` and `syncline resume`: nothing more of a job for now.

use syncline_scheduler::{core::JobPhase, ids::JobId};
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
    let before = block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let before = client.status(&args.job).await?.job.state;
        match paused {
            true => client.pause(&args.job).await?,
            false => client.resume(&args.job).await?,
        }
        Ok(before)
    })?;
    let state = if paused { "paused" } else { "resumed" };
    if args.json {
        return print_json(&serde_json::json!({ "id": args.job, "state": state }));
    }
    let words = match (paused, before) {
        (true, JobPhase::Paused) => "was paused already".to_owned(),
        (true, _) => "is paused; what workers have already goes on".to_owned(),
        (false, JobPhase::Paused) => "goes on".to_owned(),
        (false, before) => format!("was not paused: it is {}", before.word()),
    };
    say(&format!("job {} {words}", args.job));
    Ok(())
}
