//! What a worker holds of general tasks, and which may begin: no threads, no clock.
//!
//! An order may name tasks that this worker holds, too. It waits for them, and takes what they gave. A task
//! that gave nothing takes those that wait for it with it: the engine gives them out again.

mod ending;
mod stopping;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem,
    sync::Arc,
};

use syncline_scheduler::{
    ids::SubmissionId,
    tasks::{Attempts, Bytes, FunctionId, OneArg, OrderArg, OrderGroup, TaskIndex, TaskOrder, Value},
};

use super::retelling::Retelling;
use crate::functions::{ProgressCell, RegisteredFunction};

/// What the orders of one group have in common.
#[derive(Debug)]
pub(super) struct Group {
    pub submission: Arc<SubmissionId>,
    pub id: FunctionId,
    /// `None`: this worker has no such function.
    pub function: Option<Arc<RegisteredFunction>>,
    pub slots: u32,
    pub run_limit_ms: Option<u64>,
}

/// Tells one order from all others of this worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct OrderId(u64);

/// An attempt that may begin, or has begun.
#[derive(Debug)]
pub(super) struct Attempt {
    pub group: Arc<Group>,
    pub order: TaskOrder,
    pub serial: OrderId,
    pub progress: Arc<ProgressCell>,
}

/// An attempt that has ended.
#[derive(Debug, Clone)]
pub(super) struct EndedKey {
    pub submission: Arc<SubmissionId>,
    pub task: TaskIndex,
    pub serial: OrderId,
}

#[derive(Debug)]
struct Held {
    attempt: u16,
    serial: OrderId,
    state: State,
    /// Who waits for it; once it has given nothing, those that were dropped with it.
    waiters: Vec<(TaskIndex, OrderId)>,
}

#[derive(Debug)]
enum State {
    /// For so many tasks.
    Waiting {
        attempt: Attempt,
        missing: u32,
    },
    Ready,
    /// On a thread that fetches what its function is called with.
    Fetching,
    /// Its function is called, or has nothing left to wait for.
    Running,
    /// What it gave, until no order can refer to it any more.
    Ended(Option<Bytes>),
    /// It ended before its function was called, and gave nothing: its worker may leave without having run it.
    EndedUnbegun,
    /// What it waits for gave nothing. Later orders may still name it.
    Dropped,
}

type JobTasks = HashMap<TaskIndex, Held>;

/// Attempts that this worker holds.
#[derive(Debug, Default)]
pub(super) struct HeldTasks {
    jobs: HashMap<Arc<SubmissionId>, JobTasks>,
    ready: VecDeque<Attempt>,
    next_serial: u64,
    /// Polls that have begun.
    polls: u64,
    /// Ends that the engine has taken, with the number of polls that had begun then.
    acknowledged: VecDeque<(u64, Vec<EndedKey>)>,
}

impl State {
    fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::EndedUnbegun)
    }

    fn is_on_a_thread(&self) -> bool {
        matches!(self, Self::Fetching | Self::Running)
    }
}

impl Attempt {
    /// Whether something has to be fetched before its function can be called, which may take minutes.
    pub(super) fn fetches(&self) -> bool {
        let is_here = |part: &OneArg| matches!(part, OneArg::Value(Value::Inline(_)) | OneArg::Failure(_));
        !self.order.args.iter().flat_map(OrderArg::parts).all(is_here)
    }
}

impl HeldTasks {
    /// Takes an order. What is held already under the same attempt stays as it is; another attempt at the
    /// same task is over, and its serial is noted in `over` if it runs.
    pub(super) fn accept(
        &mut self,
        orders: OrderGroup,
        function: Option<Arc<RegisteredFunction>>,
        over: &mut Vec<OrderId>,
    ) {
        let OrderGroup { submission, function: id, slots, run_limit_ms, tasks } = orders;
        let submission = match self.jobs.get_key_value(&submission) {
            Some((known, _)) => known.clone(),
            None => Arc::new(submission),
        };
        let held = self.jobs.entry(submission.clone()).or_default();
        let group = Arc::new(Group { submission, id, function, slots, run_limit_ms });
        for order in tasks {
            if let Some(known) = held.get(&order.task) {
                if known.attempt == order.attempt && !matches!(known.state, State::Dropped) {
                    continue;
                }
                discard(held, order.task, over);
            }
            let serial = OrderId(self.next_serial);
            self.next_serial += 1;
            let attempt = Attempt { group: group.clone(), order, serial, progress: Arc::default() };
            take_in(held, attempt, &mut self.ready);
        }
    }

