//! What workers are told: tasks with their arguments, and attempts that nobody wants any more.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{graph::EdgeKind, job::TaskJob, record::Argument};
use crate::{
    core::{Effect, WorkerInfo},
    ids::Incarnation,
    tasks::{
        Attempt, Attempts, MAX_ORDER_BYTES, OneArg, Order, OrderArg, OrderGroup, TaskClass, TaskIndex,
        TaskOrder, TaskState, Value,
    },
};

/// How many tasks that give for each other are followed to see whether people may look at what they give: a
/// chain may be as long as its graph.
const CONTINUED_FOLLOWED: usize = 256;

/// Puts an order into the group before it, if it is of the same class.
pub(super) fn push_order(orders: &mut Vec<Order>, job: &TaskJob, order: TaskOrder) {
    let TaskClass { work, rules } = &job.class_of(order.task.0).class;
    let Some(function) = work.function() else { return };
    let (slots, run_limit_ms) = (rules.needs.slots, rules.run_limit_ms);
    if let Some(Order::Run(group)) = orders.last_mut()
        && (group.slots, group.run_limit_ms) == (slots, run_limit_ms)
        && group.function == *function
        && job.is_of(&group.submission)
    {
        return group.tasks.push(order);
    }
    orders.push(Order::Run(OrderGroup {
        submission: job.submission(),
        function: function.clone(),
        slots,
        run_limit_ms,
        tasks: vec![order],
    }));
}

impl TaskJob {
    /// Leases a task that is ready, or waits only for what this worker holds.
    pub(super) fn lease(&mut self, worker: Incarnation, about: &WorkerInfo, task: u32) -> TaskOrder {
        self.begin_attempt(task, TaskState::Leased);
        self.leases.entry(worker).or_default().insert(task);
        self.changes.leases.insert(worker);
        if let Entry::Vacant(unknown) = self.workers.entry(worker) {
            unknown.insert(about.clone());
            self.changes.workers.insert(worker);
        }
        self.order(worker, task)
    }

    /// A task begins its next attempt.
    pub(super) fn begin_attempt(&mut self, task: u32, state: TaskState) {
        self.graph.set_state(task, state);
        let slot = self.graph.slot_mut(task);
        slot.attempts = slot.attempts.saturating_add(1);
        let attempts = slot.attempts;
        if let Some(faults) = self.faults.get_mut(&task) {
            faults.attempts = attempts;
            self.changes.faults.insert(task);
        }
        if state == TaskState::Leased {
            self.clear_queue_deadline(task);
        }
    }

    /// What the worker that holds a task is told of it.
    pub(super) fn order(&self, worker: Incarnation, task: u32) -> TaskOrder {
        let record = self.graph.record(task);
        let held = self.leases.get(&worker);
        // It does not wait there for one that is made again: it had its end before.
        let holds =
            |input: &u32| !self.is_made_again(*input) && held.is_some_and(|tasks| tasks.contains(input));
        let output = |input: u32| match self.graph.state(input) {
            _ if holds(&input) => OneArg::Held(TaskIndex(input)),
            TaskState::Failed | TaskState::Skipped => OneArg::Failure(self.task_failure(input)),
            TaskState::Done => OneArg::Value(self.values.get(input)),
            // The value is made again: a worker that has not begun with the old one finds that it is not
            // there.
            _ => OneArg::Kept(TaskIndex(input)),
        };
        let mut args = order_args(record.arguments, output);
        if args.iter().map(OrderArg::wire_bytes).sum::<usize>() > MAX_ORDER_BYTES {
            args = order_args(self.graph.record(task).arguments, |input| match output(input) {
                OneArg::Value(Value::Inline(_)) => OneArg::Kept(TaskIndex(input)),
                OneArg::Failure(failure) => OneArg::Failure(failure.in_brief()),
                elsewhere => elsewhere,
            });
        }
        TaskOrder {
            task: TaskIndex(task),
            attempt: self.graph.slot(task).attempts,
            after: record.after.into_iter().filter(holds).map(TaskIndex).collect(),
            args,
            is_shown: self.is_shown(task),
        }
    }

