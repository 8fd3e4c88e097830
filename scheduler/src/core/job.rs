//! One job: its spec, its state, and the small moves that everything else is made of.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    change_set::ChangeSet,
    evaluation::EvaluationPart,
    event::{Begun, Event, Happening, NamedWorker, Submitted},
    member::{Member, Membership},
    records::{JobState, Phase, Task, TaskBody},
    state_dirs::StateDirs,
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
    turn::Turn,
    worker_protocol::{Assignment, GradientUse, TaskKey, Work},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId, TrainingTaskState},
    ids::{Generation, Incarnation, JobId, NodeName, ProcessId, RunId, ShardIndex, Superstep},
    samples::SampleRange,
    spec::{NodeKind, TrainSpec, ValidJob},
    sync::{Aggregation, Clocks, EndRule},
};

/// Everything about one job. Two are equal when all that can influence a later decision is.
#[derive(Debug, Clone)]
pub struct Job {
    pub(super) spec: ValidJob,
    pub(super) state: JobState,
    pub(super) members: BTreeMap<Incarnation, Member>,
    pub(super) supersteps: BTreeMap<Superstep, SuperstepState>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// Final iterations and barriers by end time: the order in which they are forgotten.
    pub(super) finished: BTreeSet<(u64, TaskId)>,
    /// Clocks of the active workers.
    pub(super) clocks: Clocks,
    /// Samples that are set aside for iterations which nobody was granted yet: the sum over all members,
    /// which each grant needs.
    pub(super) samples_set_aside: u64,
    pub(super) changes: ChangeSet,
    pub(super) grant_queue: GrantQueue,
    /// Why the shards have not opened it yet, in words. Not stored: they are asked again by every engine.
    pub(super) opening_problem: Option<String>,
    /// Shards that have not yet told this engine, which has loaded the job, how far they are. Until all
    /// have, nobody knows what the store may have lost: an iteration that was granted and forgotten must
    /// not be granted again with other samples. Not stored.
    pub(super) unattached: BTreeSet<ShardIndex>,
}

/// Workers for whom something has changed since the last grant. Empty between two inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantQueue {
    pub workers: BTreeSet<Incarnation>,
    /// A superstep opened, was ordered or closed, or samples came back: anybody may go on.
    pub everybody: bool,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        // Without `..`: a field that is added is compared, too, or left out on purpose.
        let Self {
            spec,
            state,
            members,
            supersteps,
            tasks,
            finished,
            clocks,
            samples_set_aside,
            // Empty between two inputs, or not stored.
            changes: _,
            grant_queue: _,
            opening_problem: _,
            unattached: _,
        } = self;
        *spec == other.spec
            && *state == other.state
            && *members == other.members
            && *supersteps == other.supersteps
            && *tasks == other.tasks
            && *finished == other.finished
            && *clocks == other.clocks
            && *samples_set_aside == other.samples_set_aside
    }
}

impl Job {
    /// A job that was just submitted.
    pub(super) fn new(spec: ValidJob, nonce: u32, shards: u32, now_us: u64) -> Self {
        let state = JobState::new(spec.train(), Generation::first(nonce), shards, now_us);
        let mut job = Self {
            spec,
            state,
            members: BTreeMap::new(),
            supersteps: BTreeMap::new(),
            tasks: BTreeMap::new(),
            finished: BTreeSet::new(),
            clocks: Clocks::default(),
            samples_set_aside: 0,
            changes: ChangeSet { spec: true, job_state: true, ..ChangeSet::default() },
            grant_queue: GrantQueue::default(),
            opening_problem: None,
            unattached: BTreeSet::new(),
        };
        for node in &job.spec.nodes {
            let body = match node.kind {
                NodeKind::Train(_) => TaskBody::Train,
                NodeKind::Evaluate => TaskBody::Evaluate,
                NodeKind::Snapshot => TaskBody::Snapshot,
            };
            let mut task = Task::new(body, u32::try_from(node.after.len()).unwrap_or(u32::MAX), now_us);
            task.control = node.after.iter().cloned().map(TaskId::Node).collect();
            let id = TaskId::Node(node.name.clone());
            job.changes.tasks.insert(id.clone());
            job.tasks.insert(id, task);
        }
        let nodes = job.spec.nodes.len();
        job.tell(Happening::JobSubmitted(Submitted::Training { nodes }), now_us);
        job
    }

    /// The shards hold the parameters: training may begin, or go on.
    pub(super) fn opened(&mut self, state_dirs: &StateDirs, turn: &mut Turn<'_>) {
        if self.state.phase != Phase::Opening {
            return;
        }
        self.state.phase = Phase::Running;
        self.state.checkpoints.known_through = None;
        self.note_state_dirs(state_dirs);
        self.opening_problem = None;
        self.grant_queue.everybody = true;
        self.state.opened_us = Some(turn.now_us);
        let counted = self.counted();
        self.state.recent_rate.begin_anew(turn.now_us, counted);
        self.changes.job_state = true;
        if self.state.started_us.is_none() {
            self.state.started_us = Some(turn.now_us);
            self.forget_downtime();
            self.state.trained_before_pause_us = self.state.paused.then_some(0);
            let workers = self.active().count();
            self.tell(Happening::Started(Begun::Workers(workers)), turn.now_us);
        }
        self.clocks_changed(turn.effects);
    }

