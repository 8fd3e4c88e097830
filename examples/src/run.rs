//! What is chosen anew for every run of an example.

use syncline::{PolicyRule, PolicySpec, Settings};

/// One run of an example.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Id of the job.
    pub id: &'a str,
    /// When workers meet; the learning rate is scaled to suit it.
    pub policy: PolicySpec,
    /// Passes over the training samples.
    pub epochs: u32,
    /// Seed of the order of the samples, of Dropout, and of first weights that an example makes itself.
    pub seed: u64,
    /// Training starts when this many are there.
    pub workers: u32,
}

impl Run<'_> {
    /// Puts this run into the settings. `rate`: the learning rate where a round's gradients are averaged.
    pub fn set(&self, settings: &mut Settings, rate: f64) {
        settings.learning_rate = Some((rate * share(self.policy)) as f32);
        settings.policy = self.policy;
        settings.epochs = self.epochs;
        settings.seed = self.seed;
        settings.min_workers = self.workers;
    }
}

/// How much of a learning rate suits a policy. Where a round's gradients are averaged into one update, it
/// takes larger steps.
fn share(policy: PolicySpec) -> f64 {
    match policy.rule {
        PolicyRule::Bsp | PolicyRule::LbBsp(_) => 1.0,
        PolicyRule::ElasticBsp(options) | PolicyRule::ElasticLb(options, _) if options.average => 1.0,
        PolicyRule::LocalSgd { .. } => 1.0,
        // The outer momentum multiplies the inner steps.
        PolicyRule::DiLoCo { .. } => 0.2,
        // `auto` multiplies by the number of workers where it averages.
        PolicyRule::Asp
        | PolicyRule::Ssp { .. }
        | PolicyRule::Dssp { .. }
        | PolicyRule::ElasticBsp(_)
        | PolicyRule::ElasticLb(..)
        | PolicyRule::Auto(..) => 0.3,
    }
}
