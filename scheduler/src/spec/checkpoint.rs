//! How often a training keeps a checkpoint, and how many of them stay.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::interval;

/// Checkpoints of a training: its parameters with the optimizer's state, exactly as of some moment, and how
/// far it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { every_s = 60 }")]
pub struct CheckpointSpec {
    /// Time from the beginning of one to the beginning of the next, in seconds, 1 or more.
    #[serde(default)]
    pub every_s: Option<u32>,
    /// Complete epochs from one to the next, 1 or more. With both, whichever comes first.
    #[serde(default)]
    pub every_epochs: Option<u32>,
    /// The newest so many stay, 1 to 100.
    #[serde(default = "two")]
    pub keep: u32,
    /// All are removed when the job is done, and its last parameters become none.
    #[serde(default)]
    pub until_done: bool,
}

/// The record of a job says of each where it was, and is written with every commit.
const MOST_KEPT: u32 = 100;

fn two() -> u32 {
    2
}

/// What a training keeps that says nothing of checkpoints: enough to lose no more than some minutes when a
/// shard is lost.
impl Default for CheckpointSpec {
    fn default() -> Self {
        Self { every_s: Some(300), every_epochs: None, keep: 1, until_done: true }
    }
}

impl CheckpointSpec {
    /// One every so many seconds, 1 or more; the newest two stay.
    pub fn every_s(seconds: u32) -> Self {
        Self { every_s: Some(seconds), every_epochs: None, keep: two(), until_done: false }
    }

    /// One whenever so many epochs are complete, 1 or more; the newest two stay.
    ///
    /// ```
    /// # use syncline_scheduler::spec::CheckpointSpec;
    /// let often = CheckpointSpec { every_s: Some(600), ..CheckpointSpec::every_epochs(1) }.keep(5);
    /// assert_eq!((often.every_epochs, often.keep), (Some(1), 5));
    /// ```
    pub fn every_epochs(epochs: u32) -> Self {
        Self { every_s: None, every_epochs: Some(epochs), keep: two(), until_done: false }
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

/// For people, behind the word `checkpoints`.
impl fmt::Display for CheckpointSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.every_s.map(|seconds| match seconds {
            seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        });
        let epochs = self.every_epochs.map(|epochs| match epochs {
            1 => "epoch".to_owned(),
            more => format!("{more} epochs"),
        });
        let every: Vec<String> = seconds.into_iter().chain(epochs).collect();
        write!(f, "every {}", every.join(" or "))?;
        match self {
            default if *default == Self::default() => f.write_str(" until it is done (default)"),
            Self { until_done: true, keep, .. } => write!(f, " until it is done, the newest {keep}"),
            Self { keep, .. } => write!(f, ", the newest {keep}, and that of its end when it is done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_told_in_words_table() {
        let both = CheckpointSpec { every_s: Some(90), ..CheckpointSpec::every_epochs(2) };
        let gone = CheckpointSpec { until_done: true, ..CheckpointSpec::every_s(60) };
        #[rustfmt::skip]
        let cases = [
            (CheckpointSpec::default(),              "every 5 min until it is done (default)"),
            (CheckpointSpec::every_s(300).keep(1),   "every 5 min, the newest 1, and that of its end when it is done"),
            (CheckpointSpec::every_epochs(1),        "every epoch, the newest 2, and that of its end when it is done"),
            (both,                                   "every 90 s or 2 epochs, the newest 2, and that of its end when it is done"),
            (gone,                                   "every 1 min until it is done, the newest 2"),
        ];
        for (spec, words) in cases {
            assert_eq!(spec.to_string(), words);
        }
    }

    #[test]
    fn what_an_earlier_release_stored_is_what_was_asked_for_then() {
        let read = |text| serde_json::from_str::<Option<CheckpointSpec>>(text).unwrap();
        assert_eq!(read("null"), None);
        assert_eq!(
            read(r#"{"every_s":300,"every_epochs":null,"keep":1}"#),
            Some(CheckpointSpec::every_s(300).keep(1))
        );
        let stored = serde_json::to_string(&CheckpointSpec::default()).unwrap();
        assert_eq!(read(&stored), Some(CheckpointSpec::default()));
    }
}
