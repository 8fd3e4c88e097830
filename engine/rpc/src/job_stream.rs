//! Streams that tell what a job has gone through, and positions in them.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A stream that tells what a job has gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStream {
    /// What happened to it: `syncline:{JOB}:events`, the newest 200 entries.
    Events,
    /// Its loss curve: `syncline:{JOB}:metrics`, at most 400 points over the whole job.
    Metrics,
    /// Its evaluations: `syncline:{JOB}:evaluations`, at most 400 over the whole job.
    Evaluations,
}

/// A position in a stream: the moment of an entry, and its number within that millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamCursor {
    /// On Redis' clock, since the epoch of Unix.
    pub at_ms: u64,
    /// From 0, among the entries of that millisecond.
    pub number: u64,
}

impl fmt::Display for StreamCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_ms, self.number)
    }
}

/// A text that is no position in a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E148] `{text}` is no position such as 1764093600000-0, the `cursor` of an entry")]
pub struct InvalidCursor {
    text: String,
}

impl InvalidCursor {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E148"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl FromStr for StreamCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (at_ms, number) = text.split_once('-').unwrap_or((text, "0"));
        match (at_ms.parse(), number.parse()) {
            (Ok(at_ms), Ok(number)) => Ok(Self { at_ms, number }),
            _ => Err(InvalidCursor { text: text.to_owned() }),
        }
    }
}

/// One entry of a stream as Redis shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Its id in Redis: given back as a cursor, it brings what came later.
    pub at: StreamCursor,
    /// Names and values as text; bytes that are no UTF-8 are replaced.
    pub fields: BTreeMap<String, String>,
}
