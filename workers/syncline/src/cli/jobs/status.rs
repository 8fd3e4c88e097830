//! `syncline status`: one job with its workers.

use serde::Serialize;
use syncline_rpc::status::{JobStatus, JobView};
use syncline_scheduler::{
    ids::{JobId, Superstep},
    sync::Why,
};

use super::{
    explain_job::next_barrier,
    source::{Source, SourceArgs},
};
use crate::cli::{Failure, block_on, log_as_command, print, print_json, support::describe_job};

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Id of the job. With --from it may be left out
    #[arg(required_unless_present = "from")]
    job: Option<JobId>,
    #[command(flatten)]
    source: SourceArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    log_as_command();
    block_on(async {
        let (source, job) = args.source.open(args.job.as_ref()).await?;
        let view = source.status(&job).await?;
        let chosen = match open_barrier_of_auto(&view.job) {
            Some(barrier) => source.explain_barrier(&job, barrier).await.ok().map(|barrier| barrier.why),
            None => None,
        };
        if args.json {
            return print_json(&Status { view: &view, chosen });
        }
        let told = describe_job::job(&view, chosen.as_ref(), source.now_ms());
        let Source::Engine { redis, .. } = &source else { return print(&told) };
        // A command without the password would not run.
        let Some(redis_cli) = args.source.connection.redis_cli(redis) else { return print(&told) };
        let look = describe_job::redis_commands(&view.job, &redis_cli);
        print(&format!("{told}\n\nlook at it with\n{look}"))
    })
}

/// What `--json` prints, and the dashboard gives.
#[derive(Debug, Serialize)]
pub(crate) struct Status<'a> {
    #[serde(flatten)]
    pub(crate) view: &'a JobView,
    /// The rule that the policy `auto` has chosen for now; `None` for other policies, and before and after
    /// the training.
    pub(crate) chosen: Option<Why>,
}

/// The barrier whose reason says what `auto` has chosen for the superstep that is open. One that has closed
/// meanwhile may be forgotten already: the next look has another one.
pub(crate) fn open_barrier_of_auto(job: &JobStatus) -> Option<Superstep> {
    let is_auto = job.policy.starts_with("auto") && !job.is_over();
    is_auto.then(|| next_barrier(job.next_barrier.as_deref())).flatten()
}
