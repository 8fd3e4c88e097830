//! How often a training keeps a checkpoint, and how many of them stay.

use serde::{Deserialize, Serialize};

use super::interval;

/// Checkpoints of a training: its parameters with the optimizer's state, exactly as of some moment, and how far it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_s = 60 }")]
pub struct CheckpointSpec {
    /// Time from the begin of one to the begin of the next, in seconds, 1 or more.
    #[serde(default)]
    pub every_s: Option<u32>,
    /// Complete epochs from one to the next, 1 or more. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<u32>,
    /// The newest so many stay, 1 to 100.
    #[serde(default = "two")]
    pub keep: u32,
}

/// The record of a job says of each where it was, and is written with every commit.
const MOST_KEPT: u32 = 100;

fn two() -> u32 {
    2
}

impl CheckpointSpec {
    /// One every so many seconds, 1 or more; the newest two stay.
    pub fn every_s(seconds: u32) -> Self {
        Self { every_s: Some(seconds), every_epochs: None, keep: two() }
    }

    /// One whenever so many epochs are complete, 1 or more; the newest two stay.
    ///
    /// ```
    /// use syncline_scheduler::spec::CheckpointSpec;
    /// let often = CheckpointSpec { every_s: Some(600), ..CheckpointSpec::every_epochs(1) }.keep(5);
    /// assert_eq!((often.every_epochs, often.keep), (Some(1), 5));
    /// ```
    pub fn every_epochs(epochs: u32) -> Self {
        Self { every_s: None, every_epochs: Some(epochs), keep: two() }
    }

    /// So many of the newest checkpoints stay, 1 or more.
    #[must_use]
    pub fn keep(mut self, newest: u32) -> Self {
        self.keep = newest;
        self
    }

    /// What is wrong with it, in words.
    pub(super) fn fault(&self) -> Option<String> {
        interval::fault(self.every_s, self.every_epochs)
            .or_else(|| interval::below_one("keep", Some(self.keep)))
            .or_else(|| {
                (self.keep > MOST_KEPT).then(|| format!("keep = {} is more than {MOST_KEPT}", self.keep))
            })
    }

    /// Whether one is due so long and so many complete epochs after the last.
    pub(crate) fn is_due(&self, elapsed_us: u64, epochs: u32) -> bool {
        interval::is_over(self.every_s, self.every_epochs, elapsed_us, epochs)
    }
}
