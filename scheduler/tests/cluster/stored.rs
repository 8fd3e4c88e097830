//! What Redis holds of a job after a commit, in plain maps.

use std::{collections::BTreeMap, mem};

use syncline_scheduler::{
    core::{Commit, Core, Effect, Input, StoredJob, TaskJob},
    ids::JobId,
    sim::Shell,
};

/// Keeps what is committed of graphs; each job that is loaded from it equals the live one.
#[derive(Default)]
pub struct StoredGraphs(pub BTreeMap<JobId, StoredJob>);

impl Shell for StoredGraphs {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let effects = core.handle(now_us, input).unwrap();
        for (id, commit) in core.take_commits(now_us) {
            let stored = self.0.entry(id.clone()).or_default();
            apply(stored, commit);
            assert!(stored.holds_tasks());
            assert_eq!(Some(&TaskJob::load(stored).unwrap()), core.task_job(&id), "as it was committed");
        }
        effects
    }
}

/// Writes a commit into what is stored of its job.
pub fn apply(job: &mut StoredJob, commit: Commit) {
    job.spec = commit.spec.unwrap_or(mem::take(&mut job.spec));
    job.job_state = commit.job_state.unwrap_or(mem::take(&mut job.job_state));
    put(&mut job.tasks, commit.tasks);
    put(&mut job.workers, commit.workers);
    put(&mut job.supersteps, commit.supersteps);
    let graph = &mut job.graph;
    graph.classes.extend(commit.graph.classes);
    graph.chunks.extend(commit.graph.chunks);
    graph.windows.extend(commit.graph.windows);
    put(&mut graph.values, commit.graph.values);
    put(&mut graph.faults, commit.graph.faults);
    put(&mut graph.leases, commit.graph.leases);
}

fn put<V>(map: &mut BTreeMap<String, V>, fields: Vec<(String, Option<V>)>) {
    for (field, value) in fields {
        match value {
            Some(value) => map.insert(field, value),
            None => map.remove(&field),
        };
    }
}
