//! What a function knows of the task that it runs for.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    ArgumentError, CallArguments, CallOptions, Function, GraphParts, IntoArgument, OwnCluster, ProgressCell,
    StopFlag, TaskGraph, TaskHandle,
};
use crate::client::{Client, GraphRun, TaskError};
use syncline_rpc::threads::lock;
use syncline_scheduler::{
    core::Trained,
    ids::{JobId, SubmissionId},
    tasks::{PreparedTraining, TaskIndex, TaskOrder, TrainingChanges},
};

/// The task that a function runs for, and its graph, to which it may add calls. A function takes a `&Context`
/// as its first parameter if it needs one:
///
/// ```
/// # use syncline_workers::functions::{ArgumentError, Context, Function, Next};
/// const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");
/// const SQUARE: Function<(u64,), u64> = Function::new("square");
///
/// fn sum_of_squares(context: &Context, upto: u64) -> Result<Next<u64>, ArgumentError> {
///     let squares = context.map(SQUARE, (1..=upto).map(|i| (i,)))?;
///     Ok(Next::Of(context.call(SUM, (&squares,))?))
/// }
/// ```
pub struct Context {
    submission: Arc<SubmissionId>,
    task: TaskIndex,
    attempt: u16,
    /// People may look at what the task gives.
    pub(super) is_shown: bool,
    pub(crate) stop: Arc<StopFlag>,
    progress: Arc<ProgressCell>,
    cluster: Arc<OwnCluster>,
    added: Mutex<Option<GraphParts>>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} of job {}, attempt {}", self.task, self.submission.job, self.attempt)
    }
}

impl Context {
    pub(crate) fn new(
        submission: Arc<SubmissionId>,
        order: &TaskOrder,
        stop: Arc<StopFlag>,
        progress: Arc<ProgressCell>,
        cluster: Arc<OwnCluster>,
    ) -> Self {
        let TaskOrder { task, attempt, is_shown, .. } = *order;
        Self { submission, task, attempt, is_shown, stop, progress, cluster, added: Mutex::new(None) }
    }

    /// One for unit tests of a function: of task 0 of a job `test`, at its first attempt, which nobody
    /// cancels. Calls are added to it as to any other and run by nobody, and its client reaches no engine
    /// (E300).
    ///
    /// ```
    /// # use syncline_workers::functions::Context;
    /// fn first_half(context: &Context, lines: Vec<String>) -> Vec<String> {
    ///     lines.iter().take(lines.len() / 2).take_while(|_| !context.canceled()).cloned().collect()
    /// }
    /// let lines = ["a", "b"].map(str::to_owned).to_vec();
    /// assert_eq!(first_half(&Context::for_test(), lines), ["a"]);
    /// ```
    pub fn for_test() -> Self {
        let submission = SubmissionId { job: "test".parse().expect("it is a name"), nonce: 0 };
        let (task, args, after) = (TaskIndex(0), Vec::new(), Vec::new());
        let order = TaskOrder { task, attempt: 1, args, after, is_shown: false };
        let cluster = Arc::new(OwnCluster::nowhere());
        Self::new(Arc::new(submission), &order, Arc::default(), Arc::default(), cluster)
    }

    /// The job that the task belongs to.
    pub fn job(&self) -> &JobId {
        &self.submission.job
    }

    /// The task's index in its graph.
    pub fn task(&self) -> TaskIndex {
        self.task
    }

    /// Which attempt at the task this is, from 1.
    pub fn attempt(&self) -> u16 {
        self.attempt
    }

    /// Whether nobody wants the result any more: the job is over, the attempt has run too long, or the worker
    /// ends. A long function looks now and then, and returns something at once.
    pub fn canceled(&self) -> bool {
        self.stop.is_asked()
    }

    /// Says how far the function is: `done` parts of `total`, in whatever it counts; 0 of them where it does
    /// not know. `syncline tasks`, `explain` and `watch` show it, and
    /// [`TaskView`](syncline_scheduler::tasks::TaskView) has it. Cheap enough for a loop: the worker
    /// sends what was said last, about once a second. It is kept nowhere, and is gone when the attempt ends.
    ///
    /// ```
    /// # use syncline_workers::functions::Context;
    /// fn count(context: &Context, files: Vec<String>) -> std::io::Result<u64> {
    ///     let mut bytes = 0;
    ///     for (read, file) in files.iter().enumerate() {
    ///         context.report_progress(read as u64, files.len() as u64, file);
    ///         bytes += std::fs::metadata(file)?.len();
    ///     }
    ///     Ok(bytes)
    /// }
    /// assert_eq!(count(&Context::for_test(), Vec::new()).unwrap(), 0);
    /// ```
    ///
    /// `text` may be empty; 200 characters of it are shown.
    pub fn report_progress(&self, done: u64, total: u64, text: &str) {
        self.progress.set(done, total, text);
    }

