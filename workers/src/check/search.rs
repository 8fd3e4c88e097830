//! Which gradients differ from the differences, in a time that does not grow with the model.

use std::time::{Duration, Instant};

use syncline_onnx::SplitMix64;
use syncline_runtime::{BackendError, stage};

use super::differences::Differences;
use super::feed::Fed;
use super::groups::{direction, of_like_size};

/// Random directions in which each group is looked at, beside that of its gradients.
const MIXED_DIRECTIONS: usize = 3;
/// About how long evaluations of the loss may take, if no gradient is wrong.
const BUDGET: Duration = Duration::from_secs(4);
/// When groups that differ are not taken apart any more.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// Which of the steps agreed best the last time.
    pub(super) step: usize,
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
        let most = (evaluations / whole).max(1.0) as usize;
        let mut open = of_like_size(self.scales, most.min(self.grads.len()));
        let mut seen = 0;
        while let Some(group) = open.pop() {
            stage::enter(&format!("compare gradients: {seen} of {} parameters", self.grads.len()));
            let left = BUDGET.saturating_sub(began.elapsed()).as_secs_f64();
            let directions = affordable(left / once, open.len() + 1);
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
            let steps = self.differences.steps(direction.unit);
            // The step that did for the last direction first: kinks are near everywhere in a model, or
            // nowhere.
            let first = self.step;
            let order = [first].into_iter().chain((0..steps.len()).filter(|step| *step != first));
            for step in order {
                let slope = self.differences.slope(fed, &direction, steps[step])?;
                let error = (slope - direction.expected).abs() / direction.unit;
                if error < closest {
                    (closest, self.step) = (error, step);
                }
                if closest < self.tolerance / 3.0 {
                    break;
                }
            }
            found.error = found.error.max(closest);
        }
        Ok(found)
    }
}

/// Random directions for each of `groups`, for which there are so many evaluations left; one at least, since
/// a part that is missing does not show along the gradient.
fn affordable(evaluations: f64, groups: usize) -> usize {
    let each = evaluations / groups.max(1) as f64;
    ((each / 2.0) as usize).saturating_sub(1).clamp(1, MIXED_DIRECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_directions_are_looked_at_as_there_is_time_for_and_one_at_least() {
        #[rustfmt::skip]
        let cases = [
            (80.0, 10, 3), // 8 evaluations each: along the gradients and three others, twice
            (800.0, 10, 3),
            (60.0, 10, 2),
            (10.0, 10, 1),
            (0.0, 10, 1),
            (0.0, 0, 1),
        ];
        for (evaluations, groups, directions) in cases {
            assert_eq!(affordable(evaluations, groups), directions, "{evaluations} for {groups}");
        }
    }
}
