//! Calls that run, as a worker tells of them now and then: for people alone, so that nothing of it is stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::TaskIndex;
use crate::ids::JobId;

/// How far a function says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Parts of its work that are done, in whatever it counts.
    pub done: u64,
    /// Of so many; 0: it does not know.
    pub total: u64,
    /// What it says besides, in at most [`MAX_TEXT_CHARS`](Self::MAX_TEXT_CHARS) characters; may be empty.
    pub text: String,
}

impl Progress {
    /// Most characters of the text.
    pub const MAX_TEXT_CHARS: usize = 200;
}

/// `3 of 10, reading a.csv`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, total, text } = self;
        match total {
            0 => write!(f, "{done} done")?,
            _ => write!(f, "{done} of {total}")?,
        }
        if text.is_empty() { Ok(()) } else { write!(f, ", {text}") }
    }
}

/// An attempt at a call whose function runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCall {
    /// Job that the task belongs to.
    pub job: JobId,
    /// Tells the job from others of the same name.
    pub nonce: u32,
    /// Index in the job.
    pub task: TaskIndex,
    /// From 1.
    pub attempt: u16,
    /// For how long, waiting not counted.
    pub running_ms: u64,
    /// What its function has said last, if it has.
    pub progress: Option<Progress>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_in_words_table() {
        let cases = [
            (3, 10, "", "3 of 10"),
            (3, 0, "", "3 done"),
            (0, 10, "reading a.csv", "0 of 10, reading a.csv"),
        ];
        for (done, total, text, want) in cases {
            assert_eq!(Progress { done, total, text: text.to_owned() }.to_string(), want);
        }
    }
}