    /// Whether people may look at what a task gives: it has a name, or no other task takes it, or it gives for
    /// one of which that is so.
    fn is_shown(&self, task: u32) -> bool {
        let mut task = task;
        for _ in 0..CONTINUED_FOLLOWED {
            if self.graph.slot(task).is_named() {
                return true;
            }
            let followers = || self.graph.followers(task);
            match followers().find(|(_, kind)| *kind == EdgeKind::Continue) {
                Some((continued, _)) => task = continued,
                None => return !followers().any(|(_, kind)| kind.takes_value()),
            }
        }
        false
    }

    /// Everything that a worker holds, as it was told.
    pub(super) fn orders_of(&self, worker: Incarnation) -> Vec<Order> {
        let mut orders = Vec::new();
        for &task in self.leases.get(&worker).into_iter().flatten() {
            push_order(&mut orders, self, self.order(worker, task));
        }
        let held = self.leases.get(&worker).into_iter().flatten();
        let stops = held.filter(|task| self.is_canceling() || self.is_task_canceling(**task));
        let stopped: Vec<Attempt> = stops.map(|task| self.current_attempt(*task)).collect();
        if !stopped.is_empty() {
            orders.push(Order::Stop(self.attempts(stopped)));
        }
        orders
    }

    /// Takes the attempts that workers are to drop, or to stop.
    pub(super) fn take_recalls(&mut self, effects: &mut Vec<Effect>) {
        for (worker, tasks) in by_worker(std::mem::take(&mut self.outbox.recalled)) {
            let orders = vec![Order::Recall(self.attempts(tasks))];
            effects.push(Effect::Orders { worker, orders });
        }
        for (worker, tasks) in by_worker(std::mem::take(&mut self.outbox.stopped)) {
            let orders = vec![Order::Stop(self.attempts(tasks))];
            effects.push(Effect::Orders { worker, orders });
        }
        if !self.outbox.released.is_empty() {
            effects.push(Effect::ReleaseBlobs { digests: std::mem::take(&mut self.outbox.released) });
        }
    }

    /// The attempt at a task that has begun last.
    pub(super) fn current_attempt(&self, task: u32) -> Attempt {
        Attempt { task: TaskIndex(task), attempt: self.graph.slot(task).attempts }
    }

    pub(super) fn attempts(&self, tasks: Vec<Attempt>) -> Attempts {
        Attempts { submission: self.submission(), tasks }
    }
}

/// Arguments as they travel, with what each task gives that they take.
fn order_args(arguments: Vec<Argument>, output: impl Fn(u32) -> OneArg) -> Vec<OrderArg> {
    // A task that had begun with a value is told of the failure to make it again as of a value that is not
    // there.
    let value = |input: u32| match output(input) {
        OneArg::Failure(_) => OneArg::Kept(TaskIndex(input)),
        there => there,
    };
    let argument = |argument: Argument| match argument {
        Argument::Value(bytes) => OrderArg::One(OneArg::Value(Value::Inline(bytes))),
        Argument::Blob(blob) => OrderArg::One(OneArg::Value(Value::Blob(blob))),
        Argument::Output(input) => OrderArg::One(value(input)),
        Argument::Outputs(inputs) => OrderArg::List(inputs.into_iter().map(value).collect()),
        Argument::Outcome(input) => OrderArg::Outcome(output(input)),
        Argument::Outcomes(inputs) => OrderArg::Outcomes(inputs.into_iter().map(&output).collect()),
    };
    arguments.into_iter().map(argument).collect()
}

/// Attempts by who has them.
fn by_worker(attempts: Vec<(Incarnation, Attempt)>) -> BTreeMap<Incarnation, Vec<Attempt>> {
    let mut sorted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (worker, attempt) in attempts {
        sorted.entry(worker).or_default().push(attempt);
    }
    sorted
}
