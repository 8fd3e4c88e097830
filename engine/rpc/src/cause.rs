//! What lies behind a fault, as it is told to another process.

use std::fmt;

use serde::{Deserialize, Serialize};
use syncline_scheduler::fault_code::FaultCode;

/// Why something failed: the code, by which others decide, beside the words, which people read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `None` where there are only words.
    pub code: Option<FaultCode>,
    /// They may begin with the code in brackets.
    pub reason: String,
}

impl Cause {
    /// What an error says, whose code is this.
    pub fn new(code: impl Into<FaultCode>, error: &impl fmt::Display) -> Self {
        Self { code: Some(code.into()), reason: error.to_string() }
    }
}

/// In words alone.
impl From<String> for Cause {
    fn from(reason: String) -> Self {
        Self { code: None, reason }
    }
}

/// In words alone.
impl From<&str> for Cause {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

/// The words, behind the code where they do not name it themselves.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => f.write_str(&code.in_front_of(&self.reason)),
            None => f.write_str(&self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_named_once_whether_the_words_name_it_or_not() {
        let cause = |reason: &str| Cause::new("E439", &reason).to_string();
        assert_eq!(cause("it is gone"), "[E439] it is gone");
        assert_eq!(cause("[E439] it is gone"), "[E439] it is gone");
        assert_eq!(Cause::from("[E440] in words").code, None, "a text is not read for its code");
    }
}
