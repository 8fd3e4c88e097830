//! `syncline delete`: forgets a job that is over, so that its id is free again.

use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command, print_json, say};

#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DeleteArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async { Ok(Client::connect(&cluster).await?.0.delete(&args.job).await?) })?;
    if args.json {
        return print_json(&serde_json::json!({ "id": args.job, "state": "deleted" }));
    }
    say(&format!("job {} is deleted; snapshot files that it wrote stay where they are", args.job));
    Ok(())
}
