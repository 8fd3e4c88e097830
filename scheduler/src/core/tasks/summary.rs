//! The summary of a job in the store: plain numbers and words, for people.

use super::TaskJob;
use crate::{core::Phase, ids::JobId, tasks::TaskState};

/// What a job waits for that somebody has paused.
pub(in crate::core) fn waits_to_be_resumed(job: &JobId) -> String {
    format!("somebody who resumes it: `syncline resume {job}`")
}

/// Fields of a hash, by name.
type Fields = Vec<(&'static str, String)>;

impl TaskJob {
    /// The job as people see it; the fields are those of docs/redis-schema.md.
    pub(super) fn summary(&self) -> Fields {
        let state = &self.state;
        let (code, why) = state.phase.why_ended(&state.cancel_reason);
        let reason = if self.is_canceling() { &state.cancel_reason } else { why };
        let ms = |us: Option<u64>| us.map(|us| (us / 1000).to_string()).unwrap_or_default();
        let count = |state| self.graph.count(state).to_string();
        let workers = self.leases.values().filter(|tasks| !tasks.is_empty()).count();
        vec![
            ("kind", "tasks".to_owned()),
            ("nonce", state.nonce.to_string()),
            ("state", self.shown().to_string()),
            ("code", code.map(|code| code.to_string()).unwrap_or_default()),
            ("reason", reason.to_owned()),
            ("waiting_for", self.waits_for()),
            ("workers", workers.to_string()),
            ("tasks_total", self.graph.len().to_string()),
            ("tasks_waiting", count(TaskState::Waiting)),
            ("tasks_ready", count(TaskState::Ready)),
            ("tasks_backoff", count(TaskState::Backoff)),
            ("tasks_leased", count(TaskState::Leased)),
            ("tasks_training", count(TaskState::Training)),
            ("tasks_continued", count(TaskState::Continued)),
            ("tasks_done", count(TaskState::Done)),
            ("tasks_failed", count(TaskState::Failed)),
            ("tasks_skipped", count(TaskState::Skipped)),
            ("tasks_canceled", count(TaskState::Canceled)),
            ("submitted_ms", ms(Some(state.submitted_us))),
            ("started_ms", ms(state.started_us)),
            ("ended_ms", ms(state.ended_us)),
        ]
    }

    /// What the job as a whole waits for, in words; empty if something goes on.
    fn waits_for(&self) -> String {
        if self.state.phase == Phase::Queued {
            return format!("the rest of its graph: {} tasks have come", self.graph.len());
        }
        if self.is_canceling() {
            return format!("{} tasks that were told to stop", self.graph.count(TaskState::Leased));
        }
        if self.is_running() && self.state.paused {
            return waits_to_be_resumed(&self.id);
        }
        if !self.is_running() || self.graph.count(TaskState::Leased) > 0 {
            return String::new();
        }
        if self.graph.count(TaskState::Training) > 0 {
            return self.trainings_wait_for.clone().unwrap_or_default();
        }
        match (self.graph.count(TaskState::Ready), self.graph.count(TaskState::Backoff)) {
            (0, 0) => String::new(),
            (0, n) => format!("the next attempt at {n} tasks that have failed"),
            (n, _) => format!("a worker that can run one of {n} tasks: see `syncline tasks`"),
        }
    }
}
