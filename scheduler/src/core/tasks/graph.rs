//! The tasks of one job: 16 bytes each, and 8 for each edge until the job is over. What a task is called with
//! lies encoded in one buffer, because it is looked at only when the task starts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::record::TaskRecord;
use crate::{
    ids::NodeName,
    tasks::{ClassIndex, TaskState, WINDOW_TASKS},
};

/// Most tasks of one job.
pub const MAX_TASKS: u32 = 1 << 24;
/// No edge.
const NONE: u32 = u32::MAX;

/// What is kept of every task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Inputs that have not ended.
    pub unmet: u32,
    first_edge: u32,
    /// Attempts that have begun.
    pub attempts: u16,
    pub class: ClassIndex,
    pub state: TaskState,
    flags: u8,
}

const TAKES_VALUES: u8 = 1;
const NAMED: u8 = 2;
const TAKES_BLOBS: u8 = 4;
const TAKES_OUTCOMES: u8 = 8;

impl Slot {
    /// Whether it takes the values of other tasks.
    pub(super) fn takes_values(&self) -> bool {
        self.flags & TAKES_VALUES != 0
    }

    /// Whether arguments of it are blobs.
    pub(super) fn takes_blobs(&self) -> bool {
        self.flags & TAKES_BLOBS != 0
    }

    /// Whether it takes the outcomes of other tasks.
    pub(super) fn takes_outcomes(&self) -> bool {
        self.flags & TAKES_OUTCOMES != 0
    }

    /// Whether it has a name.
    pub(super) fn is_named(&self) -> bool {
        self.flags & NAMED != 0
    }
}

const _: () = assert!(size_of::<Slot>() == 16);

/// What the end of a task means for one that follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EdgeKind {
    /// The follower takes its value.
    Value,
    /// The follower starts after it, whatever it gave.
    After,
    /// The follower has ended and gives what it gives.
    Continue,
    /// The follower takes its value, or why it has none.
    Outcome,
}

impl EdgeKind {
    /// Whether the follower takes the value, if there is one.
    pub(super) fn takes_value(self) -> bool {
        matches!(self, Self::Value | Self::Outcome)
    }
}

/// The follower, with the kind in the upper two bits, and the next edge of the same task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    follower_and_kind: u32,
    next: u32,
}

const KIND_SHIFT: u32 = 30;

/// All tasks of one job with the edges between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    slots: Vec<Slot>,
    edges: Vec<Edge>,
    records: Vec<u8>,
    /// Where each task's record begins.
    offsets: Vec<u32>,
    names: BTreeMap<NodeName, u32>,
    /// Tasks that ended with another one giving their value.
    continued_by: HashMap<u32, u32>,
    /// Tasks in each state.
    counts: [u32; TaskState::ALL.len()],
    dirty_windows: BTreeSet<u32>,
}

