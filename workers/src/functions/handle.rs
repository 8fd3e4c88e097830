//! A task of a graph that is being built.

use std::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

use syncline_scheduler::tasks::{TaskIndex, TaskRef};

/// Tells the graphs of one process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphNumber(u64);

impl GraphNumber {
    /// One that no other graph of this process has.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A task that will give a `T`. Of use in the graph that it was added to, as an argument of further calls,
/// and to fetch its value.
pub struct TaskHandle<T> {
    pub(crate) task: TaskRef,
    pub(crate) graph: GraphNumber,
    gives: PhantomData<fn() -> T>,
}

impl<T> TaskHandle<T> {
    pub(crate) fn new(task: TaskRef, graph: GraphNumber) -> Self {
        Self { task, graph, gives: PhantomData }
    }

    /// How the task ends, as an argument: `Ok` of what it gives, or `Err` of why it gives nothing.
    ///
    /// ```
    /// # use syncline_scheduler::tasks::TaskFailure;
    /// # use syncline_workers::functions::{Function, TaskGraph};
    /// const LOAD: Function<(String,), u64> = Function::new("load");
    /// const REPORT: Function<(Result<u64, TaskFailure>,), String> = Function::new("report");
    ///
    /// let mut graph = TaskGraph::new("load");
    /// let rows = graph.call(LOAD, ("a.csv".to_owned(),));
    /// graph.call(REPORT, (rows.outcome(),));
    /// ```
    pub fn outcome(&self) -> OutcomeHandle<T> {
        OutcomeHandle(*self)
    }

    /// Its index in the graph, by which `Client::task` and `syncline tasks` know it.
    pub fn index(&self) -> TaskIndex {
        match self.task {
            TaskRef::Task(task) => task,
            TaskRef::New(index) => TaskIndex(index),
        }
    }
}

/// How a task will end: stands for a `Result<T, TaskFailure>` among the arguments of a call, see
/// [`TaskHandle::outcome`].
#[derive(Debug)]
pub struct OutcomeHandle<T>(pub(crate) TaskHandle<T>);

impl<T> Clone for OutcomeHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OutcomeHandle<T> {}

impl<T> Clone for TaskHandle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TaskHandle<T> {}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.task)
    }
}
