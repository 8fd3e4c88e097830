//! Recovery is loading: a job is read back as it was committed, and whatever it had asked of others is asked
//! again.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::{
    change_set::ChangeSet,
    effects::Effect,
    job::{GrantQueue, Job},
    member::{ClockRecord, Member, Membership},
    records::{Counters, Phase, TaskBody},
    shard_protocol::SnapshotFile,
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
};
use crate::{
    graph::{Holder, TaskId, TrainingTaskState},
    ids::{Generation, Incarnation, JobId, Superstep},
    spec::{JobSpec, ValidJob},
    sync::{Clocks, EndRule},
};

/// A job as the store keeps it: fields and values of its hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredJob {
    /// The [`JobSpec`] as JSON, or what says that it holds general tasks; empty: there are no records.
    pub spec: String,
    /// The record of the job itself, as JSON.
    pub job_state: String,
    /// Task id to JSON; none in a job of general tasks.
    pub tasks: BTreeMap<String, String>,
    /// Incarnation to JSON: a [`Member`], or in a job of general tasks what a worker said of itself.
    pub workers: BTreeMap<String, String>,
    /// Number of the superstep to JSON: a [`SuperstepState`]; none in a job of general tasks.
    pub supersteps: BTreeMap<String, String>,
    /// Empty in a training.
    pub graph: StoredGraph,
}

/// Its general tasks: see [`GraphChanges`](super::GraphChanges).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredGraph {
    /// Index of the class, without gaps from 0, to JSON.
    pub classes: BTreeMap<String, String>,
    /// Index of the first task of a chunk to a JSON list of tasks.
    pub chunks: BTreeMap<String, String>,
    /// Number of the window to states, a letter each.
    pub windows: BTreeMap<String, String>,
    /// Task to what it gave, behind a preview if people may look at it.
    pub values: BTreeMap<String, Vec<u8>>,
    /// Task to JSON: its attempts, its last failure, and until when it rests or may be queued.
    pub faults: BTreeMap<String, String>,
    /// Incarnation to the tasks that it has, as ranges such as `1-3,7`.
    pub leases: BTreeMap<String, String>,
}

/// A stored job that cannot be read: written by another release, or damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E030] the stored {what} `{field}` cannot be read: {cause}")]
pub struct Unreadable {
    /// Kind of the record: `job`, `task`, `worker`, `superstep`, or a part of a graph such as `lease`.
    pub what: &'static str,
    /// Its field in the hash, or the one that is missing there.
    pub field: String,
    /// What is wrong with it, in words.
    pub cause: String,
}

pub(super) fn parse<T: DeserializeOwned>(
    what: &'static str,
    field: &str,
    text: &str,
) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|e| Unreadable { what, field: field.to_owned(), cause: e.to_string() })
}

