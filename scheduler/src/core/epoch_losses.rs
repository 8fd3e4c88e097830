//! The mean training loss of an epoch: of all of its samples, each by its weight in the loss, while the
//! parameters changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{json_number, worker_protocol::Iterated};

/// The losses of the epochs that run, and of the newest that is complete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EpochLosses {
    running: BTreeMap<u32, Losses>,
    newest: Option<Losses>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Losses {
    /// Sum of the losses that are numbers, each times its weight.
    #[serde(with = "json_number")]
    weighted_sum: f64,
    weight: f64,
}

impl EpochLosses {
    /// Counts an iteration of this epoch.
    pub(super) fn add(&mut self, epoch: u32, it: &Iterated) {
        // Where no label counts there is no loss.
        if !it.skipped && !it.loss.is_nan() {
            let losses = self.running.entry(epoch).or_default();
            losses.weighted_sum += f64::from(it.loss) * f64::from(it.loss_weight);
            losses.weight += f64::from(it.loss_weight);
        }
    }

    /// Every sample of this epoch is counted.
    pub(super) fn complete(&mut self, epoch: u32) {
        self.newest = self.running.remove(&epoch);
    }

    /// Mean over the newest epoch that is complete; `None` before there is one, and where none of its losses
    /// was a number.
    pub(super) fn newest(&self) -> Option<f64> {
        self.newest.map(|losses| losses.weighted_sum / losses.weight).filter(|mean| !mean.is_nan())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_the_mean_of_its_own_iterations_by_their_weights() {
        let mut losses = EpochLosses::default();
        assert_eq!(losses.newest(), None);
        #[rustfmt::skip]
        let reports = [
            // epoch, loss, weight, skipped
            (0, 2.0,      1.0, false),
            (1, 8.0,      1.0, false),
            (0, 4.0,      3.0, false),
            (0, 9.0,      1.0, true),
            (0, f32::NAN, 0.0, false),
        ];
        for (epoch, loss, loss_weight, skipped) in reports {
            losses.add(epoch, &Iterated { loss, loss_weight, skipped, ..Iterated::default() });
        }
        losses.complete(0);
        assert_eq!(losses.newest(), Some(3.5));
        losses.complete(1);
        assert_eq!(losses.newest(), Some(8.0));
        losses.complete(2);
        assert_eq!(losses.newest(), None, "all of it was skipped");
    }
}
