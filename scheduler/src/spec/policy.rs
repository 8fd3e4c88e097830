//! Which rule decides when workers meet, as a user names it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::policy_text::{Options, PolicySyntaxError};
use crate::{
    predict::PredictorSpec,
    suggestion::did_you_mean,
    sync::search::{Algorithm, Slack},
};

/// A synchronization policy with its settings. Text form: a name, its arguments and its options, as in
/// `ssp:3` or `elastic-bsp:15+predictor=ema:0.2+early=0.05`; see [`POLICIES`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicySpec {
    /// When workers meet, and how much each does until then.
    pub rule: PolicyRule,
    /// How the next interval of a worker is predicted.
    pub predictor: PredictorSpec,
}

/// The rule, with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PolicyRule {
    /// A barrier after every iteration of all workers; one update from the round's weighted mean.
    Bsp,
    /// No barriers; every push is an update.
    Asp,
    /// Nobody starts an iteration more than `staleness` ahead of the slowest.
    Ssp {
        /// Largest lead in iterations at the start of one: s in the paper. A push may lead by one more.
        staleness: u32,
    },
    /// SSP with a threshold between `lower` and `upper`, chosen at run time.
    Dssp {
        /// Lead up to which nobody waits: s_L in the paper.
        lower: u32,
        /// Lead up to which extra iterations may be granted, at least `lower`: s_U in the paper.
        upper: u32,
        /// Whether `upper` bounds every grant, or only the first.
        reading: DsspReading,
    },
    /// Barriers where ZipLine finds the narrowest window in the predicted iterations.
    ElasticBsp(ElasticOptions),
    /// BSP with batch sizes that follow the workers' speeds.
    LbBsp(BalanceOptions),
    /// Both.
    ElasticLb(ElasticOptions, BalanceOptions),
    /// Local steps, then the parameters are averaged.
    LocalSgd {
        /// Steps of each worker in a round, at least 1.
        steps: u32,
    },
    /// Local steps, then an outer Nesterov step along the mean change.
    DiLoCo {
        /// Steps of each worker in a round, at least 1.
        steps: u32,
        /// Learning rate of the outer step.
        outer_rate: f32,
        /// Momentum of the outer step, 0 to below 1.
        momentum: f32,
    },
    /// Chosen at run time.
    Auto(ElasticOptions, BalanceOptions),
}

/// What a step of the optimizer is made on, under a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepsOn {
    /// The gradient of one batch: as many steps as batches.
    EachBatch,
    /// The mean gradient of a batch of every worker.
    Round,
    /// The mean gradient of all batches since the barrier before.
    Barrier,
    /// Each worker steps on its own batches, and the mean is taken later.
    OwnBatches,
    /// As the policy has it that `auto` chooses.
    Chosen,
}

impl PolicyRule {
    /// What the optimizer steps on: by that a learning rate suits one policy and not another.
    pub fn steps_on(&self) -> StepsOn {
        match self {
            Self::Bsp | Self::LbBsp(_) => StepsOn::Round,
            Self::ElasticBsp(elastic) | Self::ElasticLb(elastic, _) if elastic.average => StepsOn::Barrier,
            Self::Asp | Self::Ssp { .. } | Self::Dssp { .. } | Self::ElasticBsp(_) | Self::ElasticLb(..) => {
                StepsOn::EachBatch
            }
            Self::LocalSgd { .. } | Self::DiLoCo { .. } => StepsOn::OwnBatches,
            Self::Auto(..) => StepsOn::Chosen,
        }
    }
}

/// How DSSP's second grant above the upper threshold is read; see [`crate::sync::Dssp`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DsspReading {
    /// Never beyond the upper threshold.
    #[default]
    Strict,
    /// As printed: no bound.
    Literal,
}

/// Settings of ElasticBSP.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ElasticOptions {
    /// R: iterations predicted per worker.
    pub lookahead: u32,
    /// How the window is searched.
    pub algorithm: Algorithm,
    /// The first predicted point: 1, the next iteration; 0, the last push itself (the authors' generator).
    pub first: u32,
    /// Take the earliest window at most this share wider than the narrowest.
    pub early: Slack,
    /// Most iterations between the first and the last worker inside a superstep.
    pub max_lead: Option<u32>,
    /// Average a superstep's gradients into one update instead of applying each as it arrives.
    pub average: bool,
    /// A worker that takes this many times its predicted interval makes the superstep be planned again.
    pub overrun: f64,
}

