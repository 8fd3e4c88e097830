//! The store of a job, as plain maps: commits go in, and what they counted can be read.

use std::{collections::BTreeMap, mem};

use syncline_scheduler::{
    core::{Commit, StoredJob},
    graph::{TaskId, TaskState},
    samples::SampleRange,
};

/// Everything that was committed.
#[derive(Default)]
pub struct Store {
    pub job: StoredJob,
    pub summary: BTreeMap<&'static str, String>,
    /// Sample ranges that the core settled as done or torn, read from the task records as they pass.
    pub counted: BTreeMap<TaskId, SampleRange>,
}

impl Store {
    pub fn commit(&mut self, commit: Commit) {
        let job = &mut self.job;
        job.spec = commit.spec.unwrap_or(mem::take(&mut job.spec));
        job.job_state = commit.job_state.unwrap_or(mem::take(&mut job.job_state));
        for (field, text) in &commit.tasks {
            if let (Ok(id), Some(text)) = (field.parse(), text) {
                count(&mut self.counted, id, text);
            }
        }
        put(&mut job.tasks, commit.tasks);
        put(&mut job.workers, commit.workers);
        put(&mut job.supersteps, commit.supersteps);
        self.summary.extend(commit.summary);
        let graph = &mut job.graph;
        graph.classes.extend(commit.graph.classes);
        graph.chunks.extend(commit.graph.chunks);
        graph.windows.extend(commit.graph.windows);
        put(&mut graph.values, commit.graph.values);
        put(&mut graph.faults, commit.graph.faults);
        put(&mut graph.leases, commit.graph.leases);
    }

    /// A field of the summary that is a number.
    pub fn number(&self, field: &str) -> u64 {
        self.summary[field].parse().unwrap()
    }
}

fn put<V>(map: &mut BTreeMap<String, V>, fields: Vec<(String, Option<V>)>) {
    for (field, value) in fields {
        match value {
            Some(value) => map.insert(field, value),
            None => map.remove(&field),
        };
    }
}

fn count(counted: &mut BTreeMap<TaskId, SampleRange>, id: TaskId, text: &str) {
    if !matches!(id, TaskId::Iteration { .. }) {
        return;
    }
    let task: serde_json::Value = serde_json::from_str(text).unwrap();
    let state: TaskState = serde_json::from_value(task["state"].clone()).unwrap();
    if matches!(state, TaskState::Done | TaskState::Torn) {
        counted.insert(id, serde_json::from_value(task["range"].clone()).unwrap());
    }
}
