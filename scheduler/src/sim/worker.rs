//! One simulated worker: how long its iterations take, and where it stands.

use super::scenario::WorkerModel;
use crate::{
    balance::{Cost, CurveFit},
    ids::Incarnation,
    predict::{IntervalEstimator, PredictorSpec},
    samples::splitmix64,
    sync::SpeedEstimate,
};

/// Shortest factor that jitter may give.
const LEAST_FACTOR: f64 = 0.2;

/// What a worker does right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Not there yet, or gone.
    Absent,
    /// Since then.
    Waiting(u64),
    /// An iteration that began then; its push is the event that ends it.
    Computing(u64),
}

#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub id: Incarnation,
    pub model: WorkerModel,
    pub doing: Doing,
    /// Raised when it leaves, so that the event of its open iteration means nothing.
    pub life: u32,
    pub finished: u64,
    /// Iterations inside the present superstep: done, and the last one if that is decided.
    pub done: u64,
    pub quota: Option<u64>,
    /// Whether it belongs to the present superstep.
    pub listed: bool,
    pub batch: u32,
    pub last_end_us: u64,
    /// Of its last iteration: samples and time.
    pub last: Option<(u32, u64)>,
    pub speed: IntervalEstimator,
    pub curve: CurveFit,
    /// Updates that were in when it pulled.
    pub pulled: u64,
    pub waited_us: u64,
    pub present_us: u64,
    pub present_since_us: u64,
    pub samples: u64,
    random: u64,
    drawn: u64,
    slow_left: u32,
}

impl Worker {
    pub(super) fn new(
        index: usize,
        model: WorkerModel,
        predictor: PredictorSpec,
        batch: u32,
        seed: u64,
    ) -> Self {
        let mut random = seed ^ (index as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        splitmix64(&mut random);
        Self {
            id: Incarnation(index as u64 + 1),
            model,
            doing: Doing::Absent,
            life: 0,
            finished: 0,
            done: 0,
            quota: None,
            listed: false,
            batch,
            last_end_us: 0,
            last: None,
            speed: IntervalEstimator::new(predictor),
            curve: CurveFit::default(),
            pulled: 0,
            waited_us: 0,
            present_us: 0,
            present_since_us: 0,
            samples: 0,
            random,
            drawn: 0,
            slow_left: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        (splitmix64(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Time to compute the next iteration on a batch of `share` times the nominal size, without transfers. Every
    /// call draws the same number of random numbers.
    pub(super) fn draw_us(&mut self, now_us: u64, share: f64) -> u64 {
        let (u, v, burst) = (self.uniform(), self.uniform(), self.uniform());
        let trace = &self.model.trace_us;
        let nominal = match trace.len() {
            0 => self.model.interval_us,
            n => trace[(self.drawn % n as u64) as usize],
        };
        self.drawn += 1;
        let mut factor = share;
        if self.model.jitter > 0.0 {
            // Box and Muller 1958.
            let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            factor *= (1.0 + self.model.jitter * normal).max(LEAST_FACTOR);
        }
        if let Some(model) = self.model.burst {
            if self.slow_left == 0 && burst < model.probability {
                self.slow_left = model.iterations;
            }
            if self.slow_left > 0 {
                self.slow_left -= 1;
                factor *= model.factor;
            }
        }
        if self.model.drift_per_s != 0.0 {
            factor *= (1.0 + self.model.drift_per_s * now_us as f64 / 1e6).max(LEAST_FACTOR);
        }
        ((nominal as f64 * factor).round() as u64).max(1)
    }

    pub(super) fn is_present(&self) -> bool {
        self.doing != Doing::Absent
    }

    /// Iterations granted: one beyond the finished ones while it computes.
    pub(super) fn granted(&self) -> u64 {
        self.finished + u64::from(matches!(self.doing, Doing::Computing(_)))
    }

    pub(super) fn speed_estimate(&self) -> SpeedEstimate {
        let us_per_sample = self.speed.samples_per_s().map(|speed| 1e6 / speed);
        let proportional = us_per_sample.map(|us_per_sample| Cost::Proportional { us_per_sample });
        let moved = self.model.pull_us + self.model.push_us;
        let all = self.speed.interval_us(self.batch).map(|us| us.max(moved).max(1));
        SpeedEstimate {
            worker: self.id,
            batch: self.batch,
            last: self.last,
            jitter: self.speed.jitter(),
            communication: all.map(|us| moved as f64 / us as f64),
            proportional,
            fitted: self.curve.cost().or(proportional),
            max_batch: None,
        }
    }
}