impl Default for ElasticOptions {
    fn default() -> Self {
        Self {
            lookahead: 15,
            algorithm: Algorithm::default(),
            first: 1,
            early: Slack::default(),
            max_lead: None,
            average: false,
            overrun: 3.0,
        }
    }
}

/// How LB-BSP models the time of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceRule {
    /// Proportional to the batch: CPUs.
    #[default]
    Proportional,
    /// Flat, then linear, fitted to the batches seen: GPUs.
    Curve,
    /// No model: a step of batch moves from the straggler to the leader.
    Step,
}

/// Settings of LB-BSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceOptions {
    /// How the time of a batch is modeled.
    pub rule: BalanceRule,
    /// Least samples per iteration and worker.
    pub min: u32,
    /// Most samples per iteration and worker; one whose memory holds less gets less.
    pub max: u32,
}

impl Default for BalanceOptions {
    fn default() -> Self {
        Self { rule: BalanceRule::default(), min: 1, max: MAX_BATCH }
    }
}

const MAX_LOOKAHEAD: u32 = 10_000;
const MAX_STALENESS: u32 = 1_000_000;
const MAX_STEPS: u32 = 100_000;
const MAX_BATCH: u32 = 1 << 24;

/// What can be written, one line each: the form and what it means.
pub const POLICIES: &[(&str, &str)] = &[
    ("bsp", "a barrier after every iteration"),
    ("asp", "no barriers"),
    ("ssp:S", "at most S iterations ahead of the slowest"),
    ("dssp:L:U", "the same, S between L and U as it pays off; +reading=literal"),
    (
        "elastic-bsp[:R]",
        "barriers where R predicted iterations meet best; +early=EPS +max-lead=N +update=barrier +overrun=X \
         +search=NAME +first=0",
    ),
    ("lb-bsp", "bsp with batch sizes by speed; +rule=proportional|curve|step +min=N +max=N"),
    ("elastic-lb[:R]", "elastic-bsp with batch sizes by speed; options of both"),
    ("local-sgd:H", "H local steps, then the parameters are averaged"),
    ("diloco:H", "H local steps, then an outer Nesterov step; +outer-rate=0.7 +momentum=0.9"),
    ("auto[:R]", "chosen at run time"),
];

/// Why a text names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[E003] `{text}` is not a policy: {why}")]
#[non_exhaustive]
pub struct InvalidPolicy {
    /// What was written, cut to 80 characters.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl InvalidPolicy {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E003"
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some("docs/policies.md has all policies, `syncline simulate` tries them".to_owned())
    }
}

impl Default for PolicySpec {
    /// `elastic-bsp:15`.
    fn default() -> Self {
        Self::new(PolicyRule::ElasticBsp(ElasticOptions::default()))
    }
}

impl PolicySpec {
    /// The rule with the paper's predictor: the last interval.
    pub fn new(rule: PolicyRule) -> Self {
        Self { rule, predictor: PredictorSpec::default() }
    }

