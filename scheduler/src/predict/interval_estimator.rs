//! What is kept of one worker's speed: its predictor, how wrong that was, and how steady the worker is.

use serde::{Deserialize, Serialize};

use super::{
    Measurement, PredictionErrors, Predictor, PredictorSpec,
    errors::ErrorMeans,
    narx::Narx,
    simple::{Ema, Last, Mean, Median},
};

/// A predictor with its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Last(Last),
    Ema(Ema),
    Mean(Mean),
    Median(Median),
    Narx(Box<Narx>),
}

impl State {
    fn new(spec: PredictorSpec) -> Self {
        match spec {
            PredictorSpec::Last => Self::Last(Last::default()),
            PredictorSpec::Ema { alpha } => Self::Ema(Ema::new(alpha)),
            PredictorSpec::Mean { count } => Self::Mean(Mean::new(count)),
            PredictorSpec::Median { count } => Self::Median(Median::new(count)),
            PredictorSpec::Narx => Self::Narx(Box::default()),
        }
    }

    fn as_dyn(&self) -> &dyn Predictor {
        match self {
            Self::Last(p) => p,
            Self::Ema(p) => p,
            Self::Mean(p) => p,
            Self::Median(p) => p,
            Self::Narx(p) => p.as_ref(),
        }
    }

    fn as_dyn_mut(&mut self) -> &mut dyn Predictor {
        match self {
            Self::Last(p) => p,
            Self::Ema(p) => p,
            Self::Mean(p) => p,
            Self::Median(p) => p,
            Self::Narx(p) => p.as_mut(),
        }
    }
}

/// Weight of the newest measurement in the moving mean and variance.
const MOVING_ALPHA: f64 = 0.1;

/// Exponentially weighted mean and variance of the time per sample; plain ones over the first ten.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct MovingVariance {
    seen: u64,
    mean_us: f64,
    variance_us2: f64,
}

impl MovingVariance {
    /// West's incremental form (CACM 1979).
    fn add(&mut self, us_per_sample: f64) {
        self.seen += 1;
        let weight = MOVING_ALPHA.max(1.0 / self.seen as f64);
        let change_us = us_per_sample - self.mean_us;
        self.mean_us += weight * change_us;
        self.variance_us2 = (1.0 - weight) * (self.variance_us2 + weight * change_us * change_us);
    }
}

/// Stored with a worker. About 300 bytes of JSON, 1.2 kB with the network; equal after a round trip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalEstimator {
    predictor: State,
    errors: ErrorMeans,
    moving: MovingVariance,
}

impl IntervalEstimator {
    /// Knows nothing yet.
    pub fn new(spec: PredictorSpec) -> Self {
        Self { predictor: State::new(spec), errors: ErrorMeans::default(), moving: MovingVariance::default() }
    }

    /// An iteration is finished: judges what was predicted for it, then learns from it.
    pub fn observe(&mut self, measured: &Measurement) {
        if let Some(predicted_us) = self.interval_us(measured.samples) {
            self.errors.add(predicted_us, measured.interval_us);
        }
        self.moving.add(measured.us_per_sample());
        self.predictor.as_dyn_mut().observe(measured);
    }

    /// Predicted interval of an iteration of `samples` samples, µs. `None` before the first measurement.
    pub fn interval_us(&self, samples: u32) -> Option<u64> {
        self.predictor.as_dyn().interval_us(samples)
    }

    /// Predicted speed. `None` before the first measurement, and where iterations take no time.
    pub fn samples_per_s(&self) -> Option<f64> {
        let speed = 1e6 / self.predictor.as_dyn().us_per_sample()?;
        speed.is_finite().then_some(speed)
    }

    /// Moving mean of the time per sample, whatever the predictor; the newest of many measurements weighs a
    /// tenth. `None` before the first one.
    pub fn mean_us_per_sample(&self) -> Option<f64> {
        (self.moving.seen > 0).then_some(self.moving.mean_us)
    }

