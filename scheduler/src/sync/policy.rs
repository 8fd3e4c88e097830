//! A policy with its state, as it is stored with the job.

use serde::{Deserialize, Serialize};

use super::{Asp, Auto, Bsp, Dssp, ElasticBsp, ElasticLb, LbBsp, LocalRounds, Ssp, SyncPolicy};
use crate::spec::{PolicyRule, PolicySpec};

/// One of the policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// `bsp`: a barrier after every iteration.
    Bsp(Bsp),
    /// `asp`: no barriers.
    Asp(Asp),
    /// `ssp`: a bounded lead over the slowest.
    Ssp(Ssp),
    /// `dssp`: the same with a bound that moves.
    Dssp(Dssp),
    /// `elastic-bsp`: barriers where predicted iterations meet best.
    ElasticBsp(ElasticBsp),
    /// `lb-bsp`: BSP with batch sizes by speed.
    LbBsp(LbBsp),
    /// `elastic-lb`: the two before in one.
    ElasticLb(ElasticLb),
    /// `local-sgd` and `diloco`: steps on the workers' own copies, then a merge.
    Local(LocalRounds),
    /// `auto`: one of the others, chosen whenever a superstep opens.
    Auto(Auto),
}

impl Policy {
    /// The policy in its first state.
    pub fn new(spec: PolicySpec) -> Self {
        match spec.rule {
            PolicyRule::Bsp => Self::Bsp(Bsp),
            PolicyRule::Asp => Self::Asp(Asp),
            PolicyRule::Ssp { staleness } => Self::Ssp(Ssp::new(staleness)),
            PolicyRule::Dssp { lower, upper, reading } => Self::Dssp(Dssp::new(lower, upper, reading)),
            PolicyRule::ElasticBsp(options) => Self::ElasticBsp(ElasticBsp::new(options)),
            PolicyRule::LbBsp(options) => Self::LbBsp(LbBsp::new(options)),
            PolicyRule::ElasticLb(elastic, balance) => Self::ElasticLb(ElasticLb::new(elastic, balance)),
            PolicyRule::LocalSgd { steps } => Self::Local(LocalRounds::average(steps)),
            PolicyRule::DiLoCo { steps, outer_rate, .. } => {
                Self::Local(LocalRounds::outer(steps, outer_rate))
            }
            PolicyRule::Auto(elastic, balance) => Self::Auto(Auto::new(elastic, balance)),
        }
    }

    /// The trait behind the stored form.
    pub fn as_dyn(&self) -> &dyn SyncPolicy {
        match self {
            Self::Bsp(p) => p,
            Self::Asp(p) => p,
            Self::Ssp(p) => p,
            Self::Dssp(p) => p,
            Self::ElasticBsp(p) => p,
            Self::LbBsp(p) => p,
            Self::ElasticLb(p) => p,
            Self::Local(p) => p,
            Self::Auto(p) => p,
        }
    }

    /// The rule behind the variant, to be changed.
    pub fn as_dyn_mut(&mut self) -> &mut dyn SyncPolicy {
        match self {
            Self::Bsp(p) => p,
            Self::Asp(p) => p,
            Self::Ssp(p) => p,
            Self::Dssp(p) => p,
            Self::ElasticBsp(p) => p,
            Self::LbBsp(p) => p,
            Self::ElasticLb(p) => p,
            Self::Local(p) => p,
            Self::Auto(p) => p,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Aggregation, Context, EndRule},
        *,
    };
    use crate::spec::StepsOn;

    #[test]
    fn what_the_optimizer_steps_on_is_what_the_policy_makes_of_gradients() {
        #[rustfmt::skip]
        let cases = [
            ("bsp",                            StepsOn::Round),
            ("lb-bsp",                         StepsOn::Round),
            ("asp",                            StepsOn::EachBatch),
            ("ssp:3",                          StepsOn::EachBatch),
            ("dssp:3:15",                      StepsOn::EachBatch),
            ("elastic-bsp:15",                 StepsOn::EachBatch),
            ("elastic-bsp:15+update=barrier",  StepsOn::Barrier),
            ("elastic-lb:15",                  StepsOn::EachBatch),
            ("elastic-lb:15+update=barrier",   StepsOn::Barrier),
            ("local-sgd:8",                    StepsOn::OwnBatches),
            ("diloco:8",                       StepsOn::OwnBatches),
        ];
        for (text, want) in cases {
            let spec: PolicySpec = text.parse().unwrap();
            let context = Context { batch: 32, workers: &[], local_rounds: true };
            let rules = Policy::new(spec).as_dyn_mut().open(&context);
            let made = match rules.aggregation {
                Aggregation::PerPush => StepsOn::EachBatch,
                Aggregation::PerBarrier if rules.ending == EndRule::Quota(1) => StepsOn::Round,
                Aggregation::PerBarrier => StepsOn::Barrier,
                Aggregation::LocalAverage | Aggregation::LocalOuter { .. } => StepsOn::OwnBatches,
            };
            assert_eq!((spec.rule.steps_on(), made), (want, want), "{text}");
        }
    }
}
