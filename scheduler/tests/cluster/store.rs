//! The store of a job, as plain maps: commits go in, and what they counted can be read.

use std::{collections::BTreeMap, mem};

use serde_json::Value;
use syncline_scheduler::{
    core::{Commit, StoredJob},
    graph::{TaskId, TrainingTaskState},
    samples::SampleRange,
};

use super::stored::apply;

/// Everything that was committed.
#[derive(Default, Clone)]
pub struct Store {
    pub job: StoredJob,
    pub summary: BTreeMap<&'static str, String>,
    /// Sample ranges that the core settled as done or torn, read from the task records as they pass.
    pub counted: BTreeMap<(u64, TaskId), SampleRange>,
    /// The same at the moment of each checkpoint.
    at_checkpoint: BTreeMap<u64, BTreeMap<(u64, TaskId), SampleRange>>,
    generation: u64,
    pub rolled_back: u64,
}

impl Store {
    pub fn commit(&mut self, mut commit: Commit) {
        let state: Value =
            commit.job_state.as_deref().map_or(Value::Null, |s| serde_json::from_str(s).unwrap());
        self.follow_rollback(&state);
        for (field, text) in &commit.tasks {
            if let (Ok(id), Some(text)) = (field.parse(), text) {
                count(&mut self.counted, self.generation, id, text);
            }
        }
        if let Some(number) = state["checkpoints"]["making"]["pinning"]["checkpoint"]["number"].as_u64() {
            self.at_checkpoint.entry(number).or_insert_with(|| self.counted.clone());
        }
        self.summary.extend(mem::take(&mut commit.summary));
        apply(&mut self.job, commit);
    }

    /// A new generation of the parameters begins with what was counted at a checkpoint.
    fn follow_rollback(&mut self, state: &Value) {
        let Some(generation) = state["generation"].as_u64() else { return };
        // Those of the best evaluation are handed on, and what was done since stays counted.
        let is_handed_on = state["evaluations"]["handed_on"]["best"].is_object();
        if generation != self.generation && !is_handed_on {
            let before = self.counted.len();
            // Without any it begins anew.
            self.counted = match state["checkpoints"]["restored"].as_u64() {
                Some(number) => self.at_checkpoint[&number].clone(),
                None => BTreeMap::new(),
            };
            self.rolled_back += (before - self.counted.len()) as u64;
        }
        self.generation = generation;
    }

    /// A field of the summary that is a number.
    pub fn number(&self, field: &str) -> u64 {
        self.summary[field].parse().unwrap()
    }
}

fn count(counted: &mut BTreeMap<(u64, TaskId), SampleRange>, generation: u64, id: TaskId, text: &str) {
    if !matches!(id, TaskId::Iteration { .. }) {
        return;
    }
    let task: Value = serde_json::from_str(text).unwrap();
    let state: TrainingTaskState = serde_json::from_value(task["state"].clone()).unwrap();
    if matches!(state, TrainingTaskState::Done | TrainingTaskState::Torn) {
        counted.insert((generation, id), serde_json::from_value(task["range"].clone()).unwrap());
    }
}
