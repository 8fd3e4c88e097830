//! Distributed training for machines that are not all alike.
//!
//! By default this crate is a client: a job graph is built, submitted to a running cluster, followed, and
//! what it learned is fetched. It needs neither Redis nor ONNX Runtime, and takes training graphs that are
//! ready. Features:
//!
//! | feature | what it adds |
//! |---|---|
//! | `job-file` | `JobFile`: job graphs from TOML files |
//! | `train` | training graphs are derived from forward models at submission, with ONNX Runtime |
//! | `worker` | a worker in this process: module `worker` |
//! | `local` | a whole cluster in this process, `LocalCluster`, and the two above |
//! | `cli` | the binary `syncline`, and all of these |
//!
//! A job from beginning to end, on the cluster that `syncline up` has started:
//!
//! ```no_run
//! # #[cfg(feature = "train")]
//! # async fn example() -> Result<(), syncline::Error> {
//! use syncline::{Client, DataSpec, JobGraph, Loss, Metric, Model, Source, Split, Training};
//!
//! let data = DataSpec::new(Source::csv("digits.csv.gz")).with(|d| d.split = Split::TestEvery(5));
//! let model = Model::forward("digits.onnx", Loss::SoftmaxCrossEntropy);
//! let training = Training::new(model, data).with(|s| s.epochs = 40);
//!
//! let job = JobGraph::of_training("digits", training);
//!
//! let client = Client::find()?;
//! let id = client.submit(&job).await?.id;
//! let done = client.wait(&id, |view| println!("loss {:?}", view.job.loss)).await?;
//! println!("accuracy {:?}", done.job.test[Metric::Accuracy]);
//! client.weights(&id).await?.save("digits.safetensors")?;
//! # Ok(())
//! # }
//! ```

mod error;

pub use error::{Coded, Error};
pub use syncline_autodiff::{AutodiffError, ClassWeights, EvalMode, Loss, LossOptions, Precision};
#[cfg(feature = "local")]
pub use syncline_engine::{service::EngineError, store::StoreError};
#[cfg(any(feature = "train", feature = "worker"))]
pub use syncline_kit::{Device, Digest, InvalidDevice, KitError, Part};
pub use syncline_onnx::{CompileError, ElementType, OnnxError};
pub use syncline_ps::{PsError, wire::WireError};
pub use syncline_rpc::{
    CallError, Collected, EngineAddresses, EngineFault, Forgotten, InactiveReason, InvalidAddress,
    InvalidCursor, InvalidToken, JobFolders, LoadedJobs, ShardFault, ShardPosition, StreamCursor, Token,
    hello::HelloError,
    status::{
        EngineStatus, Entry, EvaluationPoint, EventKind, Figures, JobEvent, JobList, JobPhase, JobStatus,
        JobView, LiveWorker, MemberState, MemberStatus, MetricsPoint, TaskCounts, UnknownFields,
    },
};
#[cfg(any(feature = "train", feature = "worker"))]
pub use syncline_runtime::BackendError;
pub use syncline_scheduler::{
    core::{
        BarrierExplanation, Evaluation, EvaluationSet, StragglerExplanation, TaskExplanation, TaskFault,
        Trained, WorkerExplanation,
    },
    fault_code::{FaultCode, InvalidFaultCode},
    graph::{InvalidTaskId, TaskId},
    ids::{
        ContentDigest, EngineEpoch, Generation, Incarnation, InvalidContentDigest, InvalidName, JobId, Name,
        NodeName, ShardIndex, Superstep,
    },
    predict::{InvalidPredictor, PredictorSpec},
    spec::{
        Augment, AxisOrder, BalanceOptions, BalanceRule, ChannelAxis, CheckpointSpec, Compression, CsvSource,
        DataSpec, Decay, DsspReading, EarlyStopping, ElasticOptions, EvaluateSpec, Files, InvalidJob,
        InvalidOptimizer, InvalidPolicy, JobSpec, LearningRate, Metric, Normalization, OnNan, Optimizer,
        PolicyRule, PolicySpec, PullCompression, ReduceOnPlateau, Separator, SettingList, Source, Split,
        TrainSpec, ValidJob,
    },
    sync::{
        Why,
        search::{Algorithm, Alternative, InvalidAlgorithm, InvalidSlack, Slack},
    },
    tasks::{
        FunctionId, InvalidState, InvalidTraining, PreparedTraining, Preview, Progress, TaskFailure,
        TaskIndex, TaskQuery, TaskState, TaskView, TrainedWeights, TrainingChanges,
    },
};
#[cfg(feature = "local")]
pub use syncline_workers::local::{LocalCluster, LocalError, LocalOptions};
#[cfg(feature = "job-file")]
pub use syncline_workers::submit::{FieldChange, JobFile};
#[cfg(feature = "train")]
pub use syncline_workers::{
    check::CheckError,
    isolation::{ChildError, ModelError, ModelHost, NamedModel, serve_if_asked},
    submit::{JobVariants, prepare},
};
pub use syncline_workers::{
    client::{
        AsCompleted, Cancellation, Client, ClientError, Cluster, Completed, EventStream, FetchError,
        FindError, GraphRun, JobNews, Parameter, Patience, SavedCheckpoint, Submitted, TaskError, TrainedJob,
        Weights,
    },
    data::{
        DataError, FileError, FitError, FormatError, LabelColumn, Remedy, SettingError, TableError,
        ValueError,
    },
    export::{ExportError, TrainedModel},
    functions::{
        ArgumentError, CallArguments, CallOptions, Element, Function, IntoArgument, InvalidCall, OnnxModel,
        OutcomeHandle, RUN_MODEL, TaskGraph, TaskHandle, Tensor, TensorError,
    },
    submit::{
        ByteSource, DataParts, FirstValues, GraphNode, JobGraph, MissingKernel, Model, NodeHandle, NodeWork,
        ParamList, ParameterGroup, PreparedJob, Settings, SubmitError, Training, prepare_ready,
    },
};

