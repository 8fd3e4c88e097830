//! Where a task stands.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::suggestion::did_you_mean;

/// Life of one task. In Redis each is one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Something that it needs has not ended.
    Waiting,
    /// It can be given to a worker.
    Ready,
    /// An attempt failed; the next one comes after a pause.
    Backoff,
    /// A worker has it, maybe behind others that it waits for there.
    Leased,
    /// A training job does it.
    Training,
    /// It has ended, and gives what a task that it added will give.
    Continued,
    /// It has given a value, itself or through a task that it added.
    Done,
    /// It failed for good: no attempt follows.
    Failed,
    /// It had nothing to give, or something that it needs had not.
    Skipped,
    /// Its job ended, or was told to, before it gave anything.
    Canceled,
}

impl TaskState {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Waiting,
        Self::Ready,
        Self::Backoff,
        Self::Leased,
        Self::Training,
        Self::Continued,
        Self::Done,
        Self::Failed,
        Self::Skipped,
        Self::Canceled,
    ];

    /// As it stands in Redis.
    pub fn letter(self) -> u8 {
        match self {
            Self::Waiting => b'w',
            Self::Ready => b'r',
            Self::Backoff => b'b',
            Self::Leased => b'l',
            Self::Training => b't',
            Self::Continued => b'c',
            Self::Done => b'd',
            Self::Failed => b'f',
            Self::Skipped => b's',
            Self::Canceled => b'x',
        }
    }

    /// From its letter.
    pub fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.letter() == letter)
    }

    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Backoff => "backoff",
            Self::Leased => "leased",
            Self::Training => "training",
            Self::Continued => "continued",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Canceled => "canceled",
        }
    }

    /// Whether nothing can follow.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Skipped | Self::Canceled)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A text that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E005] `{0}` is no state of a task: use waiting, ready, backoff, leased, training, continued, done, failed, skipped or canceled{meant}",
    meant = did_you_mean(.0, TaskState::ALL.map(TaskState::word))
)]
pub struct InvalidState(pub String);

impl InvalidState {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E005"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl FromStr for TaskState {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        let found = Self::ALL.into_iter().find(|state| state.word() == text);
        found.ok_or_else(|| InvalidState(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back_from_its_letter_and_its_word() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::from_letter(state.letter()), Some(state));
            assert_eq!(state.word().parse(), Ok(state));
        }
        assert_eq!(TaskState::from_letter(b'?'), None);
        assert!("gone".parse::<TaskState>().is_err());
        let refused = "cancelled".parse::<TaskState>().unwrap_err().to_string();
        assert!(refused.ends_with("or canceled; did you mean `canceled`?"), "{refused}");
    }
}
