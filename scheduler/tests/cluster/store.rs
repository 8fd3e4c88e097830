//! The store of a job, as plain maps: commits go in, and what they counted can be read.

use std::{collections::BTreeMap, mem};

use syncline_scheduler::{
    core::{Commit, StoredJob},
    graph::{TaskId, TaskState},
    samples::SampleRange,
};

use super::stored::apply;

/// Everything that was committed.
#[derive(Default)]
pub struct Store {
    pub job: StoredJob,
    pub summary: BTreeMap<&'static str, String>,
    /// Sample ranges that the core settled as done or torn, read from the task records as they pass.
    pub counted: BTreeMap<TaskId, SampleRange>,
}

impl Store {
    pub fn commit(&mut self, mut commit: Commit) {
        for (field, text) in &commit.tasks {
            if let (Ok(id), Some(text)) = (field.parse(), text) {
                count(&mut self.counted, id, text);
            }
        }
        self.summary.extend(mem::take(&mut commit.summary));
        apply(&mut self.job, commit);
    }

    /// A field of the summary that is a number.
    pub fn number(&self, field: &str) -> u64 {
        self.summary[field].parse().unwrap()
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
