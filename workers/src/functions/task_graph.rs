//! A job of general tasks, as a client builds it.

use std::borrow::Cow;

use syncline_scheduler::{
    core::Trained,
    tasks::{GraphDigest, NewTask, PreparedTraining, TaskClass, TaskRef, TrainingChanges},
};

use super::{
    ArgumentError, CallArguments, CallOptions, Function, GraphNumber, GraphParts, IntoArgument, TaskHandle,
};

/// A graph of calls. Built call by call, then given to
/// [`Client::submit_tasks`](crate::client::Client::submit_tasks), which gives the
/// [`GraphRun`](crate::client::GraphRun) that takes its handles.
///
/// A call that cannot be made, for example one that takes a task of another graph, is told when the graph is
/// submitted: the first one, with its index.
///
/// ```
/// # use syncline_workers::functions::{Function, TaskGraph};
/// const SQUARE: Function<(u64,), u64> = Function::new("square");
/// const SUM: Function<(Vec<u64>,), u64> = Function::new("sum");
///
/// let mut graph = TaskGraph::new("squares");
/// let squares = graph.map(SQUARE, (1..=100).map(|n| (n,)));
/// let total = graph.call(SUM, (&squares,));
/// assert_eq!(graph.len(), 101);
/// ```
#[derive(Debug)]
pub struct TaskGraph {
    id: String,
    parts: GraphParts,
    /// Every call has `skip_dependents_on_failure`.
    keeps_going: bool,
    /// The first call that could not be made.
    broken: Option<InvalidCall>,
}

/// A call of a graph that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E340] call {index} of the graph, of `{function}`, cannot be made: {cause}")]
#[non_exhaustive]
pub struct InvalidCall {
    /// Among the calls of the graph, from 0.
    pub index: usize,
    /// Name of the function that is called.
    pub function: &'static str,
    /// What is wrong with the call.
    pub cause: ArgumentError,
}

impl InvalidCall {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E340"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("correct the call; nothing was stored".to_owned())
    }
}

