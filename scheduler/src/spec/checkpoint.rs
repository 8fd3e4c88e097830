//! How often a training keeps a checkpoint, and how many of them stay.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::interval;

/// Checkpoints of a training: its parameters with the optimizer's state, exactly as of some moment, and how far it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_s = 60 }")]
pub struct CheckpointSpec {
    /// Time from the begin of one to the begin of the next, in seconds.
    #[serde(default)]
    pub every_s: Option<NonZeroU32>,
    /// Complete epochs from one to the next. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<NonZeroU32>,
    /// The newest so many stay.
    #[serde(default = "two")]
    pub keep: NonZeroU32,
}

fn two() -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(1)
}

impl CheckpointSpec {
    /// One every so many seconds; the newest two stay.
    pub fn every_s(seconds: NonZeroU32) -> Self {
        Self { every_s: Some(seconds), every_epochs: None, keep: two() }
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
