//! `syncline cancel`: ends jobs, and waits until they are over.

use std::time::Duration;

use syncline_rpc::status::JobPhase;
use syncline_scheduler::ids::{JobId, JobRef};
use syncline_workers::client::{Cancellation, Client, ClientError};

use super::{several::SeveralJobs, task_name::TaskName};
use crate::cli::{ConnectionArgs, Failure, TimeUnit, block_on, log_as_command, time};

#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    #[command(flatten)]
    jobs: SeveralJobs,
    /// Only this task, by its number or its name, of a graph that goes on: it fails and is not tried again
    #[arg(long, value_name = "TASK")]
    task: Option<TaskName>,
    /// Why, for people: `status`, `events` and whoever waits for the job show it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// How long functions that run may take to end by themselves, at most a year, 0: nobody waits for them;
    /// a number alone is seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = grace)]
    grace: Duration,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Pause between two looks at a task that is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The longest `--grace`: the moment until then stays one that can be written down.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn grace(text: &str) -> Result<Duration, String> {
    let grace = time(TimeUnit::Seconds)(text)?;
    if grace > LONGEST_GRACE {
        return Err("expected at most a year, 365d".to_owned());
    }
    Ok(grace)
}

pub(crate) fn run(args: &CancelArgs) -> Result<(), Failure> {
    log_as_command();
    let cluster = args.connection.find()?;
    block_on(async {
        let (client, _) = Client::connect(&cluster).await?;
        let how = Cancellation::new().reason(&args.reason).grace(args.grace);
        if let Some(task) = &args.task {
            return args.jobs.each(async |job| cancel_task(args, &client, job, task, &how).await).await;
        }
        // All of them end side by side.
        let mut ending = Vec::new();
        let cancel = async |job: &JobId| {
            let there = client.status(job).await?.job;
            client.cancel_job(&there.job_ref(), &how).await?;
            // Nothing of it can be kept: canceling removes it.
            ending.push((there.job_ref(), there.state == JobPhase::Damaged));
            Ok(())
        };
        let canceled = args.jobs.each(cancel).await;
        let wait = async |(job, damaged): &(JobRef, bool)| {
            match client.wait_for(job, None, |_| ()).await {
                Ok(_) | Err(ClientError::JobCanceled { .. } | ClientError::JobFailed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            match damaged {
                true => args.jobs.tell(&job.id, "deleted", "was damaged and is removed"),
                false => args.jobs.tell(&job.id, "canceled", "is canceled"),
            }
        };
        match (canceled, args.jobs.each_of(&ending, wait).await) {
            (Err(refused), Err(failure)) => {
                args.jobs.tell_refusal(&refused);
                Err(failure)
            }
            (canceled, waited) => canceled.and(waited),
        }
    })
}

/// Cancels one task of a job, and waits until it is over.
async fn cancel_task(
    args: &CancelArgs,
    client: &Client,
    job: &JobId,
    task: &TaskName,
    how: &Cancellation,
) -> Result<(), Failure> {
    let there = client.status(job).await?.job.job_ref();
    let index = match task {
        TaskName::Number(index) => *index,
        TaskName::Name(name) => client.task_named(job, name).await?.task,
    };
    client.cancel_task_of(&there, index, how).await?;
    loop {
        let view = client.task_of(&there, index).await?;
        // It has ended itself, and gives what another one would have given.
        if view.state.is_final() {
            return args.jobs.tell_task(job, &view);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_at_most_a_year_table() {
        for (text, want) in
            [("0", true), ("10s", true), ("365d", true), ("366d", false), ("999999999999", false)]
        {
            assert_eq!(grace(text).is_ok(), want, "{text}");
        }
    }
}
