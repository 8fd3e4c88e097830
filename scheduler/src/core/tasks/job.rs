//! One job of general tasks: what it is made of, and how it grows, begins and ends.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use serde::{Deserialize, Serialize};

use super::{
    changes::{Changes, PendingActions},
    graph::Graph,
    last_runs::LastRuns,
    returned::ReturnedTasks,
    training::Trainings,
    values::Values,
};
use crate::{
    core::{Begun, Event, Happening, JobPhase, Phase, Submitted, WorkerInfo, records::is_zero},
    ids::{Incarnation, JobId, SubmissionId},
    tasks::{ClassIndex, Failure, GraphDigest, GraphReceipt, Resources, TaskClass, TaskState, Work},
};

/// The part of the job that is no task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobState {
    pub phase: Phase,
    /// Drawn by the client for this submission.
    pub nonce: u32,
    /// Of the graph as it was submitted; `None`: by an earlier release, no other is the same then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<GraphDigest>,
    pub submitted_us: u64,
    pub started_us: Option<u64>,
    pub ended_us: Option<u64>,
    /// Nothing more of it is given out.
    #[serde(default)]
    pub paused: bool,
    /// For how long nobody led while tasks waited for workers; less where the clock was set back. See
    /// [`TaskJob::led_us`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unled_us: i64,
    /// Why somebody canceled it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cancel_reason: String,
    /// It is canceled, and what runs has until then to end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceling_until_us: Option<u64>,
}

/// A class, what is known of its tasks, and which of them can be given out.
#[derive(Debug, Clone)]
pub(super) struct ClassState {
    pub class: TaskClass,
    /// Moving average; `None` before the first has ended.
    pub mean_run_us: Option<f32>,
    /// Tasks that are ready, the oldest first, and some that are not any more.
    pub ready: BinaryHeap<Reverse<u32>>,
    /// Ready tasks that came back from a worker.
    pub returned: ReturnedTasks,
    /// Ready tasks that are to be the only task of a worker.
    pub alone: BTreeSet<u32>,
}

impl ClassState {
    pub fn new(class: TaskClass) -> Self {
        let (ready, returned, alone) = <(BinaryHeap<_>, ReturnedTasks, BTreeSet<_>)>::default();
        Self { class, mean_run_us: None, ready, returned, alone }
    }

    /// Whether no task of it can be given to a worker that has others.
    pub fn is_exhausted(&self) -> bool {
        self.ready.is_empty() && self.returned.is_empty()
    }
}

impl PartialEq for ClassState {
    fn eq(&self, other: &Self) -> bool {
        self.class == other.class
    }
}

/// What is kept of a task that did not end well at its first attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RetryState {
    pub attempts: u16,
    /// Attempts whose worker was lost.
    pub crashes: u16,
    /// Attempts that failed.
    pub errors: u16,
    /// Attempts whose worker was stopped cleanly while they ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stops: u16,
    /// Times that its value was found to be lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub losses: u8,
    /// It was done before, and is to give its value once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// Its worker was lost as often as may be, always with other tasks: its last attempt is the only task of
    /// its worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The tasks that were to take its failure as an outcome, where it failed when it was made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takers: Vec<u32>,
    /// Workers from which it came back, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoided: Vec<Incarnation>,
    /// Until when it waits for others than these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others_first_until_us: u64,
    /// When the next attempt may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_until_us: Option<u64>,
    /// When a worker must have begun it, on the job's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_until_us: Option<u64>,
    /// Somebody cancels it, for the reason in `last`, and it has until then to end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceling_until_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Failure>,
}

