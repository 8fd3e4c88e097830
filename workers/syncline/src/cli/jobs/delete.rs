//! `syncline delete`: forgets jobs that are over, so that their ids are free again.

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
            client.delete(job).await?;
            args.jobs.tell(job, "deleted", "is deleted; snapshot files that it wrote stay where they are")
        };
        args.jobs.each(delete).await
    })
}
