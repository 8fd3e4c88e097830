//! Recovery is loading: a job is read back as it was committed, and whatever it had asked of others is asked again.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::{
    io::{Effect, SnapshotFile},
    job::{Due, Job},
    state::{ClockRecord, End, Phase, Share, Standing, TaskBody},
    touched::{Pulse, Touched},
};
use crate::{
    graph::{Holder, TaskId, TaskState},
    ids::{Generation, Incarnation, JobId, Superstep},
    spec::JobSpec,
    sync::{Clocks, Ending},
};

/// A job as the store keeps it: fields and values of its hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    pub spec: String,
    pub central: String,
    pub tasks: BTreeMap<String, String>,
    pub workers: BTreeMap<String, String>,
    pub supersteps: BTreeMap<String, String>,
}

/// A stored job that cannot be read: written by another release, or damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E030] the stored {what} `{field}` cannot be read: {cause}")]
pub struct Unreadable {
    pub what: &'static str,
    pub field: String,
    pub cause: String,
}

fn parse<T: DeserializeOwned>(what: &'static str, field: &str, text: &str) -> Result<T, Unreadable> {
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
    pub fn load(stored: &Stored) -> Result<Self, Unreadable> {
        let spec: JobSpec = parse("job", "spec", &stored.spec)?;
        spec.validate().map_err(|e| Unreadable {
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
            central: parse("job", "central", &stored.central)?,
            members: parse_map("worker", &stored.workers)?,
            spans: parse_map("superstep", &stored.supersteps)?,
            tasks: parse_map("task", &stored.tasks)?,
            finished: BTreeSet::new(),
            clocks,
            touched: Touched::default(),
            pulse: Pulse::default(),
            due: Due::default(),
        };
        job.check_records()?;
        job.finished = job
            .tasks
            .iter()
            .filter(|(_, t)| !t.body.is_node() && t.state.is_final())
            .map(|(id, t)| (t.ended_ms.unwrap_or(0), id.clone()))
            .collect();
        for span in job.spans.values_mut() {
            if let End::Open(Ending::Monitor { pushes }) = span.end {
                let unseen = |(w, share): &(&Incarnation, &Share)| {
                    job.members.get(w).is_some_and(|m| m.finished < share.base + pushes)
                };
                span.unseen = span.roster.iter().filter(unseen).map(|(w, _)| *w).collect();
            }
        }
        Ok(job)
    }

    /// What refers to each other must be there: a record that lacks something would stop the job, or the engine.
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
                TaskId::Iteration { worker, .. } => {
                    task.state.is_final() || self.members.contains_key(worker)
                }
                TaskId::Barrier(n) => task.state.is_final() || self.spans.contains_key(n),
                TaskId::Clock(_) | TaskId::Node(_) => true,
            };
            if !known {
                return lacks("task", id.to_string(), "its worker or superstep is missing");
            }
            if let TaskState::Leased { holder: Holder::Worker(worker), .. } = task.state
                && !self.members.contains_key(&worker)
            {
                return lacks("task", id.to_string(), "its worker is missing");
            }
        }
        for (superstep, span) in self.spans.iter().filter(|(_, span)| !span.is_closed()) {
            if let Some(worker) = span.roster.keys().find(|w| !self.members.contains_key(w)) {
                let cause = format!("{worker} of its roster is missing");
                return lacks("superstep", superstep.to_string(), &cause);
            }
        }
        let next = self.central.next_superstep;
        let missing = (self.central.closed..next.0).find(|n| !self.spans.contains_key(&Superstep(*n)));
        if let Some(missing) = missing.filter(|_| !self.central.phase.is_over()) {
            return lacks("superstep", missing.to_string(), "it is open and missing");
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
    pub(super) fn unfinished(&self) -> Vec<Effect> {
        let mut fx = Vec::new();
        let (job, generation) = (self.id().clone(), self.central.generation);
        if self.central.phase.is_over() {
            fx.push(Effect::CloseShards { job, generation, keep: self.central.keeping });
            return fx;
        }
        if self.central.phase == Phase::Opening {
            fx.push(Effect::OpenShards { job: job.clone(), generation });
        }
        fx.extend(self.clock_roster());
        for (&superstep, span) in &self.spans {
            match span.end {
                End::Ordered => fx.push(self.barrier_order(superstep)),
                End::Planning(_) => fx.extend(self.plan_request(superstep)),
                End::Open(_) | End::Closed { .. } => {}
            }
        }
        for (&worker, member) in &self.members {
            match member.standing {
                Standing::Sealing { .. } => fx.push(Effect::Seal { job: job.clone(), generation, worker }),
                Standing::Active => {
                    let tasks = self.leased_to(worker);
                    let assigned = tasks.iter().filter_map(|id| self.assignment(id));
                    fx.extend(assigned.map(|assignment| Effect::Assign { worker, assignment }));
                }
                Standing::Gone => {}
            }
        }
        let snapshots = self.tasks.iter().filter(|(_, t)| t.body == TaskBody::Snapshot);
        fx.extend(snapshots.filter_map(|(id, _)| self.snapshot_order(id)));
        fx
    }

    /// The job's name.
    pub fn name(&self) -> &JobId {
        self.id()
    }

    /// The worker that came last.
    pub fn newest_worker(&self) -> Incarnation {
        self.members.keys().next_back().copied().unwrap_or_default()
    }

    /// Life of the job's parameters.
    pub fn generation(&self) -> Generation {
        self.central.generation
    }

    /// What the user asked for.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Where the job stands.
    pub fn phase(&self) -> &Phase {
        &self.central.phase
    }

    /// The last weights that were written.
    pub fn snapshot(&self) -> Option<&SnapshotFile> {
        self.central.snapshot.as_ref()
    }

    /// Barriers closed on every shard.
    pub fn closed(&self) -> u64 {
        self.central.closed
    }

    /// One word for a task's state, if the task is still in the graph.
    pub fn task_state(&self, id: &TaskId) -> Option<&TaskState> {
        self.tasks.get(id).map(|t| &t.state)
    }
}