impl TaskGraph {
    /// A graph without calls; `id` is the name of the job.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), parts: GraphParts::default(), keeps_going: false, broken: None }
    }

    /// When a task fails for good, what needs it is skipped, and the rest of the graph goes on; without this
    /// the job fails, and cancels what has not ended. As
    /// [`skip_dependents_on_failure`](CallOptions::skip_dependents_on_failure) in the options of each call
    /// and training that is added after this; those that functions add while they run have options of
    /// their own.
    #[must_use]
    pub fn keep_going_on_failure(mut self) -> Self {
        self.keeps_going = true;
        self
    }

    /// Adds a call. Arguments of other types than the function's do not compile:
    ///
    /// ```compile_fail
    /// # use syncline_workers::functions::{Function, TaskGraph};
    /// const ADD: Function<(u64, u64), u64> = Function::new("add");
    /// TaskGraph::new("sum").call(ADD, (1, "two"));
    /// ```
    pub fn call<I, O>(&mut self, function: Function<I, O>, args: impl CallArguments<I>) -> TaskHandle<O> {
        self.call_with(&CallOptions::new(), function, args)
    }

    /// Adds a call that is treated in another way than usual.
    pub fn call_with<I, O>(
        &mut self,
        options: &CallOptions,
        function: Function<I, O>,
        args: impl CallArguments<I>,
    ) -> TaskHandle<O> {
        let added = self.parts.add(function, args, &self.options(options));
        self.keep_fault(function.name(), added)
    }

    /// Adds a training, with what the task changes of it: a [`TrainingChanges`], or a task that gives one.
    /// The engine begins a training job for it, on workers that train; see
    /// [`Client::prepare_training`](crate::client::Client::prepare_training).
    pub fn train(
        &mut self,
        training: &PreparedTraining,
        changes: impl IntoArgument<TrainingChanges>,
    ) -> TaskHandle<Trained> {
        self.train_with(&CallOptions::new(), training, changes)
    }

    /// Adds a training that is treated in another way than usual. Slots, labels and priority are refused:
    /// which workers it takes is up to its own settings.
    pub fn train_with(
        &mut self,
        options: &CallOptions,
        training: &PreparedTraining,
        changes: impl IntoArgument<TrainingChanges>,
    ) -> TaskHandle<Trained> {
        let added = self.parts.add_training(training, changes, &self.options(options));
        self.keep_fault("train", added)
    }

    /// The options of a call in this graph.
    fn options<'a>(&self, of_call: &'a CallOptions) -> Cow<'a, CallOptions> {
        match self.keeps_going {
            true => Cow::Owned(of_call.clone().skip_dependents_on_failure()),
            false => Cow::Borrowed(of_call),
        }
    }

    fn keep_fault<T>(
        &mut self,
        function: &'static str,
        added: Result<TaskHandle<T>, ArgumentError>,
    ) -> TaskHandle<T> {
        let index = self.parts.tasks.len();
        added.unwrap_or_else(|cause| {
            self.broken.get_or_insert(InvalidCall { index, function, cause });
            TaskHandle::new(TaskRef::New(index as u32), self.parts.graph)
        })
    }

    /// Adds one call for each tuple of arguments.
    pub fn map<I, O, A: CallArguments<I>>(
        &mut self,
        function: Function<I, O>,
        each: impl IntoIterator<Item = A>,
    ) -> Vec<TaskHandle<O>> {
        self.map_with(&CallOptions::new(), function, each)
    }

    /// Adds one call for each tuple of arguments as [`map`](Self::map), treated as `options` say.
    pub fn map_with<I, O, A: CallArguments<I>>(
        &mut self,
        options: &CallOptions,
        function: Function<I, O>,
        each: impl IntoIterator<Item = A>,
    ) -> Vec<TaskHandle<O>> {
        each.into_iter().map(|args| self.call_with(options, function, args)).collect()
    }

    /// How many calls it has.
    pub fn len(&self) -> usize {
        self.parts.tasks.len()
    }

    /// Whether it has no calls.
    pub fn is_empty(&self) -> bool {
        self.parts.tasks.is_empty()
    }

    /// The name of the job.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which graph of this process it is.
    pub(crate) fn number(&self) -> GraphNumber {
        self.parts.graph
    }

    /// Classes and tasks; the tasks refer to each other by [`TaskRef::New`].
    ///
    /// # Errors
    /// The first call that could not be made.
    pub(crate) fn tasks(&self) -> Result<(&[TaskClass], &[NewTask]), InvalidCall> {
        match &self.broken {
            Some(broken) => Err(broken.clone()),
            None => Ok((&self.parts.classes, &self.parts.tasks)),
        }
    }

    /// Tells the graph from others: of its classes and tasks with every byte of what they are called with,
    /// not of the id.
    pub(crate) fn digest(&self) -> GraphDigest {
        let mut hasher = blake3::Hasher::new();
        let mut feed = |encoded: postcard::Result<Vec<u8>>| {
            let encoded = encoded.expect("classes and tasks always have an encoding");
            hasher.update(&encoded);
            encoded
        };
        // Lengths stand in front of all lists and texts, so no two graphs are the same bytes.
        feed(postcard::to_stdvec(&self.parts.classes));
        let mut buffer = Vec::new();
        for task in &self.parts.tasks {
            buffer.clear();
            buffer = feed(postcard::to_extend(task, buffer));
        }
        GraphDigest::new(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::sim::{training, training_job};

    use super::*;

    const ADD: Function<(u64, u64), u64> = Function::new("add");

    #[test]
    fn the_first_call_that_cannot_be_made_is_told_with_its_place() {
        let (mut graph, mut other) = (TaskGraph::new("a"), TaskGraph::new("b"));
        let foreign = other.call(ADD, (1, 2));
        let good = graph.call(ADD, (1, 2));
        let bad = graph.call(ADD, (good, foreign));
        graph.call(ADD, (bad, foreign));
        let told = graph.tasks().unwrap_err();
        assert_eq!(
            told.to_string(),
            "[E340] call 1 of the graph, of `add`, cannot be made: [E041] argument 1 is a task of another graph"
        );
        assert_eq!(told.cause, ArgumentError::OtherGraph { position: 1 });
        assert_eq!(other.tasks().unwrap().1.len(), 1);
    }

    #[test]
    fn a_training_is_refused_where_it_is_written_with_changes_that_no_training_has() {
        let prepared = PreparedTraining::new(&training_job(training("bsp".parse().unwrap(), 8, 1))).unwrap();
        let mut graph = TaskGraph::new("rates");
        graph.train(&prepared, TrainingChanges::new().learning_rate(0.1));
        assert!(graph.tasks().is_ok());
        graph.train(&prepared, TrainingChanges::new().learning_rate(-1.0));
        let refused = graph.tasks().unwrap_err().to_string();
        assert!(
            refused.starts_with("[E340] call 1 of the graph, of `train`, cannot be made: [E027]"),
            "{refused}"
        );
    }

    #[test]
    fn a_graph_that_keeps_going_is_that_whose_every_call_skips_what_depends_on_it() {
        let prepared = PreparedTraining::new(&training_job(training("bsp".parse().unwrap(), 8, 1))).unwrap();
        let graph = |mut graph: TaskGraph, options: &CallOptions| {
            graph.map_with(options, ADD, [(1, 2), (3, 4)]);
            graph.train_with(options, &prepared, TrainingChanges::new());
            graph.digest()
        };
        let plain = CallOptions::new();
        let keeps_going = graph(TaskGraph::new("a").keep_going_on_failure(), &plain);
        assert_eq!(keeps_going, graph(TaskGraph::new("a"), &plain.clone().skip_dependents_on_failure()));
        assert_ne!(keeps_going, graph(TaskGraph::new("a"), &plain));
    }

    #[test]
    fn the_same_graph_has_the_same_digest_and_another_one_does_not() {
        let graph = |id: &str, last: u64, options: &CallOptions| {
            let mut graph = TaskGraph::new(id);
            let three = graph.call(ADD, (1, 2));
            graph.call_with(options, ADD, (three, last));
            graph.digest()
        };
        let plain = CallOptions::new();
        let first = graph("a", 7, &plain);
        assert_eq!(graph("b", 7, &plain), first, "ids are compared on their own");
        let others = [
            graph("a", 8, &plain),
            graph("a", 7, &plain.clone().retries(1)),
            graph("a", 7, &plain.name("n")),
        ];
        assert!(others.iter().all(|other| *other != first) && others[0] != others[1]);
        assert_ne!(TaskGraph::new("a").digest(), first);
    }
}
