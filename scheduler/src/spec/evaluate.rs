//! How often a training is evaluated while it runs.

use serde::{Deserialize, Serialize};

use super::interval;

/// Evaluations of a training on its test samples while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_epochs = 1 }")]
pub struct EvaluateSpec {
    /// Time from the begin of one to the begin of the next, in seconds, 1 or more.
    #[serde(default)]
    pub every_s: Option<u32>,
    /// Complete epochs from one to the next, 1 or more. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<u32>,
}

impl EvaluateSpec {
    /// One every so many seconds, 1 or more.
    pub fn every_s(seconds: u32) -> Self {
        Self { every_s: Some(seconds), every_epochs: None }
    }

    /// One whenever so many epochs are complete, 1 or more.
    pub fn every_epochs(epochs: u32) -> Self {
        Self { every_s: None, every_epochs: Some(epochs) }
    }

    /// What is wrong with it, in words.
    pub(super) fn fault(&self) -> Option<String> {
        interval::fault(self.every_s, self.every_epochs)
    }

    /// Whether one is due so long and so many complete epochs after the last.
    pub(crate) fn is_due(&self, elapsed_us: u64, epochs: u32) -> bool {
        interval::is_over(self.every_s, self.every_epochs, elapsed_us, epochs)
    }
}
