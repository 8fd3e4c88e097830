//! What has changed since the last commit.

use std::collections::BTreeSet;

use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep},
};

/// What has been touched since the last commit.
#[derive(Debug, Clone, Default)]
pub(super) struct Touched {
    pub spec: bool,
    pub central: bool,
    pub tasks: BTreeSet<TaskId>,
    pub members: BTreeSet<Incarnation>,
    pub spans: BTreeSet<Superstep>,
    pub events: Vec<Vec<(&'static str, String)>>,
    pub barriers: Vec<Vec<(&'static str, String)>>,
}

/// Iterations that were reported, for the metrics stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse {
    pub iterations: u64,
    pub samples: u64,
    pub loss_sum: f64,
    pub busy_us: u64,
    pub compute_us: u64,
    pub wait_us: u64,
    pub staleness_max: u64,
    pub staleness_sum: u64,
}

impl Touched {
    pub(super) fn is_empty(&self) -> bool {
        !self.spec
            && !self.central
            && self.tasks.is_empty()
            && self.members.is_empty()
            && self.spans.is_empty()
            && self.events.is_empty()
            && self.barriers.is_empty()
    }
}