/// One job of general tasks.
#[derive(Debug, Clone)]
pub struct TaskJob {
    pub(super) id: JobId,
    pub(super) state: JobState,
    pub(super) classes: Vec<ClassState>,
    pub(super) graph: Graph,
    pub(super) values: Values,
    pub(super) faults: BTreeMap<u32, RetryState>,
    /// Tasks whose next attempt comes later, by time.
    pub(super) postponed: BTreeSet<(u64, u32)>,
    /// Tasks that somebody cancels and that have until then to end by themselves, by time.
    pub(super) canceling: BTreeSet<(u64, u32)>,
    /// Tasks that a worker must have begun, by time on the job's clock.
    pub(super) queue: BTreeSet<(u64, u32)>,
    /// Tasks that are continued, and the one that gives what each gives; those as well that were skipped
    /// because it gave nothing.
    pub(super) continued: BTreeMap<u32, u32>,
    pub(super) leases: BTreeMap<Incarnation, BTreeSet<u32>>,
    /// Attempts that workers had when the job was loaded. The store may have lost who was given what since;
    /// it is not stored.
    pub(super) loaded: BTreeSet<(Incarnation, u32, u16)>,
    pub(super) trainings: Trainings,
    /// What all of them wait for, in words; for people alone.
    pub(super) trainings_wait_for: Option<String>,
    /// Where its tasks ran; for people alone.
    pub(super) last_runs: LastRuns,
    /// Workers that have leases.
    pub(super) workers: BTreeMap<Incarnation, WorkerInfo>,
    pub(super) changes: Changes,
    pub(super) outbox: PendingActions,
    /// When a part of the graph came last, or since when one may come, as far as this engine knows.
    pub(super) last_part_us: u64,
}

/// Two are equal when all that can influence a later decision is; averages and the order of heaps are not.
impl PartialEq for TaskJob {
    fn eq(&self, other: &Self) -> bool {
        // Without `..`: a field that is added is compared, too, or left out on purpose.
        let Self {
            id,
            state,
            classes,
            graph,
            values,
            faults,
            postponed,
            canceling,
            queue,
            continued,
            leases,
            trainings,
            workers,
            // Not stored, empty between two inputs, or for people alone.
            loaded: _,
            trainings_wait_for: _,
            last_runs: _,
            changes: _,
            outbox: _,
            last_part_us: _,
        } = self;
        *id == other.id
            && *state == other.state
            && *classes == other.classes
            && *graph == other.graph
            && *values == other.values
            && *faults == other.faults
            && *postponed == other.postponed
            && *canceling == other.canceling
            && *queue == other.queue
            && *continued == other.continued
            && *leases == other.leases
            && *trainings == other.trainings
            && *workers == other.workers
    }
}

impl TaskJob {
    /// A job that was just submitted, without its tasks.
    pub(super) fn new(id: JobId, digest: GraphDigest, nonce: u32, now_us: u64) -> Self {
        let state = JobState {
            phase: Phase::Queued,
            nonce,
            digest: Some(digest),
            submitted_us: now_us,
            started_us: None,
            ended_us: None,
            paused: false,
            unled_us: 0,
            cancel_reason: String::new(),
            canceling_until_us: None,
        };
        let mut job = Self::empty(id, state);
        job.last_part_us = now_us;
        job.changes.spec = true;
        job.changes.job_state = true;
        job.tell(Happening::JobSubmitted(Submitted::Tasks), now_us);
        job
    }

    pub(super) fn empty(id: JobId, state: JobState) -> Self {
        Self {
            id,
            state,
            classes: Vec::new(),
            graph: Graph::default(),
            values: Values::default(),
            faults: BTreeMap::new(),
            postponed: BTreeSet::new(),
            canceling: BTreeSet::new(),
            queue: BTreeSet::new(),
            continued: BTreeMap::new(),
            leases: BTreeMap::new(),
            loaded: BTreeSet::new(),
            trainings: Trainings::default(),
            trainings_wait_for: None,
            last_runs: LastRuns::default(),
            workers: BTreeMap::new(),
            changes: Changes::default(),
            outbox: PendingActions::default(),
            last_part_us: 0,
        }
    }

