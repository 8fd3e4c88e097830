//! `syncline bench`: how long parts of Syncline take on this machine. What they need they start themselves.

mod cluster;
mod compression;
mod device;
mod functions;
mod general_tasks;
mod graph;
mod lean;
mod model;
mod others;
mod plan;
mod push;
mod redis_speed;
mod rows;
mod scaling;
mod scratch;
mod slow_link;
mod step;
mod tensor_path;
mod training_step;
mod values;

pub(crate) use functions::{BenchWorkerArgs, run_worker};

use self::others::Used;
use crate::cli::{Failure, log_as_command, say};

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
    /// Memory of a large graph while it waits, and how fast it runs then
    Graph(graph::GraphArgs),
    /// Large values per second from one general task to the next, on the same worker and on another
    Values(values::ValuesArgs),
    /// Speed at which gradients reach the parameters, beside the leanest loop that does the same
    Push(push::PushArgs),
    /// Time of a push over a slow link, in each way in which a gradient may travel
    Compression(compression::CompressionArgs),
    /// Time of a step on a large table of which only the rows of a batch travel, beside one that travels
    /// whole
    Rows(rows::RowsArgs),
    /// Time of one training step, beside the bare loop of ONNX Runtime and the leanest loop over TCP
    Step(step::StepArgs),
    /// Samples per second of all workers under each policy, beside that of bare loops that run at the same
    /// time
    Scaling(scaling::ScalingArgs),
    /// Samples per second of one worker on a GPU or CPU under each policy, beside the bare loop with
    /// everything on the device
    Device(device::DeviceArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    log_as_command();
    if cfg!(debug_assertions) {
        say(
            "warning: this program is not optimized, and its figures mean little: build it with `cargo build --release`",
        );
    }
    let _scratch = scratch::scratch_folder()?;
    let begin = Used::now();
    run_part(&args.part)?;
    if let Some(warning) = begin.zip(Used::now()).and_then(|(begin, end)| begin.warning(end)) {
        say(&warning);
    }
    Ok(())
}

fn run_part(part: &Part) -> Result<(), Failure> {
    match part {
        Part::Plan(args) => plan::run(args),
        Part::Tasks(args) => general_tasks::tasks(args),
        Part::Chain(args) => general_tasks::chain(args),
        Part::Fan(args) => general_tasks::fan(args),
        Part::Graph(args) => graph::graph(args),
        Part::Values(args) => values::values(args),
        Part::Push(args) => push::push(args),
        Part::Compression(args) => compression::compression(args),
        Part::Rows(args) => rows::rows(args),
        Part::Step(args) => step::step(args),
        Part::Scaling(args) => scaling::scaling(args),
        Part::Device(args) => device::device(args),
    }
}

/// The one in the middle; of an even number the mean of two.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}