impl Graph {
    /// Tasks in it.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn slot(&self, task: u32) -> &Slot {
        &self.slots[task as usize]
    }

    pub(super) fn slot_mut(&mut self, task: u32) -> &mut Slot {
        &mut self.slots[task as usize]
    }

    pub(super) fn state(&self, task: u32) -> TaskState {
        self.slots[task as usize].state
    }

    pub(super) fn count(&self, state: TaskState) -> u32 {
        self.counts[state as usize]
    }

    /// Whether nothing can happen any more.
    pub(super) fn is_over(&self) -> bool {
        TaskState::ALL.iter().all(|state| state.is_final() || self.count(*state) == 0)
    }

    pub(super) fn task_named(&self, name: &NodeName) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// Whether so many more tasks would still fit, with records of `bytes` in all.
    pub(super) fn has_room_for(&self, tasks: usize, bytes: usize) -> bool {
        self.slots.len() + tasks <= MAX_TASKS as usize && self.records.len() + bytes < u32::MAX as usize
    }

    /// Adds a task behind all others; its inputs are in the graph. It waits for those that have not ended:
    /// the caller settles the rest.
    pub(super) fn add(&mut self, record: &TaskRecord) -> u32 {
        self.append(record, TaskState::Waiting, |graph, input, _| !graph.state(input).is_final())
    }

    /// Adds a task that was read back, in its state. It waits for inputs that are `is_open` to an edge of
    /// this kind.
    pub(super) fn add_in(
        &mut self,
        record: &TaskRecord,
        state: TaskState,
        is_open: impl Fn(u32, EdgeKind) -> bool,
    ) -> u32 {
        self.append(record, state, |_, input, kind| is_open(input, kind))
    }

    fn append(
        &mut self,
        record: &TaskRecord,
        state: TaskState,
        is_open: impl Fn(&Self, u32, EdgeKind) -> bool,
    ) -> u32 {
        let task = self.len();
        let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
        let flags = flag(record.arguments_of().next().is_some(), TAKES_VALUES)
            | flag(record.name.is_some(), NAMED)
            | flag(record.blobs().next().is_some(), TAKES_BLOBS)
            | flag(record.outcomes_of().next().is_some(), TAKES_OUTCOMES);
        let slot = Slot { unmet: 0, first_edge: NONE, attempts: 0, class: record.class, state, flags };
        self.slots.push(slot);
        self.counts[state as usize] += 1;
        self.touch(task);
        self.offsets.push(self.records.len() as u32);
        let mut records = std::mem::take(&mut self.records);
        records = postcard::to_extend(record, records).expect("a record always has an encoding");
        self.records = records;
        if let Some(name) = &record.name {
            self.names.insert(name.clone(), task);
        }
        let values = record.values_of().map(|input| (input, EdgeKind::Value));
        let outcomes = record.outcomes_of().map(|input| (input, EdgeKind::Outcome));
        let after = record.after.iter().map(|input| (*input, EdgeKind::After));
        for (input, kind) in values.chain(outcomes).chain(after) {
            let counts = is_open(self, input, kind);
            self.slots[task as usize].unmet += u32::from(counts);
            // The value of one that has ended is taken.
            if counts || kind.takes_value() {
                self.connect(input, task, kind);
            }
        }
        if let Some(parent) = record.parent {
            self.connect(task, parent, EdgeKind::Continue);
            self.continued_by.insert(parent, task);
        }
        task
    }

    fn connect(&mut self, from: u32, to: u32, kind: EdgeKind) {
        let edge = u32::try_from(self.edges.len()).expect("fewer edges than encoded bytes");
        let slot = &mut self.slots[from as usize];
        self.edges.push(Edge { follower_and_kind: to | (kind as u32) << KIND_SHIFT, next: slot.first_edge });
        slot.first_edge = edge;
    }

    /// The tasks that follow one, the newest first.
    pub(super) fn followers(&self, task: u32) -> impl Iterator<Item = (u32, EdgeKind)> + '_ {
        let mut at = self.slots[task as usize].first_edge;
        std::iter::from_fn(move || {
            let edge = self.edges.get(at as usize)?;
            at = edge.next;
            let kind = match edge.follower_and_kind >> KIND_SHIFT {
                0 => EdgeKind::Value,
                1 => EdgeKind::After,
                2 => EdgeKind::Continue,
                _ => EdgeKind::Outcome,
            };
            Some((edge.follower_and_kind & !(u32::MAX << KIND_SHIFT), kind))
        })
    }

    /// The task that gives what this one gives, if it ended so.
    pub(super) fn continued_by(&self, task: u32) -> Option<u32> {
        self.continued_by.get(&task).copied()
    }

    /// The one task that follows, if there is just one.
    pub(super) fn only_follower(&self, task: u32) -> Option<u32> {
        let mut followers = self.followers(task).filter(|(_, kind)| *kind != EdgeKind::Continue);
        let (first, _) = followers.next()?;
        followers.next().is_none().then_some(first)
    }

    /// What the task is called with. Cost: decoding it.
    pub(super) fn record(&self, task: u32) -> TaskRecord {
        let from = self.offsets[task as usize] as usize;
        postcard::from_bytes(&self.records[from..]).expect("it was encoded here")
    }

    /// The task behind the last one of a chunk that begins with `first`, and has so many tasks and bytes of
    /// records at most; one task always.
    pub(super) fn chunk_end(&self, first: u32, most_tasks: u32, most_bytes: usize) -> u32 {
        let begin = |task: u32| self.offsets.get(task as usize).map_or(self.records.len(), |at| *at as usize);
        let is_within = |last: &u32| begin(*last) - begin(first) <= most_bytes;
        let end = first.saturating_add(most_tasks).min(self.len());
        (first + 1..=end).rev().find(is_within).unwrap_or(first + 1)
    }

    pub(super) fn set_state(&mut self, task: u32, state: TaskState) {
        let slot = &mut self.slots[task as usize];
        let before = std::mem::replace(&mut slot.state, state);
        self.counts[before as usize] -= 1;
        self.counts[state as usize] += 1;
        self.touch(task);
    }

    /// Nothing can happen any more: what only led from the end of a task to what follows goes, and the room
    /// that was kept for more.
    pub(super) fn close(&mut self) {
        (self.edges, self.continued_by) = Default::default();
        self.slots.iter_mut().for_each(|slot| slot.first_edge = NONE);
        self.slots.shrink_to_fit();
        self.records.shrink_to_fit();
        self.offsets.shrink_to_fit();
    }

    fn touch(&mut self, task: u32) {
        self.dirty_windows.insert(task / WINDOW_TASKS);
    }

    /// Takes the windows whose states have changed since the last call: number and one letter per task.
    pub(super) fn take_dirty_windows(&mut self) -> Vec<(String, String)> {
        let dirty = std::mem::take(&mut self.dirty_windows);
        dirty.into_iter().map(|window| (window.to_string(), self.window(window))).collect()
    }

    pub(super) fn has_dirty_windows(&self) -> bool {
        !self.dirty_windows.is_empty()
    }

    /// All states are in the store.
    pub(super) fn mark_stored(&mut self) {
        self.dirty_windows.clear();
    }

    pub(super) fn mark_all_dirty(&mut self) {
        self.dirty_windows = (0..self.len().div_ceil(WINDOW_TASKS)).collect();
    }

    fn window(&self, window: u32) -> String {
        let first = (window * WINDOW_TASKS) as usize;
        let last = (first + WINDOW_TASKS as usize).min(self.slots.len());
        self.slots[first..last].iter().map(|slot| char::from(slot.state.letter())).collect()
    }
}