/// What a [`JobSpec`] is made of, as the engine has it: what a job graph has become.
pub mod spec {
    pub use syncline_scheduler::samples::SamplePosition;
    pub use syncline_scheduler::spec::{
        DataElement, DataInput, ElementRange, EvaluationsBefore, Layout, ModelSpec, Node, NodeKind,
        Parameter, ParameterKind, ReducedRate, ResumeSpec, Setting, StepGroup, StepRun, StepSettings,
        SubmittedSettings,
    };
}

/// A trained model on samples, in this process:
///
/// ```no_run
/// # async fn example() -> Result<(), syncline::Error> {
/// use syncline::{Client, Device, worker, predict::{PredictError, Predictor, PredictOptions, Samples}};
///
/// let job = Client::find()?.trained_job(&"digits".parse()?).await?;
/// let runtime = worker::load_runtime(Device::Cpu, &|line| eprintln!("{line}"))?;
/// let options = PredictOptions::for_job(&job, Samples::Test, 256);
/// let figures = Predictor::open(&runtime, &job, &options)?.run(|batch| {
///     println!("{:?}", batch.predicted);
///     Ok::<_, PredictError>(())
/// })?;
/// println!("{:?}", figures.evaluation);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "worker")]
pub mod predict {
    pub use syncline_scheduler::core::Evaluation;
    pub use syncline_workers::predict::*;
}

/// A worker in this process: one for general tasks, with [`Worker::builder`](worker::Worker::builder), or one
/// that trains:
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
    pub use syncline_runtime::{ExecOptions, Optimize, Runtime};
    pub use syncline_workers::{
        functions::{
            AsyncTaskFunction, Context, FunctionError, IntoNext, Next, RegisteredTwice, Registry,
            TaskFunction, with_causes,
        },
        worker::{Throttle, Worker, WorkerBuilder, WorkerError, WorkerOptions, load_runtime, run},
    };
}

/// Small models without a framework: a forward model is built node by node, and its bytes are those of a
/// `.onnx` file.
///
/// ```
/// use syncline::{ElementType, onnx::GraphBuilder};
///
/// let mut graph = GraphBuilder::new("line");
/// let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into()]);
/// let weight = graph.weight("weight", &[1, 1], &[0.5]);
/// let y = graph.op("MatMul", &[&x, &weight], &[]);
/// graph.output(&y);
/// let model: Vec<u8> = graph.finish().to_bytes();
/// ```
pub mod onnx {
    pub use syncline_onnx::{
        Dim, GraphBuilder, ModelProto, SplitMix64, TensorView, attr_float, attr_int, attr_ints, attr_string,
        mlp, proto,
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

    #[test]
    fn what_a_client_gives_and_takes_can_be_named_with_what_this_crate_exports() {
        fn learned(job: TrainedJob) -> (TrainSpec, SettingList) {
            (job.train, job.settings)
        }
        fn nodes(job: JobSpec) -> (Vec<spec::Node>, Result<ValidJob, InvalidJob>) {
            (job.nodes.clone(), job.validated())
        }
        fn add<I, O, A: CallArguments<I>>(graph: &mut TaskGraph, of: Function<I, O>, args: A) -> FunctionId {
            graph.call(of, args);
            of.id()
        }
        let explained = |it: BarrierExplanation| -> (Why, Vec<WorkerExplanation>) { (it.why, it.workers) };
        let _ = (learned, nodes, add::<(u64,), u64, (u64,)>, explained);
        let data: DataSpec =
            CsvSource::new(Files::of(["a.csv", "b.csv"])).separator(Separator::Semicolon).into();
        assert_eq!(data.source.paths(), ["a.csv", "b.csv"]);
    }
}
