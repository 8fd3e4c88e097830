//! `syncline delete`: forgets jobs that are over, so that their ids are free again.

use syncline_rpc::status::JobPhase;
use syncline_workers::client::Client;

use super::several::SeveralJobs;
use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command};

#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    jobs: SeveralJobs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) fn run(args: &DeleteArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let delete = async |job: &_| {
            // What is asked before is for the words alone: whether the job is there, the deletion says.
            let status = if args.jobs.json { None } else { client.status(job).await.ok() };
            let wrote = match status.map(|view| view.job) {
                Some(job) if job.state == JobPhase::Damaged => Some("snapshot files, if it wrote any,"),
                Some(job) if job.snapshot.is_some() => Some("snapshot files that it wrote"),
                _ => None,
            };
            client.delete(job).await?;
            let stays = wrote.map(|files| format!("; {files} stay where they are")).unwrap_or_default();
            args.jobs.tell(job, "deleted", &format!("is deleted{stays}"))
        };
        args.jobs.each(delete).await
    })
}
