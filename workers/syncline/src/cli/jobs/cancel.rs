//! `syncline cancel`: ends a job.

use syncline_engine::status::JobPhase;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::Client;

use crate::cli::{ConnectionArgs, Failure, block_on, log_as_command, print_json, say};

#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CancelArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    let damaged = block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        // Nothing of it can be kept: canceling removes it.
        let damaged = client.status(&args.job).await.is_ok_and(|view| view.job.state == JobPhase::Damaged);
        client.cancel(&args.job).await?;
        Ok(damaged)
    })?;
    let (state, words) = match damaged {
        true => ("deleted", "was damaged and is removed"),
        false => ("canceled", "is canceled"),
    };
    if args.json {
        return print_json(&serde_json::json!({ "id": args.job, "state": state }));
    }
    say(&format!("job {} {words}", args.job));
    Ok(())
}
