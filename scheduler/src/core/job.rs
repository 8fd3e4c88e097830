//! One job: its spec, its state, and the small moves that everything else is made of.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    fleet::SHARD_LOST,
    io::{Effect, SnapshotFile, Submission, TaskFault},
    lately::Lately,
    state::{Central, Counters, Curve, End, Member, Phase, Span, Standing, Task, TaskBody},
    touched::{Pulse, Touched},
    wire::{Assignment, TaskKey, Update, Work},
};
use crate::{
    graph::{Holder, TaskEvent, TaskId, TaskState},
    ids::{Generation, Incarnation, JobId, NodeName, Superstep},
    samples::{SampleCursor, SampleRange},
    spec::{JobSpec, NodeKind, TrainSpec},
    sync::{Clocks, Ending, Policy, Rounds},
};

/// Everything about one job. Two are equal when all that can influence a later decision is.
#[derive(Debug, Clone)]
pub struct Job {
    pub(super) spec: JobSpec,
    pub(super) central: Central,
    pub(super) members: BTreeMap<Incarnation, Member>,
    pub(super) spans: BTreeMap<Superstep, Span>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// Final iterations and barriers by end time: the order in which they are forgotten.
    pub(super) finished: BTreeSet<(u64, TaskId)>,
    /// Clocks of the active workers.
    pub(super) clocks: Clocks,
    pub(super) touched: Touched,
    /// Iterations reported since the last point of the curve.
    pub(super) pulse: Pulse,
    pub(super) due: Due,
}

/// Workers for whom something has changed since the last grant. Empty between two inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct Due {
    pub workers: BTreeSet<Incarnation>,
    /// A superstep opened, was ordered or closed, or samples came back: anybody may go on.
    pub everybody: bool,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.central == other.central
            && self.members == other.members
            && self.spans == other.spans
            && self.tasks == other.tasks
            && self.finished == other.finished
            && self.clocks == other.clocks
    }
}

impl Job {
    /// A job that was just submitted. `spec` has passed [`JobSpec::validate`].
    pub(super) fn new(spec: JobSpec, nonce: u32, shards: u32, now_us: u64) -> Self {
        let (_, train) = spec.train().expect("a validated job has a training node");
        let central = Central {
            phase: Phase::Queued,
            generation: Generation::first(nonce),
            shards,
            policy: Policy::new(train.policy),
            cursor: SampleCursor::new(train.epoch_samples(), train.epochs),
            next_superstep: Superstep(0),
            clock_revision: 0,
            closed: 0,
            counters: Counters::default(),
            lately: Lately::default(),
            counted: BTreeMap::new(),
            epochs_complete: 0,
            loss: None,
            submitted_us: now_us,
            started_us: None,
            trained_us: None,
            ended_us: None,
            evaluation: None,
            snapshot: None,
            keeping: false,
            waiting_for: None,
            excluded: BTreeMap::new(),
            retries: BTreeMap::new(),
            curve: Curve::default(),
        };
        let mut job = Self {
            spec,
            central,
            members: BTreeMap::new(),
            spans: BTreeMap::new(),
            tasks: BTreeMap::new(),
            finished: BTreeSet::new(),
            clocks: Clocks::default(),
            touched: Touched { spec: true, central: true, ..Touched::default() },
            pulse: Pulse::default(),
            due: Due::default(),
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
            job.touched.tasks.insert(id.clone());
            job.tasks.insert(id, task);
        }
        job.event("job_submitted", now_us, vec![("nodes", job.spec.nodes.len().to_string())]);
        job
    }

    /// Whether this is the job of that very submission.
    pub(super) fn was_submitted_as(&self, submission: &Submission) -> bool {
        self.central.generation.nonce() == submission.nonce && self.spec == *submission.spec
    }

    /// The shards hold the initial parameters: training may begin.
    pub(super) fn opened(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        if self.central.phase != Phase::Opening {
            return;
        }
        self.central.phase = Phase::Running;
        self.due.everybody = true;
        self.central.started_us = Some(now_us);
        self.touched.central = true;
        self.event("started", now_us, vec![("workers", self.active().count().to_string())]);
        fx.extend(self.clock_roster());
    }

    pub(super) fn id(&self) -> &JobId {
        &self.spec.id
    }

    pub(super) fn train(&self) -> &TrainSpec {
        self.spec.train().expect("a validated job has a training node").1
    }

