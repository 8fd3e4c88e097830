//! Local rounds: every worker takes `steps` optimizer steps on its own copy, then the copies are merged.
//! Transfers and barriers become `steps` times rarer, which is what slow links need.
//!
//! *Local SGD* (Stich, ICLR 2019, arXiv:1805.09767) merges by averaging the parameters: w ← w − Σ aᵢ Δᵢ with
//! Δᵢ = w − wᵢ and aᵢ the worker's share of the samples. *DiLoCo* (Douillard et al. 2023, arXiv:2311.08105)
//! takes the mean of the Δᵢ as the gradient of an outer optimizer, by default Nesterov with momentum 0.9 and
//! learning rate 0.7.

use serde::{Deserialize, Serialize};

use super::{Aggregation, Context, EndRule, SuperstepRules, SyncPolicy, Why};

/// Has no state but its settings; the inner optimizer's state stays with the workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LocalRounds {
    steps: u32,
    /// Learning rate of the outer optimizer; `None`: parameters are averaged.
    outer: Option<f32>,
}

impl LocalRounds {
    /// Averages the parameters after every `steps` steps.
    pub fn average(steps: u32) -> Self {
        Self { steps, outer: None }
    }

    /// Takes an outer step with this learning rate after every `steps` steps.
    pub fn outer(steps: u32, learning_rate: f32) -> Self {
        Self { steps, outer: Some(learning_rate) }
    }
}

impl SyncPolicy for LocalRounds {
    fn open(&mut self, _: &Context<'_>) -> SuperstepRules {
        let aggregation = self
            .outer
            .map_or(Aggregation::LocalAverage, |learning_rate| Aggregation::LocalOuter { learning_rate });
        let why = Why::rule(format!("{} local steps of everybody, then their copies are merged", self.steps));
        SuperstepRules::new(EndRule::Quota(self.steps), aggregation, why)
    }
}
