//! What has changed since the last commit, and what was measured since the last point of the curve.

use std::collections::BTreeSet;

use super::worker_protocol::Iterated;
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
    pub events: Vec<Vec<(&'static str, String)>>,
    pub barriers: Vec<Vec<(&'static str, String)>>,
}

/// Iterations that were reported, for the metrics stream.
#[derive(Debug, Clone, Default)]
pub(super) struct MetricsWindow {
    pub iterations: u64,
    pub samples: u64,
    pub loss_sum: f64,
    pub busy_us: u64,
    pub compute_us: u64,
    pub wait_us: u64,
    pub staleness_max: u64,
    pub staleness_sum: u64,
}

impl MetricsWindow {
    pub(super) fn add(&mut self, it: &Iterated, samples: u64) {
        self.iterations += 1;
        self.samples += samples;
        self.loss_sum += f64::from(it.loss) * samples as f64;
        self.busy_us += it.busy_us();
        self.compute_us += it.compute_us;
        self.wait_us += it.wait_us;
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
    }
}