    /// The job's name.
    pub fn name(&self) -> &JobId {
        &self.id
    }

    /// What tells it from others of its name.
    pub(in crate::core) fn nonce(&self) -> u32 {
        self.state.nonce
    }

    /// The submission that has made it.
    pub(super) fn submission(&self) -> SubmissionId {
        SubmissionId { job: self.id.clone(), nonce: self.state.nonce }
    }

    /// Whether it is the job of this submission, and none that had or took its name.
    pub(super) fn is_of(&self, submission: &SubmissionId) -> bool {
        (&self.id, self.state.nonce) == (&submission.job, submission.nonce)
    }

    /// When it was over, in epoch µs.
    pub fn ended_us(&self) -> Option<u64> {
        self.state.ended_us
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.state.phase
    }

    /// What there is of the graph with this digest; `None` if the job is of another one.
    pub fn receipt(&self, digest: GraphDigest) -> Option<GraphReceipt> {
        let receipt = GraphReceipt {
            nonce: self.state.nonce,
            tasks: self.graph.len(),
            is_closed: self.state.phase != Phase::Queued,
        };
        (self.state.digest == Some(digest)).then_some(receipt)
    }

    /// Where it stands, as people are told.
    pub fn shown(&self) -> JobPhase {
        match self.state.paused && !self.state.phase.is_over() {
            _ if self.is_canceling() => JobPhase::Canceling,
            true => JobPhase::Paused,
            false => self.state.phase.shown(),
        }
    }

    /// The worker that came last.
    pub fn newest_worker(&self) -> Incarnation {
        self.workers.keys().next_back().copied().unwrap_or_default()
    }

    pub(super) fn is_running(&self) -> bool {
        self.state.phase == Phase::Running
    }

    /// What tasks of the same kind as this one have in common.
    pub(super) fn class_of(&self, task: u32) -> &ClassState {
        self.class(self.graph.slot(task).class)
    }

    pub(super) fn class(&self, class: ClassIndex) -> &ClassState {
        &self.classes[class.0 as usize]
    }

    /// What each task of a class takes of its worker.
    pub(super) fn resources_of(&self, class: ClassIndex) -> &Resources {
        &self.class(class).class.rules.needs.resources
    }

    pub(super) fn class_mut(&mut self, class: ClassIndex) -> &mut ClassState {
        &mut self.classes[class.0 as usize]
    }

    /// All tasks have come.
    pub(super) fn start(&mut self, now_us: u64) {
        self.state.phase = Phase::Running;
        self.state.started_us = Some(now_us);
        self.changes.job_state = true;
        self.tell(Happening::Started(Begun::Tasks(self.graph.len())), now_us);
        (0..self.graph.len()).for_each(|task| self.ready_if_met(task));
    }

    pub(super) fn ready_if_met(&mut self, task: u32) {
        let slot = self.graph.slot(task);
        if slot.unmet == 0 && slot.state == TaskState::Waiting {
            self.make_ready(task);
        }
    }

    /// A task can be given to a worker.
    fn make_ready(&mut self, task: u32) {
        self.graph.set_state(task, TaskState::Ready);
        if self.class_of(task).class.rules.queue_limit_ms.is_some() {
            self.outbox.queued.push(task);
        }
        self.offer(task);
    }

    pub(super) fn offer(&mut self, task: u32) {
        let class = self.graph.slot(task).class;
        if let Work::Train(_) = self.class(class).class.work {
            self.trainings.ready.insert(task);
            return;
        }
        if self.faults.get(&task).is_some_and(|faults| faults.alone) {
            self.class_mut(class).alone.insert(task);
            self.outbox.offered.push(class);
            return;
        }
        if self.class(class).ready.is_empty() || !self.avoided(task).is_empty() {
            self.outbox.offered.push(class);
        }
        self.line_up(task);
    }