    /// A client of the cluster that this worker belongs to: with the worker's engines and its token.
    pub fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// Waits for a call of [`client`](Self::client) in a function that blocks, in the runtime that its
    /// connections belong to. Panics in an async function, which awaits it.
    pub fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.cluster.runtime().block_on(call)
    }

    /// Submits a graph as a job of its own, which goes on whatever becomes of this task and its job. Returns
    /// when all of it is stored and it has begun; an async function uses [`client`](Self::client) and
    /// waits for [`submit_tasks`](Client::submit_tasks), so that it can be dropped meanwhile.
    ///
    /// When the task is tried again it submits again, and gets the same job if id and graph are the same:
    /// derive the id from what the task does, and take nothing into the graph that is another next time.
    /// A graph that differs is refused (E130).
    ///
    /// ```
    /// # use syncline_workers::client::TaskError;
    /// # use syncline_workers::functions::{Context, Function, TaskGraph};
    /// const CLEAN: Function<(String,), u64> = Function::new("clean");
    ///
    /// fn archive(context: &Context, day: String) -> Result<String, TaskError> {
    ///     let mut cleaning = TaskGraph::new(format!("clean-{day}"));
    ///     cleaning.call(CLEAN, (day,));
    ///     Ok(context.submit_tasks(&cleaning)?.id().to_string())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Client::submit_tasks`].
    pub fn submit_tasks(&self, graph: &TaskGraph) -> Result<GraphRun, TaskError> {
        self.cluster.submit_tasks(graph)
    }

    /// Adds a call to the graph. It may begin when this task has ended with a value; if this attempt fails or
    /// is skipped, it is not added.
    ///
    /// # Errors
    /// E040, E041, E345 and E346 for what the call is given.
    pub fn call<I, O>(
        &self,
        function: Function<I, O>,
        args: impl CallArguments<I>,
    ) -> Result<TaskHandle<O>, ArgumentError> {
        self.call_with(&CallOptions::new(), function, args)
    }

    /// As [`call`](Self::call), with options.
    ///
    /// # Errors
    /// As [`call`](Self::call), and E001 for a name that is none.
    pub fn call_with<I, O>(
        &self,
        options: &CallOptions,
        function: Function<I, O>,
        args: impl CallArguments<I>,
    ) -> Result<TaskHandle<O>, ArgumentError> {
        let mut added = lock(&self.added);
        added.get_or_insert_default().add(function, args, options)
    }

    /// Adds one call for each tuple of arguments.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn map<I, O>(
        &self,
        function: Function<I, O>,
        args: impl IntoIterator<Item: CallArguments<I>>,
    ) -> Result<Vec<TaskHandle<O>>, ArgumentError> {
        args.into_iter().map(|args| self.call(function, args)).collect()
    }

    /// Adds a training to the graph, as [`TaskGraph::train`](super::TaskGraph::train) does. What was prepared
    /// comes to the function as an argument.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn train(
        &self,
        training: &PreparedTraining,
        changes: impl IntoArgument<TrainingChanges>,
    ) -> Result<TaskHandle<Trained>, ArgumentError> {
        self.train_with(&CallOptions::new(), training, changes)
    }

    /// As [`train`](Self::train), with options.
    ///
    /// # Errors
    /// As [`train`](Self::train), and E001 for a name that is none.
    pub fn train_with(
        &self,
        options: &CallOptions,
        training: &PreparedTraining,
        changes: impl IntoArgument<TrainingChanges>,
    ) -> Result<TaskHandle<Trained>, ArgumentError> {
        let mut added = lock(&self.added);
        added.get_or_insert_default().add_training(training, changes, options)
    }

    /// The calls that were added.
    pub(crate) fn into_added(self) -> Option<GraphParts> {
        self.added.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index among the added calls of one that this handle is for.
    pub(super) fn place_of<T>(&self, handle: TaskHandle<T>) -> Option<u32> {
        let added = lock(&self.added);
        added.as_ref()?.place_of(handle)
    }
}
