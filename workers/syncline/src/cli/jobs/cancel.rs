//! `syncline cancel`: ends a job, and waits until it is over.

use std::time::Duration;

use syncline_rpc::status::JobPhase;
use syncline_scheduler::ids::JobId;
use syncline_workers::client::{Cancellation, Client, ClientError};

use crate::cli::{ConnectionArgs, Failure, TimeUnit, block_on, log_as_command, print_json, say, time};

#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// Id of the job
    job: JobId,
    /// Why, for people: `status`, `events` and whoever waits for the job show it
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// How long functions that run may take to end by themselves, 0: nobody waits for them; a number alone is seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time(TimeUnit::Seconds))]
    grace: Duration,
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
        let how = Cancellation::new().reason(&args.reason).grace(args.grace);
        client.cancel_with(&args.job, &how).await?;
        match client.wait(&args.job, |_| ()).await {
            Ok(_) | Err(ClientError::JobCanceled { .. } | ClientError::JobFailed { .. }) => Ok(damaged),
            Err(error) => Err(error.into()),
        }
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
