//! `syncline bench`: how long parts of Syncline take on this machine, without a cluster.

mod cluster;
mod functions;
mod general_tasks;
mod plan;
mod redis_speed;
mod values;

pub(crate) use functions::{BenchWorkerArgs, run_worker};

use crate::cli::{Failure, log_as_command};

#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Time of one plan for workers as in the papers: 1.0 to 1.5 s per iteration
    Plan(plan::PlanArgs),
    /// General tasks that do nothing per second, through Redis, an engine and two workers of their own
    Tasks(general_tasks::TasksArgs),
    /// Time from one general task to the next that needs its value
    Chain(general_tasks::ChainArgs),
    /// Time of a graph that fans out from one general task and comes together in another
    Fan(general_tasks::FanArgs),
    /// Large values per second from one general task to the next, on the same worker and on another
    Values(values::ValuesArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    log_as_command();
    match &args.part {
        Part::Plan(args) => plan::run(args),
        Part::Tasks(args) => general_tasks::tasks(args),
        Part::Chain(args) => general_tasks::chain(args),
        Part::Fan(args) => general_tasks::fan(args),
        Part::Values(args) => values::values(args),
    }
}
