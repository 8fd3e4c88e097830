//! `syncline pause` and `syncline resume`: nothing more of jobs for now.

use syncline_scheduler::{core::JobPhase, ids::JobId};
use syncline_workers::client::Client;

use super::several::SeveralJobs;
use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command};

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    jobs: SeveralJobs,
    #[command(flatten)]
    connection: ConnectionArgs,
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
        let set = async |job: &JobId| {
            let before = client.status(job).await?.job.state;
            match paused {
                true => client.pause(job).await?,
                false => client.resume(job).await?,
            }
            let words = match (paused, before) {
                (true, JobPhase::Paused) => "was paused already".to_owned(),
                (true, _) => "is paused; what workers have already goes on".to_owned(),
                (false, JobPhase::Paused) => "goes on".to_owned(),
                (false, before) => format!("was not paused: it is {}", before.word()),
            };
            args.jobs.tell(job, if paused { "paused" } else { "resumed" }, &words)
        };
        args.jobs.each(set).await
    })
}
