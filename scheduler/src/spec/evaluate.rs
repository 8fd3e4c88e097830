//! How often a training is evaluated while it runs.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::interval;

/// Evaluations of a training on its test samples while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_epochs = 1 }")]
pub struct EvaluateSpec {
    /// Time from the begin of one to the begin of the next, in seconds.
    #[serde(default)]
    pub every_s: Option<NonZeroU32>,
    /// Complete epochs from one to the next. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<NonZeroU32>,
}

impl EvaluateSpec {
    /// One whenever so many epochs are complete.
    pub fn every_epochs(epochs: NonZeroU32) -> Self {
        Self { every_s: None, every_epochs: Some(epochs) }
    }

    /// What is wrong with it, in words.
    pub(super) fn fault(&self) -> Option<&'static str> {
        interval::fault(self.every_s, self.every_epochs)
    }

    /// Whether one is due so long and so many complete epochs after the last.
    pub(crate) fn is_due(&self, elapsed_us: u64, epochs: u32) -> bool {
        interval::is_over(self.every_s, self.every_epochs, elapsed_us, epochs)
    }
}