    pub(super) fn train_node(&self) -> &NodeName {
        &self.spec.train().expect("a validated job has a training node").0.name
    }

    /// Workers that take part, in the order of their incarnations.
    pub(super) fn active(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.members.iter().filter(|(_, m)| m.standing == Standing::Active).map(|(w, _)| *w)
    }

    pub(super) fn member(&mut self, worker: Incarnation) -> &mut Member {
        self.touched.central = true;
        self.due.workers.insert(worker);
        self.touched.members.insert(worker);
        self.members.get_mut(&worker).expect("callers name members of the job")
    }

    pub(super) fn span(&mut self, superstep: Superstep) -> &mut Span {
        self.touched.central = true;
        self.due.everybody = true;
        self.touched.spans.insert(superstep);
        self.spans.get_mut(&superstep).expect("callers name supersteps of the job")
    }

    /// Moves a task, remembers when it ended, and reports whether the move was legal. An illegal one is a late or
    /// repeated message: it changes nothing.
    pub(super) fn apply(&mut self, id: &TaskId, event: &TaskEvent, now_us: u64) -> bool {
        let Some(task) = self.tasks.get_mut(id) else { return false };
        let Ok(next) = task.state.apply(event, task.attempts) else { return false };
        if let TaskState::Leased { attempt, .. } = next {
            task.attempts = attempt;
        }
        if next.is_final() {
            task.ended_ms = Some(now_us / 1000);
            if !task.body.is_node() {
                self.finished.insert((now_us / 1000, id.clone()));
            }
        }
        task.state = next;
        self.touched.central = true;
        self.touched.tasks.insert(id.clone());
        true
    }

    pub(super) fn key(&self, task: TaskId, attempt: u32) -> TaskKey {
        TaskKey { job: self.id().clone(), generation: self.central.generation, task, attempt }
    }

    /// Tasks leased to a worker, iterations in their order.
    pub(super) fn leased_to(&self, worker: Incarnation) -> Vec<TaskId> {
        let leased =
            |t: &Task| matches!(t.state, TaskState::Leased { holder: Holder::Worker(w), .. } if w == worker);
        let iteration = |seq| TaskId::Iteration { worker, seq };
        let own = self.tasks.range(iteration(0)..=iteration(u64::MAX));
        // Nodes sort behind everything that the planner made.
        let nodes = self.tasks.range(TaskId::Barrier(Superstep(u64::MAX))..);
        own.chain(nodes).filter(|(_, t)| leased(t)).map(|(id, _)| id.clone()).collect()
    }

    /// The assignment behind a leased task of a worker.
    pub(super) fn assignment(&self, id: &TaskId) -> Option<Assignment> {
        let task = self.tasks.get(id)?;
        let TaskState::Leased { holder: Holder::Worker(_), attempt } = task.state else { return None };
        let work = match (&task.body, id) {
            (TaskBody::Iteration { superstep, range, learning_rate }, TaskId::Iteration { worker, seq }) => {
                Work::Iterate {
                    superstep: *superstep,
                    seq: *seq,
                    range: *range,
                    learning_rate: *learning_rate,
                    min_clock: self.min_clock(*worker, *seq),
                    update: self.update(*worker, *superstep, *range)?,
                }
            }
            (TaskBody::Evaluate, _) => Work::Evaluate { version: self.central.closed },
            _ => return None,
        };
        Some(Assignment { key: self.key(id.clone(), attempt), work })
    }

    /// The clock that everybody must have reached before an iteration may pull; 0: none.
    pub(super) fn min_clock(&self, worker: Incarnation, seq: u64) -> u64 {
        let behind = self.central.policy.as_dyn().gate(worker, &self.clocks).behind;
        let clock = self.members.get(&worker).map_or(0, |m| m.clock_base) + seq;
        behind.map_or(0, |behind| clock.saturating_sub(behind + 1))
    }

    /// What becomes of the gradient of an iteration.
    fn update(&self, worker: Incarnation, superstep: Superstep, range: SampleRange) -> Option<Update> {
        let span = self.spans.get(&superstep)?;
        Some(match span.rounds {
            // Every sample counts alike: a push that is smaller than the average is a smaller step.
            Rounds::PerPush if span.balanced => {
                Update::PerPush { scale: range.len as f32 / self.train().batch as f32 }
            }
            Rounds::PerPush => Update::PerPush { scale: 1.0 },
            Rounds::PerBarrier => Update::PerBarrier,
            Rounds::LocalAverage | Rounds::LocalOuter { .. } => {
                let share = span.roster.get(&worker)?;
                Update::Local { first: share.base + 1, last: share.last? }
            }
        })
    }

