//! What is simulated: the workers, how their speed varies, the policy.

use serde::{Deserialize, Serialize};

use crate::spec::PolicySpec;

/// Bounds that keep a mistyped scenario from taking all memory or all day.
const MAX_WORKERS: usize = 100_000;
const MAX_DURATION_US: u64 = 1_000_000_000_000;
const MAX_ITERATIONS: u64 = 10_000_000_000;

/// A cluster and how long it runs. Times in µs.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Policy of the one job that all workers train.
    pub policy: PolicySpec,
    /// Every worker that takes part for some time; at least one.
    pub workers: Vec<WorkerModel>,
    /// Samples per iteration; an interval is that of a whole batch.
    pub batch: u32,
    /// When the run ends: what would happen later does not.
    pub duration_us: u64,
    /// Seed of every draw: jitter and bursts.
    pub seed: u64,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerModel {
    /// Time of one iteration without transfers, for a whole batch.
    pub interval_us: u64,
    /// Each interval is multiplied by max(0.2, N(1, jitter)).
    #[serde(default)]
    pub jitter: f64,
    /// Spells in which it is slow; `None`: it has none.
    #[serde(default)]
    pub burst: Option<Burst>,
    /// Relative change of the interval per second: 0.01 makes it 1 % longer each second of the first.
    #[serde(default)]
    pub drift_per_s: f64,
    /// Recorded intervals, repeated forever; replaces `interval_us`.
    #[serde(default)]
    pub trace_us: Vec<u64>,
    /// Time of a pull, which begins each iteration; of a local round, the first only.
    #[serde(default)]
    pub pull_us: u64,
    /// Time of a push, which ends each iteration; of a local round, the last only.
    #[serde(default)]
    pub push_us: u64,
    /// When it joins, from the start of the run.
    #[serde(default)]
    pub joins_at_us: u64,
    /// When it leaves, from the start of the run, with its open iteration lost; `None`: it stays.
    #[serde(default)]
    pub leaves_at_us: Option<u64>,
}

/// Now and then a worker is slow for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// That one begins with an iteration.
    pub probability: f64,
    /// How much longer its iterations take.
    pub factor: f64,
    /// How many iterations it lasts, the one that it begins with included.
    pub iterations: u32,
}

impl WorkerModel {
    /// A steady worker that is there from the start.
    pub fn steady(interval_us: u64) -> Self {
        Self {
            interval_us,
            jitter: 0.0,
            burst: None,
            drift_per_s: 0.0,
            trace_us: Vec::new(),
            pull_us: 0,
            push_us: 0,
            joins_at_us: 0,
            leaves_at_us: None,
        }
    }
}

/// What cannot be meant.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("[E570] {0}")]
pub struct InvalidScenario(String);

impl Scenario {
    /// Checks every number.
    pub fn validate(&self) -> Result<(), InvalidScenario> {
        let fault = |text: String| Err(InvalidScenario(text));
        if self.workers.is_empty() || self.workers.len() > MAX_WORKERS {
            return fault(format!("{} workers, expected 1 to {MAX_WORKERS}", self.workers.len()));
        }
        if self.batch == 0 {
            return fault("a batch of 0 samples".into());
        }
        if self.duration_us == 0 || self.duration_us > MAX_DURATION_US {
            return fault(format!("a duration of {} µs, expected 1 to {MAX_DURATION_US}", self.duration_us));
        }
        let mut iterations = 0u64;
        for (i, worker) in self.workers.iter().enumerate() {
            let fault = |what: String| fault(format!("worker {}: {what}", i + 1));
            if let Some(leaves_at_us) = worker.leaves_at_us.filter(|&at| at <= worker.joins_at_us) {
                return fault(format!("it joins at {} µs and leaves at {leaves_at_us}", worker.joins_at_us));
            }
            let transfer_us = worker.pull_us.max(worker.push_us);
            if transfer_us > MAX_DURATION_US {
                return fault(format!("a transfer of {transfer_us} µs, expected at most {MAX_DURATION_US}"));
            }
            let shortest = worker.trace_us.iter().copied().min().unwrap_or(worker.interval_us);
            if shortest == 0 {
                return fault("an interval of 0".into());
            }
            let longest = worker.trace_us.iter().copied().max().unwrap_or(worker.interval_us);
            if longest > MAX_DURATION_US {
                return fault(format!("an interval of {longest} µs, expected at most {MAX_DURATION_US}"));
            }
            if !(0.0..=10.0).contains(&worker.jitter) {
                return fault(format!("a jitter of {}, expected 0 to 10", worker.jitter));
            }
            if !(worker.drift_per_s.is_finite() && worker.drift_per_s.abs() <= 10.0) {
                return fault(format!("a drift of {} per second, expected -10 to 10", worker.drift_per_s));
            }
            if let Some(burst) = worker.burst
                && !((0.0..=1.0).contains(&burst.probability) && (0.2..=1e6).contains(&burst.factor))
            {
                return fault(format!(
                    "a burst of probability {} and factor {}, expected 0 to 1 and 0.2 to 1000000",
                    burst.probability, burst.factor
                ));
            }
            iterations = iterations.saturating_add(self.duration_us / shortest);
        }
        if iterations > MAX_ITERATIONS {
            return fault(format!("about {iterations} iterations, at most {MAX_ITERATIONS} are simulated"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let good = Scenario {
            policy: PolicySpec::default(),
            workers: vec![WorkerModel::steady(100); 2],
            batch: 32,
            duration_us: 1000,
            seed: 0,
        };
        assert_eq!(good.validate(), Ok(()));
        type Spoil = fn(&mut Scenario);
        let cases: [(&str, Spoil); 10] = [
            ("0 workers", |s| s.workers.clear()),
            ("batch of 0", |s| s.batch = 0),
            ("duration", |s| s.duration_us = 0),
            ("worker 2: an interval of 0", |s| s.workers[1].interval_us = 0),
            ("worker 1: a jitter", |s| s.workers[0].jitter = f64::NAN),
            ("worker 2: it joins at 7 µs and leaves at 7", |s| {
                (s.workers[1].joins_at_us, s.workers[1].leaves_at_us) = (7, Some(7));
            }),
            ("worker 2: an interval of 18446744073709551615", |s| s.workers[1].interval_us = u64::MAX),
            ("worker 1: an interval of", |s| s.workers[0].trace_us = vec![1_000_000, MAX_DURATION_US + 1]),
            ("worker 1: a transfer", |s| s.workers[0].push_us = u64::MAX),
            ("at most", |s| (s.workers[0].interval_us, s.duration_us) = (1, MAX_DURATION_US)),
        ];
        for (want, spoil) in cases {
            let mut bad = good.clone();
            spoil(&mut bad);
            let error = bad.validate().unwrap_err().to_string();
            assert!(error.starts_with("[E570]") && error.contains(want), "{error}");
        }
    }
}