/// Two are equal when all that can influence a later decision is.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        // Nobody asks how often a task was tried that has ended, or what it waited for.
        let plain = |slot: &Slot| match slot.state.is_final() {
            true => Slot { first_edge: NONE, attempts: 0, unmet: 0, ..*slot },
            false => Slot { first_edge: NONE, ..*slot },
        };
        self.slots.iter().map(plain).eq(other.slots.iter().map(plain))
            && self.records == other.records
            && self.names == other.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tasks::record::Argument;

    #[test]
    fn a_chunk_ends_by_tasks_or_by_bytes_and_has_one_task_at_least() {
        let mut graph = Graph::default();
        for bytes in [10, 10, 100, 10, 10, 10] {
            let arguments = vec![Argument::Value(vec![7; bytes].into())];
            let class = ClassIndex(0);
            graph.add(&TaskRecord { class, arguments, after: Vec::new(), name: None, parent: None });
        }
        let chunks = |most_tasks, most_bytes| {
            let mut ends = vec![0];
            while ends[ends.len() - 1] < graph.len() {
                ends.push(graph.chunk_end(ends[ends.len() - 1], most_tasks, most_bytes));
            }
            ends
        };
        assert_eq!(chunks(4, usize::MAX), [0, 4, 6]);
        assert_eq!(chunks(u32::MAX, usize::MAX), [0, 6]);
        assert_eq!(chunks(4, 60), [0, 2, 3, 6]);
        assert_eq!(chunks(4, 0), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_graph_that_is_over_keeps_its_tasks_and_neither_edges_nor_room_for_more() {
        let mut graph = Graph::default();
        for task in 0..1_000_u32 {
            let arguments = task.checked_sub(1).map(Argument::Output).into_iter().collect();
            let class = ClassIndex(0);
            graph.add(&TaskRecord { class, arguments, after: Vec::new(), name: None, parent: None });
            graph.set_state(task, TaskState::Done);
        }
        let before = graph.clone();
        graph.close();
        assert!(graph == before && graph.record(7) == before.record(7));
        let of = |graph: &Graph| graph.followers(7).count();
        assert_eq!((of(&before), of(&graph)), (1, 0));
        assert_eq!(graph.edges.capacity(), 0);
        assert_eq!((graph.slots.capacity(), graph.offsets.capacity()), (1_000, 1_000));
        assert_eq!(graph.records.capacity(), graph.records.len());
    }
}
