//! The subcommands of `syncline` that need neither tensors nor ONNX Runtime, and what all subcommands share: how they
//! find the cluster, stop, print, and fail.
//!
//! Data goes to stdout, talk to stderr. Exit codes are a contract, see [`Exit`]; every error has a code and a hint.

mod bench;
mod cancel;
mod cluster;
mod delete;
mod describe;
mod doctor;
mod engine;
mod error;
mod explain;
mod failure;
mod gc;
mod jobs;
mod logs;
mod output;
mod plan;
mod simulate;
mod state_files;
mod status;
mod stop;
mod up;
mod watch;
mod workers;

pub use cluster::{Cluster, Connection};
pub use error::CliError;
pub use failure::{Exit, Failure, finish, json_asked, refuse_usage};
pub use output::{print, print_json, say, table};
pub use state_files::{TokenArgs, check_open_bind};
pub use stop::{Stop, block_on, block_on_one_thread};
pub use watch::follow;

/// The subcommands of this crate; the binary flattens them into its own.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a whole cluster on this machine and keep it running until Ctrl-C
    Up(up::UpArgs),
    /// Run one engine: it decides, remembers in Redis, and answers workers and clients
    Engine(engine::EngineArgs),
    /// List the jobs
    Jobs(jobs::JobsArgs),
    /// List the live workers, and what each computes on
    Workers(workers::WorkersArgs),
    /// Show one job with its workers
    Status(status::StatusArgs),
    /// Follow a job until it is over
    Watch(watch::WatchArgs),
    /// Say why a task waits, or why there is a barrier
    Explain(explain::ExplainArgs),
    /// Cancel a job
    Cancel(cancel::CancelArgs),
    /// Forget a job that is over or damaged, so that its id is free again
    Delete(delete::DeleteArgs),
    /// Remove uploaded models that no job names any more from the shards' disks
    Gc(gc::GcArgs),
    /// Try policies on a virtual clock; needs no cluster
    Simulate(Box<simulate::SimulateArgs>),
    /// Find where workers would meet, from predicted or past times; needs no cluster
    Plan(plan::PlanArgs),
    /// Measure parts of Syncline on this machine; needs no cluster
    Bench(bench::BenchArgs),
    /// Check this machine and the cluster
    Doctor(doctor::DoctorArgs),
}

impl Command {
    /// Runs to the end.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Up(args) => up::run(args),
            Self::Engine(args) => engine::run(args),
            Self::Jobs(args) => jobs::run(&args),
            Self::Workers(args) => workers::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Watch(args) => watch::run(&args),
            Self::Explain(args) => explain::run(&args),
            Self::Cancel(args) => cancel::run(&args),
            Self::Delete(args) => delete::run(&args),
            Self::Gc(args) => gc::run(&args),
            Self::Simulate(args) => simulate::run(&args),
            Self::Plan(args) => plan::run(&args),
            Self::Bench(args) => bench::run(&args),
            Self::Doctor(args) => doctor::run(&args),
        }
    }
}

/// Starts logging of a process that serves others, at level `info`.
pub fn log_as_service() {
    // tarpc opens a span for every call.
    logs::start("info,tarpc=warn");
}

/// Starts logging of a command that a person typed: only what went wrong.
pub fn log_as_command() {
    logs::start("warn");
}