    /// The name without arguments and options.
    pub fn name(&self) -> &'static str {
        match self.rule {
            PolicyRule::Bsp => "bsp",
            PolicyRule::Asp => "asp",
            PolicyRule::Ssp { .. } => "ssp",
            PolicyRule::Dssp { .. } => "dssp",
            PolicyRule::ElasticBsp(_) => "elastic-bsp",
            PolicyRule::LbBsp(_) => "lb-bsp",
            PolicyRule::ElasticLb(..) => "elastic-lb",
            PolicyRule::LocalSgd { .. } => "local-sgd",
            PolicyRule::DiLoCo { .. } => "diloco",
            PolicyRule::Auto(..) => "auto",
        }
    }

    /// Whether the time of a batch is fitted to the batches seen.
    pub fn fits_curves(&self) -> bool {
        match self.rule {
            PolicyRule::LbBsp(o) | PolicyRule::ElasticLb(_, o) | PolicyRule::Auto(_, o) => {
                o.rule != BalanceRule::Step
            }
            _ => false,
        }
    }

    /// Whether a worker may be given a larger batch than that of the job.
    pub fn sizes_batches(&self) -> bool {
        matches!(self.rule, PolicyRule::LbBsp(_) | PolicyRule::ElasticLb(..) | PolicyRule::Auto(..))
    }

    /// Sets the lookahead where the rule has one.
    #[must_use]
    pub fn with_lookahead(mut self, lookahead: u32) -> Self {
        if let PolicyRule::ElasticBsp(o) | PolicyRule::ElasticLb(o, _) | PolicyRule::Auto(o, _) =
            &mut self.rule
        {
            o.lookahead = lookahead;
        }
        self
    }

    fn parse(text: &str) -> Result<Self, PolicySyntaxError> {
        let mut o = Options::split(text)?;
        let rule = match o.name() {
            "bsp" => PolicyRule::Bsp,
            "asp" => PolicyRule::Asp,
            "ssp" => PolicyRule::Ssp { staleness: o.argument("S", 0..=MAX_STALENESS, "ssp:3")? },
            "dssp" => {
                let lower = o.argument("L", 0..=MAX_STALENESS, "dssp:3:15")?;
                let upper =
                    o.argument("U", lower..=MAX_STALENESS, &format!("dssp:{lower}:{}", lower.max(15)))?;
                let reading = o.choice(
                    "reading",
                    &[("strict", DsspReading::Strict), ("literal", DsspReading::Literal)],
                )?;
                PolicyRule::Dssp { lower, upper, reading: reading.unwrap_or_default() }
            }
            "elastic-bsp" => PolicyRule::ElasticBsp(elastic(&mut o)?),
            "lb-bsp" => PolicyRule::LbBsp(balance(&mut o)?),
            "elastic-lb" => PolicyRule::ElasticLb(elastic(&mut o)?, balance(&mut o)?),
            "local-sgd" => PolicyRule::LocalSgd { steps: o.argument("H", 1..=MAX_STEPS, "local-sgd:8")? },
            "diloco" => PolicyRule::DiLoCo {
                steps: o.argument("H", 1..=MAX_STEPS, "diloco:16")?,
                outer_rate: o.number("outer-rate", 0.0..=10.0)?.unwrap_or(0.7) as f32,
                momentum: o.number("momentum", 0.0..=0.999_999)?.unwrap_or(0.9) as f32,
            },
            "auto" => PolicyRule::Auto(elastic(&mut o)?, balance(&mut o)?),
            unknown => {
                let forms: Vec<&str> = POLICIES.iter().map(|(form, _)| *form).collect();
                let names = forms.iter().filter_map(|form| form.split([':', '[']).next());
                let meant = did_you_mean(unknown, names);
                return Err(PolicySyntaxError(format!("expected one of {}{meant}", forms.join(", "))));
            }
        };
        let predictor = o.parsed::<PredictorSpec>("predictor")?.unwrap_or_default();
        o.finish()?;
        Ok(Self { rule, predictor })
    }
}

fn elastic(o: &mut Options<'_>) -> Result<ElasticOptions, PolicySyntaxError> {
    let default = ElasticOptions::default();
    let (algorithm, early) =
        (o.parsed("search")?.unwrap_or_default(), o.parsed("early")?.unwrap_or_default());
    if early != Slack::default() && algorithm != Algorithm::default() {
        return Err(PolicySyntaxError("`early` goes with the default search alone".into()));
    }
    Ok(ElasticOptions {
        lookahead: o.optional_argument("R", 1..=MAX_LOOKAHEAD)?.unwrap_or(default.lookahead),
        algorithm,
        first: o.choice("first", &[("1", 1), ("0", 0)])?.unwrap_or(default.first),
        early,
        max_lead: o.number("max-lead", 1.0..=f64::from(MAX_STALENESS))?.map(|n| n as u32),
        average: o.choice("update", &[("push", false), ("barrier", true)])?.unwrap_or(default.average),
        overrun: o.number("overrun", 1.0..=1e6)?.unwrap_or(default.overrun),
    })
}

fn balance(o: &mut Options<'_>) -> Result<BalanceOptions, PolicySyntaxError> {
    let default = BalanceOptions::default();
    let rules = [
        ("proportional", BalanceRule::Proportional),
        ("curve", BalanceRule::Curve),
        ("step", BalanceRule::Step),
    ];
    let rule = o.choice("rule", &rules)?.unwrap_or_default();
    let min = o.number("min", 1.0..=f64::from(MAX_BATCH))?.map_or(default.min, |n| n as u32);
    let max = o.number("max", f64::from(min)..=f64::from(MAX_BATCH))?.map_or(default.max, |n| n as u32);
    Ok(BalanceOptions { rule, min, max })
}

