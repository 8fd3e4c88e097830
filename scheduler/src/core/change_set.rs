//! What has changed since the last commit, and what was measured since the last point of the curve.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{event::Event, json_number, worker_protocol::Iterated};
use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep},
};

/// What the next commit must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct ChangeSet {
    pub spec: bool,
    pub job_state: bool,
    pub tasks: BTreeSet<TaskId>,
    pub members: BTreeSet<Incarnation>,
    pub supersteps: BTreeSet<Superstep>,
    pub events: Vec<Event>,
    pub barriers: Vec<Vec<(&'static str, String)>>,
    pub evaluations: Vec<Vec<(&'static str, String)>>,
    /// Points of the loss curve that stand for what is undone now.
    pub undone: Vec<Vec<(&'static str, String)>>,
}

/// Iterations that were reported, for the metrics stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsWindow {
    pub iterations: u64,
    /// Sum of the losses that are numbers, each times its weight.
    #[serde(default, with = "json_number")]
    pub weighted_loss_sum: f64,
    /// Sum of these weights.
    #[serde(default)]
    pub loss_weight: f64,
    /// Samples of those.
    pub loss_samples: u64,
    pub busy_us: u64,
    pub compute_us: u64,
    pub wait_us: u64,
    pub staleness_max: u64,
    pub staleness_sum: u64,
}

impl MetricsWindow {
    /// An iteration, but for how long it waited.
    pub(super) fn add(&mut self, it: &Iterated, samples: u64) {
        self.iterations += 1;
        // Where no label counts there is no loss.
        if !it.skipped && !it.loss.is_nan() {
            self.weighted_loss_sum += f64::from(it.loss) * f64::from(it.loss_weight);
            self.loss_weight += f64::from(it.loss_weight);
            self.loss_samples += samples;
        }
        self.busy_us += it.busy_us();
        self.compute_us += it.compute_us;
        self.staleness_sum += it.staleness;
        self.staleness_max = self.staleness_max.max(it.staleness);
    }
}

impl ChangeSet {
    pub(super) fn is_empty(&self) -> bool {
        !self.spec
            && !self.job_state
            && self.tasks.is_empty()
            && self.members.is_empty()
            && self.supersteps.is_empty()
            && self.events.is_empty()
            && self.barriers.is_empty()
            && self.evaluations.is_empty()
            && self.undone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_count_by_their_weight_and_those_skipped_or_without_a_label_not_at_all() {
        let mut window = MetricsWindow::default();
        let all = [(2.0, 0.5, false), (f32::NAN, f32::NAN, true), (f32::NAN, 0.0, false), (4.0, 6.0, false)];
        for (loss, loss_weight, skipped) in all {
            window.add(&Iterated { loss, loss_weight, skipped, compute_us: 10, ..Iterated::default() }, 8);
        }
        assert_eq!((window.weighted_loss_sum, window.loss_weight, window.loss_samples), (25.0, 6.5, 16));
        assert_eq!((window.iterations, window.compute_us), (4, 40));
    }
}
