//! What an optimizer remembers from step to step.

use syncline_scheduler::spec::Optimizer;

/// What an optimizer remembers about one slice of parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState {
    /// Velocity, first moment, or the mean square of RMSprop; empty where the rule has none.
    pub(super) first: Vec<f32>,
    /// Second moment, or velocity or mean gradient of RMSprop; empty where the rule has none.
    pub(super) second: Vec<f32>,
    /// Steps taken, for bias correction.
    steps: u64,
}

impl OptimizerState {
    /// State before the first step on `elements` parameters.
    pub fn new(rule: &Optimizer, elements: usize) -> Self {
        let moment = |index: u64| vec![0.0; if index < rule.moments() { elements } else { 0 }];
        Self { first: moment(0), second: moment(1), steps: 0 }
    }

    /// State as it was saved.
    pub(crate) fn restored(first: Vec<f32>, second: Vec<f32>, steps: u64) -> Self {
        Self { first, second, steps }
    }

    /// Both moments, each empty where the rule has none.
    pub(crate) fn moments(&self) -> (&[f32], &[f32]) {
        (&self.first, &self.second)
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes back to before the first step.
    pub(crate) fn forget(&mut self) {
        // Memory that no step has touched stays untouched.
        if self.steps > 0 {
            self.first.fill(0.0);
            self.second.fill(0.0);
            self.steps = 0;
        }
    }

    /// Counts the next step, and says its number.
    pub(super) fn count(&mut self) -> u64 {
        self.steps = self.steps.saturating_add(1);
        self.steps
    }

    /// Counts steps in which it took no part, up to so many.
    pub(crate) fn catch_up(&mut self, steps: u64) {
        self.steps = self.steps.max(steps);
    }
}
