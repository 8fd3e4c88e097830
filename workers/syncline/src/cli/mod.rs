//! The subcommands of `syncline`.
//!
//! Data goes to stdout, talk to stderr. Exit codes are a contract, see [`Exit`]; every error has a code and a
//! hint.

mod chaos;
mod completions;
mod dashboard;
mod doctor;
mod exported;
mod jobs;
mod models;
mod planning;
mod services;
mod support;

pub(crate) use support::*;

/// The subcommands, in the order in which a person meets them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Start a whole cluster on this machine and keep it running until Ctrl-C
    Up(services::up::UpArgs),
    /// Submit a job from a file
    Submit(jobs::submit::SubmitArgs),
    /// Train a job file with many settings, stop the bad ones early, and say which is best
    Sweep(Box<jobs::sweep::SweepArgs>),
    /// List the jobs
    Jobs(jobs::list::JobsArgs),
    /// Show one job with its workers
    Status(jobs::status::StatusArgs),
    /// Follow a job until it is over
    Watch(jobs::watch::WatchArgs),
    /// Show the loss curve of a training, or compare several; as a table, picture, CSV or for TensorBoard
    Metrics(jobs::metrics::MetricsArgs),
    /// Try a trained model on samples: loss, accuracy, figures of each class, and a CSV file of predictions
    Predict(jobs::predict::PredictArgs),
    /// Inspect, check, derive and export models
    #[command(subcommand)]
    Model(models::ModelCommand),
    /// Say why a task waits, or why there is a barrier
    Explain(jobs::explain::ExplainArgs),
    /// List what happened to a job, or follow it
    Events(jobs::events::EventsArgs),
    /// List the general tasks of a job, and say why each is where it is
    Tasks(jobs::tasks::TasksArgs),
    /// Show the cluster as a page in the browser, and as metrics for Prometheus
    Dashboard(dashboard::DashboardArgs),
    /// Pause jobs; their workers serve other jobs until `resume`
    Pause(jobs::pause::PauseArgs),
    /// Go on with jobs that were paused
    Resume(jobs::pause::PauseArgs),
    /// Cancel jobs
    Cancel(jobs::cancel::CancelArgs),
    /// Forget jobs that are over or damaged, so that their ids are free again
    Delete(jobs::delete::DeleteArgs),
    /// Write one file of a job, which `status`, `tasks`, `events`, `explain` and `metrics` read with --from,
    /// without a cluster
    Export(jobs::export::ExportArgs),
    /// Write a checkpoint of a training to a file, from which `submit --resume` goes on
    Checkpoint(jobs::checkpoint::CheckpointArgs),
    /// List the live workers, and what each computes on
    Workers(jobs::workers::WorkersArgs),
    /// Check this machine and the cluster
    Doctor(doctor::DoctorArgs),
    /// Remove uploaded models that no job names any more from the shards' disks
    Gc(jobs::gc::GcArgs),
    /// Try policies on a virtual clock; needs no cluster
    Simulate(Box<planning::simulate::SimulateArgs>),
    /// Find where workers would meet, from predicted or past times; needs no cluster
    Plan(planning::plan::PlanArgs),
    /// Measure parts of Syncline on this machine; needs no cluster
    Bench(planning::bench::BenchArgs),
    /// A worker for `bench`
    #[command(hide = true)]
    BenchWorker(planning::bench::BenchWorkerArgs),
    /// Kill and stop processes of a cluster of its own at random, and compare every result; needs no cluster
    Chaos(chaos::ChaosArgs),
    /// A worker for `chaos`
    #[command(hide = true)]
    ChaosWorker(chaos::ChaosWorkerArgs),
    /// Run one engine: it decides, remembers in Redis, and answers workers and clients
    Engine(services::engine::EngineArgs),
    /// Run one shard of the parameter server
    Ps(services::ps::PsArgs),
    /// Run one worker: it computes iterations on ONNX Runtime
    Worker(services::worker::WorkerArgs),
    /// Print what completes commands in a shell: source <(syncline completions bash)
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Runs to the end.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Up(args) => services::up::run(args),
            Self::Submit(args) => jobs::submit::run(&args),
            Self::Sweep(args) => jobs::sweep::run(&args),
            Self::Jobs(args) => jobs::list::run(&args),
            Self::Status(args) => jobs::status::run(&args),
            Self::Watch(args) => jobs::watch::run(&args),
            Self::Metrics(args) => jobs::metrics::run(&args),
            Self::Predict(args) => jobs::predict::run(&args),
            Self::Model(command) => models::run(&command),
            Self::Explain(args) => jobs::explain::run(&args),
            Self::Events(args) => jobs::events::run(&args),
            Self::Tasks(args) => jobs::tasks::run(&args),
            Self::Dashboard(args) => dashboard::run(&args),
            Self::Pause(args) => jobs::pause::pause(&args),
            Self::Resume(args) => jobs::pause::resume(&args),
            Self::Cancel(args) => jobs::cancel::run(&args),
            Self::Delete(args) => jobs::delete::run(&args),
            Self::Export(args) => jobs::export::run(&args),
            Self::Checkpoint(args) => jobs::checkpoint::run(&args),
            Self::Workers(args) => jobs::workers::run(&args),
            Self::Doctor(args) => doctor::run(&args),
            Self::Gc(args) => jobs::gc::run(&args),
            Self::Simulate(args) => planning::simulate::run(&args),
            Self::Plan(args) => planning::plan::run(&args),
            Self::Bench(args) => planning::bench::run(&args),
            Self::BenchWorker(args) => planning::bench::run_worker(args),
            Self::Chaos(args) => chaos::run(&args),
            Self::ChaosWorker(args) => chaos::run_worker(args),
            Self::Engine(args) => services::engine::run(args),
            Self::Ps(args) => services::ps::run(&args),
            Self::Worker(args) => services::worker::run(args),
            Self::Completions(args) => completions::run(&args),
        }
    }
}
