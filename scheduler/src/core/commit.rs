//! What one turn wrote: the changes of one job, to be committed as a unit.

use std::{collections::BTreeMap, mem};

use serde::Serialize;

use super::{
    change_set::{ChangeSet, MetricsWindow},
    event::Event,
    job::Job,
    member::{Member, MemberRecord},
    series::SeriesChanges,
    significant::significant,
    state_machine::Core,
};
use crate::ids::{Incarnation, JobId};

/// Finished tasks that stay in the graph for people to look at.
pub const FINISHED_TASKS_KEPT: usize = 128;
/// Closed supersteps that stay.
pub const CLOSED_SUPERSTEPS_KEPT: usize = 16;
/// Closed supersteps that stay where it is not yet known how long everybody waited: as many as are opened
/// ahead, twice.
const UNTOLD_SUPERSTEPS_KEPT: usize = 64;
/// Workers that left and stay listed.
pub const GONE_WORKERS_KEPT: usize = 64;

/// The changes of one job in one turn. `None` as a value removes the field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commit {
    /// The spec as JSON, in the job's first commit only.
    pub spec: Option<String>,
    /// The job's own record as JSON.
    pub job_state: Option<String>,
    /// Fields of the job's summary, in plain text.
    pub summary: Vec<(&'static str, String)>,
    /// By task id, such as `it/w3/17`: JSON. Of a training only.
    pub tasks: Vec<(String, Option<String>)>,
    /// By incarnation: JSON of the worker's part in a training, or of what it said of itself.
    pub workers: Vec<(String, Option<String>)>,
    /// By number of the superstep: JSON. Of a training only.
    pub supersteps: Vec<(String, Option<String>)>,
    /// New entries of the event stream, oldest first.
    pub events: Vec<Event>,
    /// New points of the loss curve: one at most, with the means of what was reported since the one before.
    pub metrics: SeriesChanges,
    /// Evaluations that are done.
    pub evaluations: SeriesChanges,
    /// Barriers that have closed and of which all waits are known now, one entry each.
    pub barriers: Vec<Vec<(&'static str, String)>>,
    /// The newest results of general tasks that people may look at.
    pub results: Vec<Vec<(&'static str, String)>>,
    /// What changed of its general tasks.
    pub graph: GraphChanges,
    /// The job is over.
    pub over: bool,
    /// Nothing more is to come of it: its keys may expire.
    pub expires: bool,
    /// The job is deleted: nothing of it stays.
    pub gone: bool,
}

impl Commit {
    /// A field of the summary, if it is written.
    pub fn summary_field(&self, name: &str) -> Option<&str> {
        self.summary.iter().find_map(|(field, value)| (*field == name).then_some(value.as_str()))
    }
}

/// What changed of a graph of general tasks. `None` as a value removes the field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphChanges {
    /// Classes that came, by index: JSON.
    pub classes: Vec<(String, String)>,
    /// Tasks that came together, by the index of the first: JSON.
    pub chunks: Vec<(String, String)>,
    /// States of [`WINDOW_TASKS`](crate::tasks::WINDOW_TASKS) tasks each, one letter per task, by number of
    /// the window.
    pub windows: Vec<(String, String)>,
    /// By task: [`Value::to_stored`](crate::tasks::Value::to_stored).
    pub values: Vec<(String, Option<Vec<u8>>)>,
    /// By task, of those that were tried more than once or have failed: JSON.
    pub faults: Vec<(String, Option<String>)>,
    /// By worker: the tasks that it has, as ranges.
    pub leases: Vec<(String, Option<String>)>,
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own records always have a JSON form")
}

impl Job {
    /// Takes what changed since the last call; `None` if nothing did.
    pub(super) fn take_commit(&mut self, now_us: u64) -> Option<Commit> {
        if self.changes.is_empty() {
            return None;
        }
        self.prune();
        let counted = self.counted();
        self.state.recent_rate.note(now_us, counted);
        let point = self.metrics_point(now_us);
        let changes = mem::take(&mut self.changes);
        let metrics = self.state.curve.add(changes.undone.into_iter().chain(point).collect());
        let evaluations = self.state.evaluations.series.add(changes.evaluations);
        let field = |key: String, value: Option<String>| (key, value);
        Some(Commit {
            spec: changes.spec.then(|| json(&self.spec)),
            job_state: Some(json(&self.state)),
            summary: self.summary(now_us),
            tasks: changes
                .tasks
                .iter()
                .map(|id| field(id.to_string(), self.tasks.get(id).map(json)))
                .collect(),
            workers: changes
                .members
                .iter()
                .map(|w| field(w.to_string(), self.members.get(w).map(|m| self.record(*w, m))))
                .collect(),
            supersteps: changes
                .supersteps
                .iter()
                .map(|n| field(n.to_string(), self.supersteps.get(n).map(json)))
                .collect(),
            events: changes.events,
            barriers: changes.barriers,
            metrics,
            evaluations,
            results: Vec::new(),
            graph: GraphChanges::default(),
            over: self.state.phase.is_over(),
            expires: self.state.phase.is_over() && !self.state.keeping,
            gone: false,
        })
    }

    /// Drops what changed since the last call.
    pub(super) fn discard_changes(&mut self) {
        self.prune();
        self.changes = ChangeSet::default();
        self.state.metrics = MetricsWindow::default();
    }

    fn record(&self, worker: Incarnation, member: &Member) -> String {
        let (clock, prediction) = (self.clocks.get(worker), member.speed.errors());
        json(&MemberRecord { member, clock, prediction })
    }

    /// Forgets the oldest finished tasks, closed supersteps and departed workers, so that a job of any length
    /// needs bounded room. What they counted lives on in the counters.
    fn prune(&mut self) {
        while self.finished.len() > FINISHED_TASKS_KEPT {
            let Some((_, id)) = self.finished.pop_first() else { break };
            self.tasks.remove(&id);
            self.changes.tasks.insert(id);
        }
        let mut closed = self.supersteps.values().filter(|s| s.is_closed()).count();
        while closed > CLOSED_SUPERSTEPS_KEPT {
            let Some((&oldest, record)) = self.supersteps.iter().find(|(_, s)| s.is_closed()) else { break };
            if !record.unreported.is_empty() && closed <= UNTOLD_SUPERSTEPS_KEPT {
                break;
            }
            self.record_unreported(oldest);
            self.supersteps.remove(&oldest);
            self.changes.supersteps.insert(oldest);
            closed -= 1;
        }
        let gone = self.members.values().filter(|m| m.is_gone()).count();
        for _ in GONE_WORKERS_KEPT..gone {
            let Some((&oldest, _)) = self.members.iter().find(|(_, m)| m.is_gone()) else { break };
            self.members.remove(&oldest);
            self.changes.members.insert(oldest);
        }
    }

    /// The next point of the curve, once enough iterations are in it, or no more will come.
    fn metrics_point(&mut self, now_us: u64) -> Option<Vec<(&'static str, String)>> {
        let ended = self.state.trained_us.is_some() || self.state.phase.is_over();
        let enough = if ended { 1 } else { self.state.curve.stride };
        self.point_of(enough, now_us)
    }

    /// What no point stands for yet becomes one of its own, where the job goes back to a checkpoint: none
    /// stands for what counts and for what is undone.
    pub(super) fn end_metrics_window(&mut self, now_us: u64) {
        let point = self.point_of(1, now_us);
        self.changes.undone.extend(point);
    }

    fn point_of(&mut self, least_iterations: u64, now_us: u64) -> Option<Vec<(&'static str, String)>> {
        if self.state.metrics.iterations < least_iterations {
            return None;
        }
        let metrics = mem::take(&mut self.state.metrics);
        let n = metrics.iterations;
        Some(vec![
            ("at_ms", (now_us / 1000).to_string()),
            ("samples", (self.state.counters.samples_done).to_string()),
            ("iterations", n.to_string()),
            // Not a number where all iterations were skipped.
            ("loss", significant(metrics.weighted_loss_sum / metrics.loss_weight)),
            ("loss_samples", metrics.loss_samples.to_string()),
            ("loss_weight", metrics.loss_weight.to_string()),
            ("step_us", (metrics.busy_us / n).to_string()),
            ("compute_us", (metrics.compute_us / n).to_string()),
            ("wait_us", (metrics.wait_us / n).to_string()),
            ("staleness_mean", format!("{:.2}", metrics.staleness_sum as f64 / n as f64)),
            ("staleness_max", metrics.staleness_max.to_string()),
            ("learning_rate", self.rate_reached().to_string()),
            ("generation", self.state.generation.number().to_string()),
            ("undone_beyond", self.state.generation_begin.samples_done.to_string()),
        ])
    }

    /// Rate of the schedule behind all samples that count, with the factor of the policy in the newest
    /// superstep.
    fn rate_reached(&self) -> f32 {
        let factor = self.supersteps.values().next_back().map_or(1.0, |newest| newest.rate_factor);
        self.rate_after(self.counted()) * factor
    }

    /// Marks everything as changed: the next commit holds the whole job.
    pub(super) fn mark_all_changed(&mut self) {
        let Self { changes, tasks, members, supersteps, .. } = self;
        changes.spec = true;
        changes.job_state = true;
        changes.tasks.extend(tasks.keys().cloned());
        changes.members.extend(members.keys().copied());
        changes.supersteps.extend(supersteps.keys().copied());
    }

    /// Samples that count as seen.
    pub(super) fn counted(&self) -> u64 {
        self.state.counters.counted()
    }
}

/// Jobs with their commits.
pub type Commits = BTreeMap<JobId, Commit>;

/// Some of them.
pub type CommitRefs<'a> = Vec<(&'a JobId, &'a Commit)>;

impl Core {
    /// The commits of a turn in two groups: none of the second is to be sent before all of the first are in
    /// the store. A training that has ended comes first: after a crash in between, its workers serve no
    /// other job that was loaded as well, and a graph finds what it has brought.
    pub fn order_commits<'a>(&self, commits: &'a Commits) -> [CommitRefs<'a>; 2] {
        let has_ended = |(job, commit): &(&JobId, &Commit)| commit.over && self.jobs.get(job).is_some();
        let (first, rest) = commits.iter().partition(has_ended);
        [first, rest]
    }
}