    /// A task that is ready waits for a worker.
    pub(super) fn line_up(&mut self, task: u32) {
        let avoids_some = !self.avoided(task).is_empty();
        let class = self.class_mut(self.graph.slot(task).class);
        if avoids_some {
            class.returned.insert(task);
        } else {
            class.ready.push(Reverse(task));
        }
    }

    /// Whether a task may be why workers were lost.
    pub(super) fn is_suspect(&self, task: u32) -> bool {
        self.faults.get(&task).is_some_and(|faults| faults.crashes > 0)
    }

    /// Whether its ready tasks may be given out.
    pub(super) fn gives_out(&self) -> bool {
        self.is_running() && !self.is_paused() && !self.is_canceling()
    }

    /// Whether somebody holds it up.
    pub(in crate::core) fn is_paused(&self) -> bool {
        self.state.paused
    }

    /// Stops giving out tasks, or goes on. What workers have already goes on.
    pub(in crate::core) fn pause(&mut self, paused: bool, now_us: u64) {
        self.state.paused = paused;
        self.changes.job_state = true;
        self.tell(if paused { Happening::Paused } else { Happening::Resumed }, now_us);
        self.restart_queue_deadline();
        let has_ready = |class: &ClassState| !(class.is_exhausted() && class.alone.is_empty());
        let waiting = self.classes.iter().enumerate().filter(|(_, class)| has_ready(class));
        self.outbox.offered.extend(waiting.map(|(class, _)| ClassIndex(class as u16)));
    }

    /// Ends the job: whatever is open is canceled, and what only other tasks would have taken is dropped.
    pub(super) fn end(&mut self, phase: Phase, now_us: u64) {
        for (worker, tasks) in std::mem::take(&mut self.leases) {
            for task in tasks {
                let class = self.graph.slot(task).class;
                self.outbox.recalled.push((worker, self.current_attempt(task)));
                self.outbox.freed.push((worker, class));
            }
            self.changes.leases.insert(worker);
        }
        for task in 0..self.graph.len() {
            if !self.graph.state(task).is_final() {
                self.graph.set_state(task, TaskState::Canceled);
                self.release_arguments(task);
            }
        }
        self.clear_schedules();
        self.graph.close();
        self.outbox.released.extend(self.values.drop_intermediate());
        // Nobody has anything of it any more.
        self.changes.workers.extend(self.workers.keys().copied());
        self.workers.clear();
        let cancel_reason = self.state.cancel_reason.clone();
        self.tell(Happening::JobEnded { phase: phase.clone(), cancel_reason }, now_us);
        self.state.phase = phase;
        self.state.canceling_until_us = None;
        self.state.ended_us = Some(now_us);
        self.changes.job_state = true;
    }

    /// Forgets what is ready, trains, waits for a moment or is continued. Why something was skipped is still
    /// to be told.
    pub(super) fn clear_schedules(&mut self) {
        for class in &mut self.classes {
            class.ready = BinaryHeap::new();
            class.returned = ReturnedTasks::default();
            class.alone.clear();
        }
        self.end_trainings();
        self.postponed.clear();
        self.canceling.clear();
        self.queue.clear();
        let graph = &self.graph;
        self.continued.retain(|parent, _| graph.state(*parent) == TaskState::Skipped);
    }

    /// Ends the job where nothing is left to do, or where nobody takes a failure after all that was to go on
    /// as an outcome.
    pub(super) fn end_if_due(&mut self, now_us: u64) {
        let enders = std::mem::take(&mut self.outbox.ended_takers);
        if !self.is_running() {
            return;
        }
        if let Some(failed) = self.uncaught(&enders) {
            return self.end_with(failed, now_us);
        }
        if self.graph.is_over() {
            let phase = if self.is_canceling() { Phase::Canceled } else { Phase::Done };
            self.end(phase, now_us);
        }
    }

    pub(super) fn tell(&mut self, what: Happening, now_us: u64) {
        self.changes.events.push(Event { at_us: now_us, what });
    }
}
