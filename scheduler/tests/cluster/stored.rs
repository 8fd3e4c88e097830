//! What Redis holds of a job after a commit, in plain maps.

use std::{collections::BTreeMap, mem};

use syncline_scheduler::core::{Commit, StoredJob};

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
