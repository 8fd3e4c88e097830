//! Which fault it is: a stable code, which decides, beside its words, which people read.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The stable code of a fault, see docs/errors.md: `E` and three digits. Kept and sent as that text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FaultCode(u16);

/// Why a text is not a [`FaultCode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the code of a fault: `E` and three digits")]
pub struct InvalidFaultCode(String);

/// Faults of shards and workers by which something is decided here. Those who raise them hold their own codes
/// to these.
impl FaultCode {
    /// A worker does not hear from the engine, or the engine not from the worker.
    pub const WORKER_LOST: Self = Self::new("E210");
    /// A shard has lost parameters that it held: there may be a checkpoint to go back to.
    pub const PARAMETERS_LOST: Self = Self::new("E220");
    /// The computation itself failed: the machine may lack memory, but the model or its data may be to blame
    /// as well.
    pub const COMPUTATION_FAILED: Self = Self::new("E327");
    /// The memory of a worker's GPU was too small for the computation, which may be another program's doing.
    pub const DEVICE_MEMORY: Self = Self::new("E498");
    /// A shard's disk, memory or way to another shard failed it, which may pass: a full disk can be emptied.
    pub const SHARD_IO: Self = Self::new("E406");
    /// A shard has closed the job.
    pub const CLOSED: Self = Self::new("E409");
    /// A shard refuses an order that does not fit what it has.
    pub const ORDER_REFUSED: Self = Self::new("E405");
    /// The store has lost what it had acknowledged.
    pub const STORE_LOST: Self = Self::new("E226");
    /// The shards have newer checkpoints than the store, which has gone back, knows.
    pub const NEWER_CHECKPOINT: Self = Self::new("E646");
    /// A worker does not reach a shard.
    pub const SHARD_UNREACHED: Self = Self::new("E410");
    /// A shard cannot use its part of a checkpoint.
    pub const CHECKPOINT_UNUSABLE: Self = Self::new("E439");
    /// The records of a job cannot be read.
    pub const RECORDS_UNUSABLE: Self = Self::new("E030");
    /// The engine has ended too often at a bug that it meets with one job.
    pub const CRASHES: Self = Self::new("E147");
    /// A job lies on another number of shards than there are.
    pub const OTHER_SHARDS: Self = Self::new("E586");
    /// Redis has a job again that the engine does not know.
    pub const RETURNED: Self = Self::new("E670");
}

impl FaultCode {
    /// A code that stands in our own sources; anything else than `E` and three digits is a bug, found when a
    /// constant is compiled.
    pub const fn new(code: &'static str) -> Self {
        match parse(code.as_bytes()) {
            Some(number) => Self(number),
            None => panic!("a code in the sources is `E` and three digits"),
        }
    }

    /// The code in front of a text, as in `[E027] job digits: ...`: only for what comes in as a text, from
    /// another process or from another library. What this process itself says has its code beside it.
    pub fn leading(text: &str) -> Option<Self> {
        text.strip_prefix('[')?.split_once(']')?.0.parse().ok()
    }

    /// The words behind the code, `[E351] the loss is not finite`, once: words that name it already stay as
    /// they are.
    pub fn in_front_of(self, reason: &str) -> Cow<'_, str> {
        let coded = format!("[{self}]");
        match reason.contains(&coded) {
            true => reason.into(),
            false => format!("{coded} {reason}").into(),
        }
    }

    /// The words without the code, if it stands in front of them.
    pub fn stripped_from(self, reason: &str) -> &str {
        reason.strip_prefix(&format!("[{self}] ")).unwrap_or(reason)
    }
}

/// So that a code is compared with how it is written: `error.code() == "E131"`.
impl PartialEq<&str> for FaultCode {
    fn eq(&self, text: &&str) -> bool {
        parse(text.as_bytes()) == Some(self.0)
    }
}

/// So that it is made alike of all errors of ours: `error.code().into()`. As [`FaultCode::new`].
impl From<&'static str> for FaultCode {
    fn from(code: &'static str) -> Self {
        Self::new(code)
    }
}

/// The number in `E220`.
const fn parse(code: &[u8]) -> Option<u16> {
    let [b'E', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = code else { return None };
    Some((*a - b'0') as u16 * 100 + (*b - b'0') as u16 * 10 + (*c - b'0') as u16)
}

impl FromStr for FaultCode {
    type Err = InvalidFaultCode;

    fn from_str(text: &str) -> Result<Self, InvalidFaultCode> {
        parse(text.as_bytes()).map(Self).ok_or_else(|| InvalidFaultCode(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for FaultCode {
    type Error = InvalidFaultCode;

    fn try_from(text: String) -> Result<Self, InvalidFaultCode> {
        text.parse()
    }
}

impl From<FaultCode> for String {
    fn from(code: FaultCode) -> Self {
        code.to_string()
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:03}", self.0)
    }
}

impl fmt::Debug for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_an_e_and_three_digits_and_is_kept_as_that_text() {
        for text in ["E001", "E027", "E220", "E574"] {
            let code: FaultCode = text.parse().unwrap();
            assert_eq!((code, code.to_string().as_str()), (FaultCode::new(text), text));
            assert!(code == text && code != "E131" && code != "x");
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(
                (json.as_str(), serde_json::from_str(&json).ok()),
                (&*format!("\"{text}\""), Some(code))
            );
            assert_eq!(postcard::to_stdvec(&code), postcard::to_stdvec(text));
        }
        for bad in ["", "E", "E22", "E2200", "e220", "F220", "E+22", "[E220]", "E22é"] {
            assert!(bad.parse::<FaultCode>().is_err(), "{bad}");
            assert!(serde_json::from_str::<FaultCode>(&format!("\"{bad}\"")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_code_stands_in_front_of_its_words_once_table() {
        #[rustfmt::skip]
        let cases = [
            ("E351", "the loss is NaN",              "[E351] the loss is NaN"),
            ("E351", "[E351] the loss is NaN",       "[E351] the loss is NaN"),
            ("E351", "worker a: [E351] it is NaN",   "worker a: [E351] it is NaN"),
            ("E440", "[E306] node `m` has no input", "[E440] [E306] node `m` has no input"),
        ];
        for (code, reason, want) in cases {
            let code: FaultCode = code.parse().unwrap();
            assert_eq!(code.in_front_of(reason), want);
            assert_eq!(code.stripped_from(&format!("[{code}] {reason}")), reason);
        }
        assert_eq!(FaultCode::leading("[E440] [E306] no"), Some(FaultCode::new("E440")));
        assert_eq!([FaultCode::leading("E440 no"), FaultCode::leading("[E4] no")], [None, None]);
        assert_eq!(FaultCode::new("E351").stripped_from("[E350] other"), "[E350] other");
    }
}
