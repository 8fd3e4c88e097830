//! How one call, or several, are to be treated.

use std::time::Duration;

use syncline_scheduler::tasks::{Backoff, OnFailure, Rules, TaskRef};

use super::handle::{GraphNumber, TaskHandle};

/// How a call is to be treated, where that is not as usual.
///
/// ```
/// # use syncline_workers::functions::CallOptions;
/// let options = CallOptions::new().retries(2).slots(4).label("zone", "a").name("resize");
/// ```
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    pub(super) rules: Rules,
    pub(super) name: Option<String>,
    pub(super) after: Vec<(TaskRef, GraphNumber)>,
}

impl CallOptions {
    /// The usual treatment.
    pub fn new() -> Self {
        Self::default()
    }

    /// A name for people, unique in the graph: 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter
    /// or digit.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Higher goes first, among the tasks of all jobs; 0 without this.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.rules.priority = priority;
        self
    }

    /// How often it is tried again after it failed, panicked or took too long; 0 without this. It is not
    /// after an error of `FunctionError::no_retry`.
    #[must_use]
    pub fn retries(mut self, times: u16) -> Self {
        self.rules.errors = times;
        self
    }

    /// How often it is tried again after its worker was lost; 3 without this.
    #[must_use]
    pub fn crash_retries(mut self, times: u16) -> Self {
        self.rules.crashes = times;
        self
    }

    /// The pause before it is tried again after a failure: it doubles from `first` up to `longest`.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        let ms = |time| u32::try_from(whole_ms(time)).unwrap_or(u32::MAX);
        self.rules.backoff = Backoff { first_ms: ms(first), longest_ms: ms(longest) };
        self
    }

    /// Longest time for which one attempt may run, in steps of a millisecond; without this there is none. It
    /// counts from the call of the function until what it gave is stored: for its arguments an attempt waits
    /// before. A graph with one of 0 is refused (E062).
    #[must_use]
    pub fn run_limit(mut self, limit: Duration) -> Self {
        self.rules.run_limit_ms = Some(whole_ms(limit));
        self
    }

    /// Longest time for which it may wait for a worker once it could begin, in steps of a millisecond;
    /// without this it waits forever. It fails then (E060), whatever `retries` says. A graph with one of
    /// 0 is refused (E062).
    #[must_use]
    pub fn queue_limit(mut self, limit: Duration) -> Self {
        self.rules.queue_limit_ms = Some(whole_ms(limit));
        self
    }

    /// Slots of a worker that it takes up while it runs; 1 without this. A graph with 0 is refused (E049).
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.rules.needs.slots = slots;
        self
    }

    /// Memory of a worker that it takes up while it runs, in bytes; 0 without this. It is counted, not
    /// measured: all that runs on a worker never says more than the worker offers.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.rules.needs.resources.memory_bytes = bytes;
        self
    }

    /// GPUs of a worker that it has for itself while it runs; 0 without this.
    #[must_use]
    pub fn gpu(mut self, gpus: u32) -> Self {
        self.rules.needs.resources.gpus = gpus;
        self
    }

    /// Only workers that carry this label run it. A graph with one without a name is refused (E063).
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.rules.needs.labels.insert(name.into(), value.into());
        self
    }

    /// When it fails for good, what needs it is skipped, and the rest of the job goes on; without this the
    /// job fails. [`TaskGraph::keep_going_on_failure`](super::TaskGraph::keep_going_on_failure) says so
    /// for all calls of a graph.
    #[must_use]
    pub fn skip_dependents_on_failure(mut self) -> Self {
        self.rules.on_failure = OnFailure::SkipDependents;
        self
    }

    /// What it gives stays for [`get`](crate::client::GraphRun::get) when the last task that takes it has
    /// ended, as that of a task with a name does: for calls of a map, which share their options and have
    /// none.
    #[must_use]
    pub fn keep_value(mut self) -> Self {
        self.rules.keep_value = true;
        self
    }

    /// It begins when this task has ended, whatever that gives.
    #[must_use]
    pub fn after<T>(mut self, task: &TaskHandle<T>) -> Self {
        self.after.push((task.task, task.graph));
        self
    }
}

/// Rounded up: only what is 0 is 0.
fn whole_ms(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