    /// The shards could not open it so far, and are asked again.
    pub(super) fn opening_delayed(&mut self, reason: String) {
        if self.state.phase == Phase::Opening {
            self.opening_problem = Some(reason);
            self.wait_for(Some(self.waits_for_shards()));
        }
    }

    pub(super) fn id(&self) -> &JobId {
        &self.spec.id
    }

    /// What it waits for as a whole, in words.
    pub fn waits_for(&self) -> Option<&str> {
        self.state.waiting_for.as_deref()
    }

    /// How it trains.
    pub fn train(&self) -> &TrainSpec {
        self.spec.train()
    }

    /// The checkpoint of another job from which it went on, as `JOB/NUMBER`.
    pub(super) fn resumed_from(&self) -> Option<String> {
        self.train().resume.as_ref().map(|resume| format!("{}/{}", resume.job, resume.checkpoint))
    }

    pub(super) fn train_node(&self) -> &NodeName {
        &self.spec.train_node().name
    }

    /// Workers that take part, in the order of their incarnations.
    pub fn active(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.members_that(|member| member.membership == Membership::Active)
    }

    /// Members of whom this is so, in the order of their incarnations.
    pub(super) fn members_that(&self, is: fn(&Member) -> bool) -> impl Iterator<Item = Incarnation> + '_ {
        self.members.iter().filter(move |(_, member)| is(member)).map(|(worker, _)| *worker)
    }

    /// Whether a worker takes part, or another training slot of its process, if it has others.
    pub(super) fn trains_on(&self, process: Option<ProcessId>, worker: Incarnation) -> bool {
        let is_there = |(member, m): (&Incarnation, &Member)| {
            m.is_present() && (*member == worker || process.is_some() && m.about.process == process)
        };
        !self.phase().is_over() && self.members.iter().any(is_there)
    }

    pub(super) fn member_mut(&mut self, worker: Incarnation) -> &mut Member {
        self.changes.job_state = true;
        self.grant_queue.workers.insert(worker);
        self.changes.members.insert(worker);
        self.members.get_mut(&worker).expect("callers name members of the job")
    }

    pub(super) fn superstep_mut(&mut self, superstep: Superstep) -> &mut SuperstepState {
        self.changes.job_state = true;
        self.grant_queue.everybody = true;
        self.changes.supersteps.insert(superstep);
        self.supersteps.get_mut(&superstep).expect("callers name supersteps of the job")
    }

    /// Moves a task, remembers when it ended, and says whether it moved. A move that its state does not
    /// accept comes of a late or repeated message, or of a decision about a task that has ended: it
    /// changes nothing.
    pub(super) fn apply(&mut self, id: &TaskId, event: &TaskEvent, now_us: u64) -> bool {
        let Some(task) = self.tasks.get_mut(id) else { return false };
        let Some(next) = task.state.apply(event, task.attempts) else { return false };
        if let TrainingTaskState::Leased { attempt, .. } = next {
            task.attempts = attempt;
        }
        if next.is_final() {
            task.ended_ms = Some(now_us / 1000);
            if !task.body.is_node() {
                self.finished.insert((now_us / 1000, id.clone()));
            }
        }
        task.state = next;
        self.changes.job_state = true;
        self.changes.tasks.insert(id.clone());
        true
    }

    /// Which run of which job it is now.
    pub fn run(&self) -> RunId {
        RunId { job: self.id().clone(), generation: self.state.generation }
    }

    /// Whether what is said of a run is said of this one, and not too late.
    pub(super) fn is_run(&self, run: &RunId) -> bool {
        self.state.generation == run.generation && *self.id() == run.job
    }

    pub(super) fn key(&self, task: TaskId, attempt: u32) -> TaskKey {
        TaskKey { run: self.run(), task, attempt }
    }

    /// Tasks leased to a worker, iterations in their order.
    pub(super) fn leased_to(&self, worker: Incarnation) -> Vec<TaskId> {
        let leased = |t: &Task| matches!(t.state, TrainingTaskState::Leased { holder: Holder::Worker(w), .. } if w == worker);
        let iteration = |seq| TaskId::Iteration { worker, seq };
        let prepare = self.tasks.get_key_value(&TaskId::Prepare(worker));
        let own = prepare.into_iter().chain(self.tasks.range(iteration(0)..=iteration(u64::MAX)));
        // Evaluations and nodes sort behind everything else.
        let others = self.tasks.range(TaskId::Clock(u64::MAX)..);
        own.chain(others).filter(|(_, t)| leased(t)).map(|(id, _)| id.clone()).collect()
    }

    /// The assignment behind a leased task of a worker.
    pub(super) fn assignment(&self, id: &TaskId) -> Option<Assignment> {
        let task = self.tasks.get(id)?;
        let TrainingTaskState::Leased { holder: Holder::Worker(holder), attempt } = task.state else {
            return None;
        };
        let work = match (&task.body, id) {
            (TaskBody::Iteration { superstep, range, learning_rate }, TaskId::Iteration { worker, seq }) => {
                Work::Iterate {
                    superstep: *superstep,
                    seq: *seq,
                    range: *range,
                    learning_rate: *learning_rate,
                    min_clock: self.min_clock(*worker, *seq),
                    gradient: self.gradient_use(*worker, *superstep, *range)?,
                }
            }
            (TaskBody::Prepare, TaskId::Prepare(worker)) => self.rehearsal(*worker),
            (TaskBody::Evaluate, _) => {
                Work::Evaluate { version: self.state.closed, part: EvaluationPart::WHOLE_TEST }
            }
            (TaskBody::EvaluatePart { part }, _) => {
                Work::Evaluate { version: self.state.closed, part: *part }
            }
            _ => return None,
        };
        let worker_number = self.members.get(&holder).map_or(0, |member| member.number);
        Some(Assignment { key: self.key(id.clone(), attempt), worker_number, work })
    }

    /// The clock that everybody must have reached before an iteration may pull; 0: none.
    pub(super) fn min_clock(&self, worker: Incarnation, seq: u64) -> u64 {
        let behind = self.state.policy.as_dyn().gate(worker, &self.clocks).behind;
        let clock = self.members.get(&worker).map_or(0, |m| m.clock_base) + seq;
        behind.map_or(0, |behind| clock.saturating_sub(behind + 1))
    }

    /// What becomes of the gradient of an iteration.
    fn gradient_use(
        &self,
        worker: Incarnation,
        superstep: Superstep,
        range: SampleRange,
    ) -> Option<GradientUse> {
        let record = self.supersteps.get(&superstep)?;
        Some(match record.aggregation {
            // Every sample counts alike: a push that is smaller than the average is a smaller step.
            Aggregation::PerPush if record.balanced => {
                GradientUse::ApplyOnArrival { scale: range.len as f32 / self.train().batch as f32 }
            }
            Aggregation::PerPush => GradientUse::ApplyOnArrival { scale: 1.0 },
            Aggregation::PerBarrier => GradientUse::JoinRound,
            Aggregation::LocalAverage | Aggregation::LocalOuter { .. } => {
                let entry = record.roster.get(&worker)?;
                GradientUse::LocalStep { first: entry.base + 1, last: entry.last? }
            }
        })
    }

    /// A worker in words: the name that people gave it, and the incarnation under which it takes part.
    pub(super) fn display_name(&self, worker: Incarnation) -> String {
        match self.members.get(&worker).map(|m| m.about.name.as_str()) {
            None | Some("") => worker.to_string(),
            Some(name) => format!("{name} ({worker})"),
        }
    }

    /// The first `most` of these workers by name, and how many more there are; `None` if there are none.
    pub(super) fn name_some(&self, workers: &[Incarnation], most: usize) -> Option<String> {
        let named: Vec<String> = workers.iter().take(most).map(|w| self.display_name(*w)).collect();
        let more = match workers.len().saturating_sub(most) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
    }

    /// A worker as events name it.
    pub(super) fn named(&self, worker: Incarnation) -> NamedWorker {
        let name = self.members.get(&worker).map(|m| m.about.name.clone()).unwrap_or_default();
        NamedWorker { id: worker, name }
    }

    pub(super) fn tell(&mut self, what: Happening, now_us: u64) {
        self.changes.events.push(Event { at_us: now_us, what });
    }

    /// The next barrier in words, for the progress display.
    pub(super) fn next_barrier(&self, now_us: u64) -> String {
        let open = self.supersteps.iter().find(|(_, s)| !s.is_closed());
        // None comes of a job that is over, and none before the shards that it waits for.
        let comes = self.state.phase == Phase::Running && !self.awaits_shards();
        let Some((n, record)) = open.filter(|_| comes) else { return String::new() };
        match &record.phase {
            SuperstepPhase::Open(EndRule::Free) => "none planned".into(),
            SuperstepPhase::Open(_) => format!("{n}: watching speeds"),
            SuperstepPhase::Planning(_) => format!("{n}: planning"),
            SuperstepPhase::Ordered | SuperstepPhase::Closed { .. } => match record.sync_at_us {
                Some(at) if at >= now_us => format!("{n}: in {} ms", (at - now_us) / 1000),
                Some(at) => format!("{n}: due for {} ms", (now_us - at) / 1000),
                None => match record.roster.values().map(RosterEntry::iterations).max().unwrap_or(0) {
                    0 | 1 => format!("{n}: after each worker's next iteration"),
                    most => format!("{n}: after {most} iterations of each worker"),
                },
            },
        }
    }
}
