//! Why a task gave nothing, as another task is told that takes its outcome.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault_code::FaultCode;

/// Why a task gave no value: no attempt was left to it, or it was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// Of the failure, stable, see docs/errors.md: its own, or that of the task for want of which it was
    /// skipped. `None`: nothing has failed, it or a task that it needs had nothing to give.
    pub code: Option<FaultCode>,
    /// What went wrong, for people, without the code in front.
    pub reason: String,
    /// Attempts at the task that failed; 0 where none has begun.
    pub attempts: u16,
}

impl TaskFailure {
    /// With so much of the reason as travels thousands of times.
    pub(crate) fn in_brief(self) -> Self {
        const CHARS: usize = 80;
        Self { reason: self.reason.chars().take(CHARS).collect(), ..self }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => f.write_str(&code.in_front_of(&self.reason)),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TaskFailure {}
