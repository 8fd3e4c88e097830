//! `syncline status`: one job with its workers.

use serde::Serialize;
use syncline_rpc::status::{JobStatus, JobView};
use syncline_scheduler::{ids::JobId, sync::Why};

use super::{
    explain_job::next_barrier,
    source::{Source, SourceArgs},
};
use crate::cli::{Failure, block_on, log_as_command, print, print_json, support::describe};

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Id of the job
    job: JobId,
    #[command(flatten)]
    source: SourceArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    log_as_command();
    block_on(async {
        let source = args.source.open(&args.job).await?;
        let view = source.status(&args.job).await?;
        let chosen = chosen(&source, &view.job).await;
        if args.json {
            return print_json(&Status { view: &view, chosen });
        }
        let told = describe::job(&view, chosen.as_ref(), source.now_ms());
        let Source::Engine { redis, .. } = &source else { return print(&told) };
        // A command without the password would not run.
        let Some(redis_cli) = args.source.connection.redis_cli(redis) else { return print(&told) };
        let look = describe::redis_commands(&view.job, &redis_cli);
        print(&format!("{told}\n\nlook at it with\n{look}"))
    })
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Status<'a> {
    #[serde(flatten)]
    view: &'a JobView,
    /// The rule that the policy `auto` has chosen for now; `None` for other policies, and before and after the training.
    chosen: Option<Why>,
}

/// What `auto` has chosen for the superstep that is open.
async fn chosen(source: &Source, job: &JobStatus) -> Option<Why> {
    if !job.policy.starts_with("auto") || job.is_over() {
        return None;
    }
    let barrier = next_barrier(job.next_barrier.as_deref())?;
    // One that has closed meanwhile may be forgotten already: the next look has another one.
    source.explain_barrier(&job.id, barrier).await.ok().map(|barrier| barrier.why)
}
