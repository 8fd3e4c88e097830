//! `syncline cancel`: ends a job.

use syncline_scheduler::ids::JobId;

use super::{Connection, Failure, block_on, log_as_command, print_json, say};

#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: Connection,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CancelArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async { Ok(cluster.meet().await?.0.cancel(&args.job).await?) })?;
    if args.json {
        return print_json(&serde_json::json!({ "id": args.job, "state": "canceled" }));
    }
    say(&format!("job {} is canceled", args.job));
    Ok(())
}
