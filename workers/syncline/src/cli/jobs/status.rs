//! `syncline status`: one job with its workers.

use syncline_scheduler::ids::JobId;

use super::source::{Source, SourceArgs};
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
        if args.json {
            return print_json(&view);
        }
        let told = describe::job(&view, source.now_ms());
        let Source::Engine { redis, .. } = &source else { return print(&told) };
        // A command without the password would not run.
        let Some(redis_cli) = args.source.connection.redis_cli(redis) else { return print(&told) };
        let look = describe::redis_commands(&view.job, &redis_cli);
        print(&format!("{told}\n\nlook at it with\n{look}"))
    })
}