impl FromStr for PolicySpec {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        Self::parse(text)
            .map_err(|PolicySyntaxError(why)| InvalidPolicy { text: text.chars().take(80).collect(), why })
    }
}

impl TryFrom<String> for PolicySpec {
    type Error = InvalidPolicy;

    fn try_from(text: String) -> Result<Self, InvalidPolicy> {
        text.parse()
    }
}

impl From<PolicySpec> for String {
    fn from(policy: PolicySpec) -> Self {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_as_they_print() {
        #[rustfmt::skip]
        let cases = [
            ("bsp",                                  "bsp"),
            ("bsp+predictor=ema:0.2",                "bsp+predictor=ema:0.2"),
            ("asp",                                  "asp"),
            ("ssp:3",                                "ssp:3"),
            ("dssp:3:15",                            "dssp:3:15"),
            ("dssp:3:3+reading=literal",             "dssp:3:3+reading=literal"),
            ("elastic-bsp",                          "elastic-bsp:15"),
            ("elastic-bsp:240+early=0.05+first=0",   "elastic-bsp:240+first=0+early=0.05"),
            ("elastic-bsp:5+update=barrier+max-lead=9+overrun=2+search=zipline",
                                    "elastic-bsp:5+search=zipline+max-lead=9+update=barrier+overrun=2"),
            ("lb-bsp+rule=curve+min=2+max=64",       "lb-bsp+rule=curve+min=2+max=64"),
            ("elastic-lb:7+rule=step",               "elastic-lb:7+rule=step"),
            ("local-sgd:8",                          "local-sgd:8"),
            ("diloco:16+outer-rate=0.5+momentum=0",  "diloco:16+outer-rate=0.5+momentum=0"),
            ("auto",                                 "auto:15"),
        ];
        for (text, want) in cases {
            let parsed: PolicySpec = text.parse().unwrap();
            assert_eq!(parsed.to_string(), want);
            assert_eq!(want.parse(), Ok(parsed), "{want}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        #[rustfmt::skip]
        let cases = [
            ("",                          "expected one of"),
            ("BSP",                       "expected one of"),
            ("bps",                       "auto[:R]; did you mean `bsp`?"),
            ("elasticbsp:15",             "auto[:R]; did you mean `elastic-bsp`?"),
            ("bsp:1",                     "`1` is one argument too many"),
            ("ssp",                       "S is missing, as in `ssp:3`"),
            ("dssp",                      "L is missing, as in `dssp:3:15`"),
            ("dssp:3",                    "U is missing, as in `dssp:3:15`"),
            ("dssp:20",                   "U is missing, as in `dssp:20:20`"),
            ("ssp:-1",                    "S = -1, expected a whole number from 0 to 1000000"),
            ("dssp:5:3",                  "U = 3, expected a whole number from 5 to"),
            ("elastic-bsp:0",             "R = 0, expected a whole number from 1 to 10000"),
            ("elastic-bsp:15+early=x",    "early: [E561] `x`"),
            ("elastic-bsp:15+search=zipline+early=0.1", "`early` goes with the default search alone"),
            ("elastic-bsp:15+earli=0.1",  "no option `earli`; did you mean `early`?"),
            ("lb-bsp+predicter=last",     "no option `predicter`; did you mean `predictor`?"),
            ("elastic-bsp+search=zip-line",      "full-grid-scan; did you mean `zipline`?"),
            ("bsp+predictor=medain:4",    "or narx; did you mean `median`?"),
            ("elastic-bsp+early",         "`early` is no option: expected key=value"),
            ("elastic-bsp+predictor=ema", "predictor"),
            ("lb-bsp+rule=best",          "rule = best, expected proportional, curve or step"),
            ("lb-bsp+rule=curves",        "curve or step; did you mean `curve`?"),
            ("lb-bsp+min=8+max=4",        "max = 4"),
            ("local-sgd:0",               "H = 0"),
            ("diloco:8+momentum=1",       "momentum = 1"),
            ("bsp+reading=literal",       "no option `reading`"),
        ];
        for (text, want) in cases {
            let error = text.parse::<PolicySpec>().unwrap_err().to_string();
            assert!(error.starts_with("[E003]") && error.contains(want), "{text}: {error}");
        }
    }
}
