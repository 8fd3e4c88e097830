//! How fast is a worker: from its finished iterations to the length of its next one.
//!
//! In: what each iteration measured. Out: µs per sample, hence the interval of any batch, with the errors
//! made so far. ElasticBSP takes the last interval as the next one (Zhao et al., ICDM 2019); LB-BSP (Chen et
//! al., SoCC 2020) predicts with a small network that also sees the load of the machine; the averages in
//! between are ours. Pure, and every number stays finite, whatever is measured.

mod errors;
mod held_up;
mod interval_estimator;
mod narx;
mod simple;
mod spec;

pub use errors::PredictionErrors;
pub use held_up::HeldUp;
pub use interval_estimator::IntervalEstimator;
pub use spec::{InvalidPredictor, PredictorSpec};

/// What one finished iteration tells about its worker's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// How long it took, without waiting.
    pub interval_us: u64,
    /// Its batch; none counts as one.
    pub samples: u32,
    /// Share of the machine's processors that was in use when it ended: 0 to 1.
    pub cpu_load: f32,
    /// Share of the machine's memory that was in use when it ended: 0 to 1.
    pub memory_load: f32,
}

impl Measurement {
    /// Time per sample, µs.
    fn us_per_sample(&self) -> f64 {
        self.interval_us as f64 / f64::from(self.samples.max(1))
    }
}

/// Says how long a worker's next iteration takes.
pub trait Predictor {
    /// An iteration is finished.
    fn observe(&mut self, measured: &Measurement);

    /// µs per sample of the next iteration; `None` before the first measurement.
    fn us_per_sample(&self) -> Option<f64>;

    /// Length of the next iteration if it has `samples` samples, µs.
    fn interval_us(&self, samples: u32) -> Option<u64> {
        Some((self.us_per_sample()? * f64::from(samples)).round() as u64)
    }
}