    /// The same once it is one of many: `None` over the first ten, of which the first is often slow for no
    /// reason that stays.
    pub fn settled_us_per_sample(&self) -> Option<f64> {
        (self.moving.seen as f64 >= 1.0 / MOVING_ALPHA).then_some(self.moving.mean_us)
    }

    /// How wrong the predictions were.
    pub fn errors(&self) -> PredictionErrors {
        self.errors.summary()
    }

    /// Standard deviation of recent times per sample over their mean. `None` before the second measurement.
    pub fn jitter(&self) -> Option<f64> {
        let known = self.moving.seen >= 2 && self.moving.mean_us > 0.0;
        known.then(|| self.moving.variance_us2.max(0.0).sqrt() / self.moving.mean_us)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::splitmix64;

    const ALL: [&str; 6] = ["last", "ema:0.2", "mean:8", "median:8", "ema:1", "narx"];

    fn new(spec: &str) -> IntervalEstimator {
        IntervalEstimator::new(spec.parse().unwrap())
    }

    fn steady(interval_us: u64) -> Measurement {
        Measurement { interval_us, samples: 32, cpu_load: 0.5, memory_load: 0.5 }
    }

    /// About normal, mean 0, variance 1: Irwin and Hall's sum of twelve.
    fn normal(state: &mut u64) -> f64 {
        (0..12).map(|_| (splitmix64(state) >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }

    /// Iterations of 100 ms with a jitter of 15 %.
    fn jittery(seed: u64, count: usize) -> Vec<Measurement> {
        let mut state = seed;
        (0..count).map(|_| steady((1e5 * (1.0 + 0.15 * normal(&mut state)).max(0.2)) as u64)).collect()
    }

    /// A machine whose other users come and go with a period of 60 iterations: the load can be seen, and each
    /// iteration takes 1 / (1 − load) of 40 ms, with a jitter of 10 %.
    fn loaded(seed: u64, count: usize) -> Vec<Measurement> {
        let mut state = seed;
        (0..count)
            .map(|i| {
                let load = 0.4 + 0.35 * (i as f64 * std::f64::consts::TAU / 60.0).sin();
                let us = 4e4 / (1.0 - load) * (1.0 + 0.1 * normal(&mut state)).max(0.2);
                Measurement { cpu_load: load as f32, ..steady(us as u64) }
            })
            .collect()
    }

    /// RMSE over what follows the first 100 measurements, each predicted just before.
    fn rmse_us(spec: &str, trace: &[Measurement]) -> f64 {
        let mut meter = new(spec);
        let mut sum = 0.0;
        for (i, measured) in trace.iter().enumerate() {
            if i >= 100 {
                let predicted_us = meter.interval_us(measured.samples).unwrap();
                sum += (predicted_us as f64 - measured.interval_us as f64).powi(2);
            }
            meter.observe(measured);
        }
        (sum / (trace.len() - 100) as f64).sqrt()
    }

    /// RMSE of the predicted length of the next 15 iterations together, as ElasticBSP plans them.
    fn horizon_rmse_us(spec: &str, trace: &[Measurement]) -> f64 {
        let mut meter = new(spec);
        let mut squares = Vec::new();
        for window in trace.windows(16) {
            meter.observe(&window[0]);
            let predicted_us = 15 * meter.interval_us(32).unwrap();
            let actual_us: u64 = window[1..].iter().map(|m| m.interval_us).sum();
            squares.push((predicted_us as f64 - actual_us as f64).powi(2));
        }
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    }

    #[test]
    fn nothing_is_known_before_the_first_measurement() {
        for spec in ALL {
            let meter = new(spec);
            assert_eq!((meter.interval_us(32), meter.samples_per_s(), meter.jitter()), (None, None, None));
            assert_eq!(meter.errors(), PredictionErrors::default());
        }
    }

    #[test]
    fn a_steady_worker_is_predicted_to_the_microsecond() {
        for spec in ALL {
            let mut meter = new(spec);
            for _ in 0..200 {
                meter.observe(&steady(123_457));
                assert_eq!(meter.interval_us(32), Some(123_457), "{spec}");
            }
            assert_eq!(
                meter.errors(),
                PredictionErrors { count: 199, ..PredictionErrors::default() },
                "{spec}"
            );
            assert!(meter.jitter().unwrap() < 1e-9, "{spec}");
            assert!((meter.samples_per_s().unwrap() - 32e6 / 123_457.0).abs() < 1e-6, "{spec}");
        }
    }

    #[test]
    fn jitter_is_the_coefficient_of_variation() {
        let mut meter = new("last");
        let mut sum = 0.0;
        for (i, measured) in jittery(3, 2_000).iter().enumerate() {
            meter.observe(measured);
            sum += meter.jitter().filter(|_| i >= 100).unwrap_or(0.0);
        }
        let mean = sum / 1_900.0;
        assert!((0.12..=0.17).contains(&mean), "{mean}");
    }

    #[test]
    fn smoothing_beats_the_last_interval_where_intervals_jitter() {
        for seed in 1..=5 {
            let trace = jittery(seed, 3_000);
            let (last, last_horizon) = (rmse_us("last", &trace), horizon_rmse_us("last", &trace));
            for spec in ["ema:0.2", "mean:8", "median:8", "narx"] {
                // The next interval jitters by itself: 1/√2 of the error of `last` is the least that can be.
                let rmse = rmse_us(spec, &trace);
                assert!(rmse < 0.85 * last, "{spec}, seed {seed}: {rmse} against {last}");
                let horizon = horizon_rmse_us(spec, &trace);
                assert!(
                    horizon < 0.6 * last_horizon,
                    "{spec}, seed {seed}: {horizon} against {last_horizon}"
                );
            }
        }
    }

    #[test]
    fn the_network_makes_use_of_the_load() {
        for seed in 1..=5 {
            let trace = loaded(seed, 3_000);
            let [last, ema, narx] = ["last", "ema:0.2", "narx"].map(|spec| rmse_us(spec, &trace));
            assert!(narx < 0.9 * last && narx < 0.9 * ema, "seed {seed}: {narx} against {last} and {ema}");
        }
    }

    #[test]
    fn the_network_does_no_harm_where_there_is_nothing_to_learn() {
        for seed in 1..=5 {
            let trace = jittery(seed, 3_000);
            let [ema, narx] = ["ema:0.2", "narx"].map(|spec| rmse_us(spec, &trace));
            assert!(narx < 1.02 * ema, "seed {seed}: {narx} against {ema}");
        }
    }

    #[test]
    fn a_change_of_the_batch_scales_the_prediction() {
        for spec in ALL {
            let mut meter = new(spec);
            (0..40).for_each(|_| meter.observe(&steady(64_000)));
            assert_eq!(meter.interval_us(48), Some(96_000), "{spec}");
        }
    }

    fn any_measured() -> impl Strategy<Value = Measurement> {
        let interval_us = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 50_000u64..150_000];
        let samples = prop_oneof![Just(0), Just(u32::MAX), any::<u32>(), 1u32..128];
        let load = || prop_oneof![Just(f32::NAN), Just(f32::INFINITY), any::<f32>(), 0.0f32..1.0];
        (interval_us, samples, load(), load()).prop_map(|(interval_us, samples, cpu_load, memory_load)| {
            Measurement { interval_us, samples, cpu_load, memory_load }
        })
    }

    proptest! {
        #[test]
        fn whatever_is_measured_all_numbers_stay_finite_and_survive_json(
            spec in prop::sample::select(&ALL), trace in prop::collection::vec(any_measured(), 1..60)
        ) {
            let mut meter = new(spec);
            for measured in &trace {
                meter.observe(measured);
                let json = serde_json::to_string(&meter).unwrap();
                // What is not finite is written as null, which is read as no number or not at all.
                prop_assert_eq!(&serde_json::from_str::<IntervalEstimator>(&json).unwrap(), &meter);
                let errors = meter.errors();
                prop_assert!(errors.rmse_us.is_finite() && errors.bias_us.is_finite());
                prop_assert!(errors.relative_rmse.is_finite());
                prop_assert!(meter.jitter().is_none_or(f64::is_finite));
                prop_assert!(meter.interval_us(measured.samples).is_some());
            }
        }
    }
}
