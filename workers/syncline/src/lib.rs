//! Distributed training for machines that are not all alike.
//!
//! By default this crate is a client: a job graph is built, submitted to a running cluster, followed, and what it learned is
//! fetched. It needs neither Redis nor ONNX Runtime, and takes training graphs that are ready. Features:
//!
//! | feature | what it adds |
//! |---|---|
//! | `job-file` | [`JobFile`]: job graphs from TOML files |
//! | `train` | training graphs are derived from forward models at submission, with ONNX Runtime |
//! | `worker` | a worker in this process: [`worker`] |
//! | `local` | a whole cluster in this process, [`LocalCluster`], and the two above |
//! | `cli` | the binary `syncline`, and all of these |
//!
//! A job from beginning to end, on the cluster that `syncline up` has started:
//!
//! ```no_run
//! # #[cfg(feature = "train")]
//! # async fn example() -> Result<(), syncline::Error> {
//! use syncline::{Client, DataSpec, JobGraph, Loss, Model, Source, Split, Training};
//!
//! let data = DataSpec { split: Split::TestEvery(5), ..DataSpec::new(Source::csv("digits.csv.gz")) };
//! let model = Model::forward(std::path::Path::new("digits.onnx"), Loss::SoftmaxCrossEntropy);
//! let training = Training::new(model, data).with(|s| s.epochs = 40);
//!
//! let mut job = JobGraph::new("digits");
//! let train = job.train("train", training);
//! job.evaluate("test", &train);
//! job.snapshot("weights", &train);
//!
//! let client = Client::find()?;
//! let id = client.submit(&job).await?.id;
//! let done = client.wait(&id, |view| println!("loss {:?}", view.job.loss)).await?;
//! println!("accuracy {:?}", done.job.test_accuracy);
//! client.weights(&id).await?.save("digits.safetensors")?;
//! # Ok(())
//! # }
//! ```

mod error;

pub use error::Error;
pub use syncline_autodiff::{Loss, LossOptions, Precision};
pub use syncline_onnx::ElementType;
pub use syncline_ps::PsError;
pub use syncline_rpc::{
    CallError, Collected, EngineAddresses, EngineFault, InactiveReason, InvalidAddress, InvalidToken,
    StreamCursor, Token,
    status::{
        EngineStatus, Entry, EvaluationPoint, EventKind, JobEvent, JobPhase, JobStatus, JobView, LiveWorker,
        MemberState, MemberStatus, MetricsPoint, TaskCounts, UnknownFields,
    },
};
#[cfg(feature = "worker")]
pub use syncline_runtime::Device;
pub use syncline_scheduler::{
    core::{BarrierExplanation, Evaluation, TaskExplanation, Trained},
    graph::TaskId,
    ids::{Incarnation, InvalidName, JobId, Name, NodeName, Superstep},
    predict::PredictorSpec,
    spec::{
        AxisOrder, BalanceOptions, BalanceRule, CheckpointSpec, Compression, DataSpec, Decay, DsspReading,
        EarlyStopping, ElasticOptions, EvaluateSpec, InvalidPolicy, JobSpec, LearningRate, Monitor, OnNan,
        Optimizer, PolicyRule, PolicySpec, PullCompression, Source, Split,
    },
    sync::search::{Algorithm, Slack},
    tasks::{PreparedTraining, TaskIndex, TaskQuery, TaskState, TaskView, TrainedWeights, TrainingChanges},
};
#[cfg(feature = "local")]
pub use syncline_workers::local::{LocalCluster, LocalError, LocalOptions};
#[cfg(feature = "job-file")]
pub use syncline_workers::submit::JobFile;
pub use syncline_workers::{
    client::{
        Cancellation, Client, ClientError, Cluster, EventStream, FetchError, FindError, JobNews, Parameter,
        Patience, SavedCheckpoint, Submitted, TaskError, Weights,
    },
    export::{ExportError, TrainedModel},
    functions::{
        ArgumentError, CallOptions, Element, Function, InvalidCall, OnnxModel, RUN_MODEL, TaskGraph,
        TaskHandle, Tensor, TensorError,
    },
    submit::{
        ByteSource, GraphNode, JobGraph, Model, NodeHandle, NodeWork, ParamList, PreparedJob, Settings,
        SubmitError, Training, prepare_ready,
    },
};
#[cfg(feature = "train")]
pub use syncline_workers::{
    isolation::{ModelHost, serve_if_asked},
    submit::prepare,
};

/// A worker in this process: one for general tasks, with [`Worker::builder`](worker::Worker::builder), or one that trains:
///
/// ```no_run
/// # async fn example() -> Result<(), syncline::Error> {
/// use syncline::{Cluster, Device, worker::{self, WorkerOptions}};
///
/// let runtime = worker::load_runtime(Device::Cpu, &|line| eprintln!("{line}"))?;
/// let (stop, stopped) = tokio::sync::watch::channel(false);
/// tokio::spawn(async move {
///     tokio::signal::ctrl_c().await.ok();
///     stop.send_replace(true);
/// });
/// worker::run(WorkerOptions::new(Cluster::find()?, runtime), stopped).await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "worker")]
pub mod worker {
    pub use syncline_ps::transport::{Transport, TransportChoice, UnknownTransport};
    pub use syncline_runtime::{ExecOptions, Runtime};
    pub use syncline_workers::{
        functions::{AsyncTaskFunction, Context, IntoNext, Next, RegisteredTwice, Registry, TaskFunction},
        worker::{Throttle, Worker, WorkerBuilder, WorkerError, WorkerOptions, load_runtime, run},
    };
}

#[cfg(all(doctest, feature = "local"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "worker"))]
#[doc = include_str!("../../../docs/tasks.md")]
struct TasksGuide;

#[cfg(test)]
mod tests {
    use super::*;

    /// Its fields are for programs that know this crate alone.
    #[test]
    fn settings_can_be_written_with_what_this_crate_exports() {
        let (algorithm, early) = (Algorithm::HeapMerge, Slack::default());
        let elastic = ElasticOptions { algorithm, early, ..ElasticOptions::default() };
        let policy = PolicySpec { rule: PolicyRule::ElasticBsp(elastic), predictor: PredictorSpec::Last };
        let change = |s: &mut Settings| {
            (s.policy, s.pull_compression) = (policy, PullCompression::Bf16);
            (s.learning_rate, s.decay) = (Some(0.1), Decay::Steps(vec![(0.5, 0.1)]));
            s.checkpoint = Some(CheckpointSpec::every_epochs(1).keep(5));
            s.evaluate = Some(EvaluateSpec::every_s(60));
        };
        let mut settings = Settings::default();
        change(&mut settings);
        assert_ne!(settings, Settings::default());
    }
}
