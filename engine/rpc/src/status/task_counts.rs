//! How many general tasks of a job are in which state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use syncline_scheduler::tasks::TaskState;

use super::text::{self, UnknownFields};
use crate::JobFields;

/// General tasks of one job, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskCounts {
    /// All that the graph has by now.
    pub total: u64,
    /// Something that they need has not ended.
    pub waiting: u64,
    /// They can be given to a worker.
    pub ready: u64,
    /// An attempt failed; the next one comes after a pause.
    pub backoff: u64,
    /// A worker has them, maybe behind others that they wait for there.
    pub leased: u64,
    /// A training job does them.
    pub training: u64,
    /// They have ended, and give what a task that they added will give.
    pub continued: u64,
    /// They have ended well.
    pub done: u64,
    /// They have failed for good.
    pub failed: u64,
    /// They had nothing to give, or something that they need had not.
    pub skipped: u64,
    /// The job ended before they did.
    pub canceled: u64,
}

impl TaskCounts {
    /// From the fields of the `job` hash, where each name begins with `tasks_`; `None` for a job that trains.
    pub(super) fn read(what: &str, fields: &JobFields) -> Result<Option<Self>, UnknownFields> {
        let counts = fields.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("tasks_")?;
            Some((name.to_owned(), value.clone()))
        });
        let counts: BTreeMap<_, _> = counts.collect();
        if counts.is_empty() { Ok(None) } else { text::read(what, &counts).map(Some) }
    }

    /// How many are in this state.
    pub fn of(&self, state: TaskState) -> u64 {
        match state {
            TaskState::Waiting => self.waiting,
            TaskState::Ready => self.ready,
            TaskState::Backoff => self.backoff,
            TaskState::Leased => self.leased,
            TaskState::Training => self.training,
            TaskState::Continued => self.continued,
            TaskState::Done => self.done,
            TaskState::Failed => self.failed,
            TaskState::Skipped => self.skipped,
            TaskState::Canceled => self.canceled,
        }
    }

    /// Those of which nothing more will come.
    pub fn ended(&self) -> u64 {
        TaskState::ALL.into_iter().filter(|state| state.is_final()).map(|state| self.of(state)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<TaskCounts>, UnknownFields> {
        let fields = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TaskCounts::read("job a", &fields.collect())
    }

    #[test]
    fn only_a_job_of_tasks_has_counts() {
        assert_eq!(read(&[("id", "a"), ("epoch", "3")]), Ok(None));
        let counts =
            read(&[("tasks_total", "9"), ("tasks_done", "5"), ("tasks_skipped", "1"), ("tasks_ready", "3")]);
        let counts = counts.unwrap().unwrap();
        assert_eq!((counts.total, counts.of(TaskState::Ready), counts.ended(), counts.leased), (9, 3, 6, 0));
        assert!(read(&[("tasks_total", "many")]).is_err());
    }
}