fn parse_map<K, V>(what: &'static str, map: &BTreeMap<String, String>) -> Result<BTreeMap<K, V>, Unreadable>
where
    K: std::str::FromStr<Err: std::fmt::Display> + Ord,
    V: DeserializeOwned,
{
    map.iter()
        .map(|(field, text)| {
            let key = field.parse().map_err(|e: K::Err| Unreadable {
                what,
                field: field.clone(),
                cause: e.to_string(),
            })?;
            Ok((key, parse(what, field, text)?))
        })
        .collect()
}

impl Job {
    /// Reads a job back. Equal to the live one at the moment of its last commit.
    pub fn load(stored: &StoredJob) -> Result<Self, Unreadable> {
        let spec: JobSpec = parse("job", "spec", &stored.spec)?;
        let spec = spec.validated().map_err(|e| Unreadable {
            what: "job",
            field: "spec".into(),
            cause: e.to_string(),
        })?;
        let mut clocks = Clocks::default();
        for (worker, record) in parse_map("worker", &stored.workers)? {
            if let ClockRecord { clock: Some(clock) } = record {
                clocks.join(worker, Some(clock));
            }
        }
        let mut job = Self {
            spec,
            state: parse("job", "job_state", &stored.job_state)?,
            members: parse_map("worker", &stored.workers)?,
            supersteps: parse_map("superstep", &stored.supersteps)?,
            tasks: parse_map("task", &stored.tasks)?,
            finished: BTreeSet::new(),
            clocks,
            samples_set_aside: 0,
            changes: ChangeSet::default(),
            grant_queue: GrantQueue::default(),
            opening_problem: None,
            unattached: BTreeSet::new(),
        };
        job.check_records()?;
        let set_aside = job.members.values().flat_map(|member| &member.reserved);
        job.samples_set_aside = set_aside.map(|range| u64::from(range.len)).sum();
        job.finished = job
            .tasks
            .iter()
            .filter(|(_, t)| !t.body.is_node() && t.state.is_final())
            .map(|(id, t)| (t.ended_ms.unwrap_or(0), id.clone()))
            .collect();
        for record in job.supersteps.values_mut() {
            let finished = |w: &Incarnation| job.members.get(w).map_or(0, |m| m.finished);
            if record.bounds_lead() {
                let inside =
                    |(w, entry): (&Incarnation, &RosterEntry)| (finished(w).saturating_sub(entry.base), *w);
                record.progress = record.roster.iter().map(inside).collect();
            }
            if let SuperstepPhase::Open(EndRule::Monitor { pushes }) = record.phase {
                let unobserved = |(w, entry): &(&Incarnation, &RosterEntry)| {
                    job.members.get(w).is_some_and(|m| m.finished < entry.base + pushes)
                };
                record.unobserved = record.roster.iter().filter(unobserved).map(|(w, _)| *w).collect();
            }
        }
        Ok(job)
    }

    /// What refers to each other must be there: a record that lacks something would stop the job, or the
    /// engine.
    fn check_records(&self) -> Result<(), Unreadable> {
        let lacks = |what, field: String, cause: &str| {
            Err(Unreadable { what, field, cause: format!("the records contradict each other: {cause}") })
        };
        for node in &self.spec.nodes {
            if !self.tasks.contains_key(&TaskId::Node(node.name.clone())) {
                return lacks("task", node.name.to_string(), "the node is not in the graph");
            }
        }
        for (id, task) in &self.tasks {
            let known = match id {
                TaskId::Prepare(worker) | TaskId::Iteration { worker, .. } => {
                    task.state.is_final() || self.members.contains_key(worker)
                }
                TaskId::Barrier(n) => task.state.is_final() || self.supersteps.contains_key(n),
                TaskId::Clock(_) | TaskId::Evaluation { .. } | TaskId::Node(_) => true,
            };
            if !known {
                return lacks("task", id.to_string(), "its worker or superstep is missing");
            }
            if let TrainingTaskState::Leased { holder: Holder::Worker(worker), .. } = task.state
                && !self.members.contains_key(&worker)
            {
                return lacks("task", id.to_string(), "its worker is missing");
            }
        }
        for (superstep, record) in self.supersteps.iter().filter(|(_, record)| !record.is_closed()) {
            if let Some(worker) = record.roster.keys().find(|w| !self.members.contains_key(w)) {
                let cause = format!("{worker} of its roster is missing");
                return lacks("superstep", superstep.to_string(), &cause);
            }
        }
        if let Some(open) = self.open_parts_missing() {
            return lacks("task", "evaluation".into(), &format!("{open} of its parts are missing"));
        }
        let next = self.state.next_superstep;
        let missing = (self.state.closed..next.0).find(|n| !self.supersteps.contains_key(&Superstep(*n)));
        if let Some(missing) = missing.filter(|_| !self.state.phase.is_over()) {
            return lacks("superstep", missing.to_string(), "it is open and missing");
        }
        let is_over = self.state.phase.is_over();
        if is_over != self.state.ended_us.is_some() || self.state.keeping && !is_over {
            return lacks("job", "job_state".into(), "it is over and has no end, or has one and goes on");
        }
        let torn = self.members.iter().find(|(_, m)| m.finished > m.granted || m.granted > m.planned);
        match torn {
            Some((worker, _)) => {
                lacks("worker", worker.to_string(), "it has finished more than it was given")
            }
            None => Ok(()),
        }
    }

    /// What was decided and may not have reached those who must carry it out. All of it may be repeated.
    pub(super) fn pending_effects(&self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let run = self.run();
        if self.state.phase.is_over() {
            effects.push(Effect::CloseShards { run, weights: self.last_weights() });
            effects.extend(self.checkpoints_at_end());
            return effects;
        }
        if self.state.phase == Phase::Opening {
            effects.push(self.open_order());
        }
        effects.extend(self.checkpoint_order());
        effects.extend(self.clock_roster());
        for (&superstep, record) in &self.supersteps {
            match record.phase {
                SuperstepPhase::Ordered => effects.push(self.barrier_order(superstep)),
                SuperstepPhase::Planning(_) => effects.extend(self.plan_request(superstep)),
                SuperstepPhase::Open(_) | SuperstepPhase::Closed { .. } => {}
            }
        }
        for (&worker, member) in &self.members {
            match member.membership {
                Membership::Sealing { .. } => effects.push(Effect::Seal { run: run.clone(), worker }),
                Membership::Preparing | Membership::Active => {
                    let tasks = self.leased_to(worker);
                    let assigned = tasks.iter().filter_map(|id| self.assignment(id));
                    effects.extend(assigned.map(|assignment| Effect::Assign { worker, assignment }));
                }
                Membership::Gone => {}
            }
        }
        let snapshots = self.tasks.iter().filter(|(_, t)| t.body == TaskBody::Snapshot);
        effects.extend(snapshots.filter_map(|(id, _)| self.snapshot_order(id)));
        effects
    }

    /// The job's name.
    pub fn name(&self) -> &JobId {
        self.id()
    }

    /// The worker that came last.
    pub fn newest_worker(&self) -> Incarnation {
        self.members.keys().next_back().copied().unwrap_or_default()
    }

    /// Generation of the job's parameters.
    pub fn generation(&self) -> Generation {
        self.state.generation
    }

    /// What the user asked for.
    pub fn spec(&self) -> &ValidJob {
        &self.spec
    }

    /// When it was over, in epoch µs.
    pub fn ended_us(&self) -> Option<u64> {
        self.state.ended_us
    }

    /// Parameter shards that it lies on.
    pub fn shards(&self) -> u32 {
        self.state.shards
    }

    /// Whether it needs more of its shards, if only its last weights, and they are not as many as there are
    /// here.
    pub fn lies_on_others(&self, here: u32) -> bool {
        let needs_shards = !self.state.phase.is_over() || self.state.keeping;
        needs_shards && self.state.shards != here
    }

    /// Where the job stands.
    pub fn phase(&self) -> &Phase {
        &self.state.phase
    }

    /// Sums over the whole job.
    pub fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// A worker that takes part, or did so lately.
    pub fn member(&self, worker: Incarnation) -> Option<&Member> {
        self.members.get(&worker)
    }

    /// A superstep that is open or planned, or was closed lately.
    pub fn superstep(&self, superstep: Superstep) -> Option<&SuperstepState> {
        self.supersteps.get(&superstep)
    }

    /// The last weights that were written.
    pub fn snapshot(&self) -> Option<&SnapshotFile> {
        self.state.snapshot.as_ref()
    }

    /// Barriers closed on every shard.
    pub fn closed(&self) -> u64 {
        self.state.closed
    }

    /// State of a task, if it is still in the graph.
    pub fn task_state(&self, id: &TaskId) -> Option<&TrainingTaskState> {
        self.tasks.get(id).map(|t| &t.state)
    }
}