    /// Gives up attempts. Those that run are noted in `over`.
    pub(super) fn recall(&mut self, recall: Attempts, over: &mut Vec<OrderId>) {
        let Some(held) = self.jobs.get_mut(&recall.submission) else { return };
        for recalled in recall.tasks {
            let is_it = |held: &Held| held.attempt == recalled.attempt && !held.state.has_ended();
            if held.get(&recalled.task).is_some_and(is_it) {
                discard(held, recalled.task, over);
            }
        }
        self.jobs.retain(|_, held| !held.is_empty());
    }

    /// Gives up every attempt that another engine has not named, also what has ended: it may give out the
    /// same number once more, for another call.
    pub(super) fn retain(&mut self, named: &Retelling, over: &mut Vec<OrderId>) {
        for (submission, held) in &mut self.jobs {
            let is_over = |(task, held): (&TaskIndex, &Held)| {
                (!named.names(submission, *task, held.attempt)).then_some(*task)
            };
            let gone: Vec<TaskIndex> = held.iter().filter_map(is_over).collect();
            for task in gone {
                discard(held, task, over);
            }
        }
        self.jobs.retain(|_, held| !held.is_empty());
    }

    /// Whether an attempt is still held.
    pub(super) fn holds(&self, ended: &EndedKey) -> bool {
        let held = self.jobs.get(&ended.submission).and_then(|held| held.get(&ended.task));
        held.is_some_and(|held| held.serial == ended.serial)
    }

    /// The next attempt that fits into `free` of `slots`; a thread has it from now on. They begin in the order
    /// in which they became ready: one that needs many slots is not overtaken forever.
    pub(super) fn begin(&mut self, free: u32, slots: u32) -> Option<Attempt> {
        while let Some(first) = self.ready.front() {
            let held =
                self.jobs.get_mut(&first.group.submission).and_then(|held| held.get_mut(&first.order.task));
            let is_it = |held: &&mut Held| held.serial == first.serial && matches!(held.state, State::Ready);
            let Some(held) = held.filter(is_it) else {
                self.ready.pop_front();
                continue;
            };
            if first.group.slots.min(slots) > free {
                return None;
            }
            held.state = if first.fetches() { State::Fetching } else { State::Running };
            return self.ready.pop_front();
        }
        None
    }

    /// Whether any attempt may begin, as far as slots go.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Attempts that were received and whose end the engine has not taken; those that were dropped count as
    /// long as they may be named.
    pub(super) fn count(&self) -> usize {
        let all: usize = self.jobs.values().map(HashMap::len).sum();
        let taken: usize = self.acknowledged.iter().map(|(_, ended)| ended.len()).sum();
        all.saturating_sub(taken)
    }

    /// The engine has taken these ends.
    pub(super) fn acknowledge(&mut self, ended: Vec<EndedKey>) {
        self.acknowledged.push_back((self.polls, ended));
    }

    /// A poll begins; its number.
    pub(super) fn poll_begins(&mut self) -> u64 {
        self.polls += 1;
        self.polls
    }

    /// A poll was answered, and its orders were taken: what had been acknowledged before it began cannot be
    /// referred to by any order that is still to come.
    pub(super) fn poll_answered(&mut self, poll: u64) {
        while self.acknowledged.front().is_some_and(|(before, _)| *before < poll) {
            let Some((_, ended)) = self.acknowledged.pop_front() else { return };
            self.forget(ended);
        }
    }

    /// Another engine leads. It knows of what was acknowledged only as far as the store still does: what it
    /// gives out again is run again, and is not taken for what is held.
    pub(super) fn forget_acknowledged(&mut self) {
        for (_, ended) in mem::take(&mut self.acknowledged) {
            self.forget(ended);
        }
    }