    /// A worker in words: the name that people gave it, and the incarnation under which it takes part.
    pub(super) fn called(&self, worker: Incarnation) -> String {
        match self.members.get(&worker).map(|m| m.about.name.as_str()) {
            None | Some("") => worker.to_string(),
            Some(name) => format!("{name} ({worker})"),
        }
    }

    /// The fields of an event that say which worker it is about.
    pub(super) fn about_worker(&self, worker: Incarnation) -> Vec<(&'static str, String)> {
        let name = self.members.get(&worker).map(|m| m.about.name.clone()).unwrap_or_default();
        vec![("worker", worker.to_string()), ("name", name)]
    }

    pub(super) fn event(&mut self, what: &'static str, now_us: u64, mut fields: Vec<(&'static str, String)>) {
        fields.insert(0, ("what", what.to_owned()));
        fields.insert(1, ("at_ms", (now_us / 1000).to_string()));
        self.touched.events.push(fields);
    }

    /// Ends the job: everything open is canceled, every worker is told, the shards forget it. Parameters of which there is
    /// no snapshot are written first, unless a part of them is lost.
    pub(super) fn end(&mut self, phase: Phase, now_us: u64, fx: &mut Vec<Effect>) {
        for worker in self.members.keys().copied().collect::<Vec<_>>() {
            for id in self.leased_to(worker) {
                let attempt = self.tasks.get(&id).map_or(0, |t| t.attempts);
                fx.push(Effect::Revoke { worker, key: self.key(id, attempt) });
            }
        }
        let open: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| !t.state.is_final()).map(|(id, _)| id.clone()).collect();
        for id in open {
            self.apply(&id, &TaskEvent::Canceled, now_us);
        }
        let mut fields = vec![("state", phase.word().to_owned())];
        if let Phase::Failed { code, reason } = &phase {
            fields.extend([("code", code.clone()), ("reason", reason.clone())]);
        }
        self.event("job_ended", now_us, fields);
        let whole = !matches!(&phase, Phase::Failed { code, .. } if code == SHARD_LOST);
        let keep = self.central.phase == Phase::Running && self.central.snapshot.is_none() && whole;
        self.central.phase = phase;
        self.central.ended_us = Some(now_us);
        self.central.keeping = keep;
        self.wait_for(None);
        self.touched.central = true;
        let (job, generation) = (self.id().clone(), self.central.generation);
        fx.push(Effect::CloseShards { job, generation, keep });
    }

    /// The last parameters of a job that is over are written, or cannot be.
    pub(super) fn weights_kept(&mut self, outcome: Result<SnapshotFile, TaskFault>, now_us: u64) {
        if !std::mem::take(&mut self.central.keeping) {
            return;
        }
        self.touched.central = true;
        match outcome {
            Ok(file) => {
                self.event("weights_kept", now_us, vec![("path", file.path.clone())]);
                self.central.snapshot = Some(file);
            }
            Err(fault) => {
                self.event("weights_lost", now_us, vec![("code", fault.code), ("reason", fault.reason)]);
            }
        }
    }

    /// The next barrier in words, for the progress display.
    pub(super) fn next_barrier(&self, now_us: u64) -> String {
        let Some((n, span)) = self.spans.iter().find(|(_, s)| !s.is_closed()) else { return String::new() };
        match &span.end {
            End::Open(Ending::Free) => "none planned".into(),
            End::Open(_) => format!("{n}: watching speeds"),
            End::Planning(_) => format!("{n}: planning"),
            End::Ordered | End::Closed { .. } => match span.sync_at_us {
                Some(at) => format!("{n}: in {} ms", at.saturating_sub(now_us) / 1000),
                None => format!("{n}: after each worker's next iteration"),
            },
        }
    }
}

impl Span {
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.end, End::Closed { .. })
    }

    /// Whether somebody who joins now still enters.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.end, End::Open(_))
    }
}

impl Member {
    pub(super) fn is_gone(&self) -> bool {
        self.standing == Standing::Gone
    }
}
