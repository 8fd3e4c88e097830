//! Calls that run, as a worker tells of them now and then: for people alone, so that nothing of it is stored.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{MemorySize, TaskIndex};
use crate::ids::SubmissionId;

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
    /// What the text of a call begins with that has its value, which no shard takes yet.
    const UNSTORED: &str = "its value waits until a shard takes it: ";
    /// The same of one whose value is on its way.
    const SENDING: &str = "it sends its value: ";

    /// The text of such a call.
    pub fn unstored(error: impl fmt::Display) -> String {
        format!("{}{error}", Self::UNSTORED)
    }

    /// The text of a call whose value of so many bytes is on its way to a shard, from when it is known to which.
    pub fn sending(bytes: u64, shard: &str) -> String {
        format!("{}{} to the parameter shard at {shard}", Self::SENDING, MemorySize(bytes))
    }
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
    pub submission: SubmissionId,
    /// Index in the job.
    pub task: TaskIndex,
    /// From 1.
    pub attempt: u16,
    /// For how long, waiting not counted.
    pub running_ms: u64,
    /// What its function has said last, if it has.
    pub progress: Option<Progress>,
}

impl RunningCall {
    /// What comes behind this in what is told of it.
    fn told_behind(&self, prefix: &str) -> Option<&str> {
        self.progress.as_ref()?.text.strip_prefix(prefix)
    }
}

/// What a job waits for whose running calls are these: `None` where one of them computes, or there is none.
pub fn wait_to_store<'a>(calls: impl IntoIterator<Item = &'a RunningCall>) -> Option<String> {
    let (mut unstored, mut sending) = (Vec::new(), Vec::new());
    for call in calls {
        match (call.told_behind(Progress::UNSTORED), call.told_behind(Progress::SENDING)) {
            (Some(error), _) => unstored.push(error),
            (None, Some(what)) => sending.push(what),
            (None, None) => return None,
        }
    }
    match (unstored.first(), sending.first()) {
        (Some(first), _) => Some(format!("a shard to take the values of {} tasks: {first}", unstored.len())),
        (None, Some(first)) => {
            Some(format!("the values of {} tasks, which are sent: {first}", sending.len()))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_for_the_shards_where_every_call_that_runs_has_its_value_and_none_takes_it() {
        let call = |text: &str| RunningCall {
            submission: SubmissionId { job: "job".parse().unwrap(), nonce: 1 },
            task: TaskIndex(0),
            attempt: 1,
            running_ms: 0,
            progress: Some(Progress { text: text.to_owned(), ..Progress::default() }),
        };
        let (full, computes) = (call(&Progress::unstored("[E406] no space")), call("reading"));
        let sends = call(&Progress::sending(1 << 30, "a:1"));
        let silent = RunningCall { progress: None, ..full.clone() };
        let waits = Some("a shard to take the values of 2 tasks: [E406] no space".to_owned());
        for (calls, want) in [
            (vec![], None),
            (vec![&full, &full], waits),
            (vec![&full, &sends], Some("a shard to take the values of 1 tasks: [E406] no space".to_owned())),
            (
                vec![&sends, &sends],
                Some("the values of 2 tasks, which are sent: 1 GiB to the parameter shard at a:1".to_owned()),
            ),
            (vec![&sends, &computes], None),
            (vec![&full, &computes], None),
            (vec![&silent], None),
        ] {
            assert_eq!(wait_to_store(calls.iter().copied()), want, "{calls:?}");
        }
    }

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