    fn forget(&mut self, ended: Vec<EndedKey>) {
        for EndedKey { submission, task, serial } in ended {
            let Some(held) = self.jobs.get_mut(&submission) else { continue };
            if held.get(&task).is_some_and(|held| held.serial == serial) {
                discard(held, task, &mut Vec::new());
            }
            if held.is_empty() {
                self.jobs.remove(&submission);
            }
        }
    }

    /// Gives up everything.
    pub(super) fn clear(&mut self) {
        (self.jobs, self.ready) = Default::default();
    }
}

/// Notes an attempt: it waits for those that it names and that have not ended.
fn take_in(held: &mut JobTasks, mut attempt: Attempt, ready: &mut VecDeque<Attempt>) {
    let (task, serial) = (attempt.order.task, attempt.serial);
    let (mut missing, mut dropped) = (0, false);
    for parent in parents(&attempt.order) {
        // One that is not here leaves its place open, which fails the attempt if it was to give an argument.
        let Some(parent_held) = held.get_mut(&parent) else { continue };
        match &parent_held.state {
            State::Ended(Some(value)) => fill_args(&mut attempt.order.args, parent, value),
            State::Ended(None) | State::EndedUnbegun | State::Dropped => {
                dropped = true;
                parent_held.waiters.push((task, serial));
            }
            State::Waiting { .. } | State::Ready | State::Fetching | State::Running => {
                missing += 1;
                parent_held.waiters.push((task, serial));
            }
        }
    }
    let number = attempt.order.attempt;
    let state = if dropped {
        State::Dropped
    } else if missing > 0 {
        State::Waiting { attempt, missing }
    } else {
        ready.push_back(attempt);
        State::Ready
    };
    held.insert(task, Held { attempt: number, serial, state, waiters: Vec::new() });
}

/// Every task that an order waits for here, once.
fn parents(order: &TaskOrder) -> BTreeSet<TaskIndex> {
    let held = |part: &OneArg| if let OneArg::Held(task) = part { Some(*task) } else { None };
    let args = order.args.iter().flat_map(OrderArg::parts).filter_map(held);
    order.after.iter().copied().chain(args).collect()
}

/// Puts what `parent` gave into its places.
fn fill_args(args: &mut [OrderArg], parent: TaskIndex, value: &Bytes) {
    for part in args.iter_mut().flat_map(OrderArg::parts_mut) {
        if *part == OneArg::Held(parent) {
            *part = OneArg::Value(Value::Inline(value.clone()));
        }
    }
}

/// Gives a task what it waited for; it is ready if that was the last.
fn fill(
    held: &mut JobTasks,
    task: TaskIndex,
    serial: OrderId,
    parent: TaskIndex,
    value: &Bytes,
    ready: &mut VecDeque<Attempt>,
) {
    let Some(child) = held.get_mut(&task).filter(|child| child.serial == serial) else { return };
    let State::Waiting { attempt, missing } = &mut child.state else { return };
    fill_args(&mut attempt.order.args, parent, value);
    *missing -= 1;
    if *missing == 0
        && let State::Waiting { attempt, .. } = mem::replace(&mut child.state, State::Ready)
    {
        ready.push_back(attempt);
    }
}

/// Drops what waits for a task that gave nothing, and what waits for that.
fn drop_waiters(held: &mut JobTasks, task: TaskIndex) {
    let mut open = vec![task];
    while let Some(task) = open.pop() {
        let waiters = held.get(&task).map(|held| held.waiters.clone()).unwrap_or_default();
        for (task, serial) in waiters {
            if let Some(child) = held.get_mut(&task).filter(|child| child.serial == serial) {
                child.state = State::Dropped;
                open.push(task);
            }
        }
    }
}

/// Forgets a task, and what waits for it or was dropped with it. One that runs is noted in `over`.
fn discard(held: &mut JobTasks, task: TaskIndex, over: &mut Vec<OrderId>) {
    let mut open = vec![(task, None)];
    while let Some((task, serial)) = open.pop() {
        if !held.get(&task).is_some_and(|held| serial.is_none_or(|serial| held.serial == serial)) {
            continue;
        }
        let Some(gone) = held.remove(&task) else { continue };
        if gone.state.is_on_a_thread() {
            over.push(gone.serial);
        }
        open.extend(gone.waiters.into_iter().map(|(task, serial)| (task, Some(serial))));
    }
}
