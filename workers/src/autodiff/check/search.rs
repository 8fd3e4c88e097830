//! Which gradients differ from the differences, in a time that does not grow with the model.

use std::time::{Duration, Instant};

use super::differences::Differences;
use super::feed::Fed;
use super::groups::{direction, of_like_size};
use crate::backend::{BackendError, stage};
use crate::onnx::SplitMix64;

/// Random directions in which each group is looked at, beside that of its gradients.
const MIXED_DIRECTIONS: usize = 3;
/// About how long evaluations of the loss may take, if no gradient is wrong.
const BUDGET: Duration = Duration::from_secs(8);
/// When groups that differ are not taken apart any more.
const PATIENCE: Duration = Duration::from_secs(14);

/// What was found about one parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) error: f64,
    pub(super) together: usize,
}

/// Everything that the search needs.
pub(super) struct Search<'a> {
    pub(super) differences: Differences,
    pub(super) grads: &'a [Vec<f64>],
    /// Sizes of the gradients, none zero.
    pub(super) scales: &'a [f64],
    pub(super) tolerance: f64,
    pub(super) random: SplitMix64,
}

impl Search<'_> {
    /// Looks at every parameter; the answers are in their order.
    pub(super) fn run(mut self, fed: &mut [Fed]) -> Result<Vec<Found>, BackendError> {
        let nothing = Found { error: 0.0, together: 1 };
        let mut found = vec![nothing; self.grads.len()];
        let began = Instant::now();
        self.differences.value(fed)?;
        let once = began.elapsed().as_secs_f64().max(1e-9);
        let evaluations = BUDGET.as_secs_f64() / once;
        let whole = 2.0 * (1 + MIXED_DIRECTIONS) as f64;
        let directions = if evaluations < whole { 1 } else { MIXED_DIRECTIONS };
        let most = (evaluations / whole).max(1.0) as usize;
        let mut open = of_like_size(self.scales, most.min(self.grads.len()));
        let mut seen = 0;
        while let Some(group) = open.pop() {
            stage::enter(&format!("compare gradients: {seen} of {} parameters", self.grads.len()));
            let looked = self.look(fed, &group, directions)?;
            if looked.error > self.tolerance && group.len() > 1 && began.elapsed() < PATIENCE {
                let (left, right) = group.split_at(group.len() / 2);
                open.extend([left.to_vec(), right.to_vec()]);
                continue;
            }
            seen += group.len();
            for index in &group {
                found[*index] = looked;
            }
        }
        Ok(found)
    }

    /// Looks at the parameters of one group along all directions.
    fn look(&mut self, fed: &mut [Fed], group: &[usize], directions: usize) -> Result<Found, BackendError> {
        let mut found = Found { error: 0.0, together: group.len() };
        for round in 0..=directions {
            let direction = direction(group, self.grads, self.scales, &mut self.random, round > 0);
            let mut closest = f64::INFINITY;
            for step in self.differences.steps(direction.unit) {
                let slope = self.differences.slope(fed, &direction, step)?;
                closest = closest.min((slope - direction.expected).abs() / direction.unit);
                if closest < self.tolerance / 10.0 {
                    break;
                }
            }
            found.error = found.error.max(closest);
        }
        Ok(found)
    }
}
