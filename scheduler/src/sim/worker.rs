//! One simulated worker: how long its iterations take, and what it has in hand.

use std::collections::VecDeque;

use super::scenario::WorkerModel;
use crate::{
    core::{GradientUse, TaskKey, TaskReport},
    ids::{Incarnation, Superstep},
    predict::PredictionErrors,
    samples::{SampleRange, splitmix64},
};

/// Shortest factor that jitter may give.
const LEAST_FACTOR: f64 = 0.2;

/// An iteration as it was assigned.
#[derive(Debug, Clone)]
pub(super) struct Iteration {
    pub key: TaskKey,
    pub superstep: Superstep,
    pub seq: u64,
    pub range: SampleRange,
    pub min_clock: u64,
    pub gradient: GradientUse,
}

impl Iteration {
    /// Whether it begins with a pull.
    pub fn pulls(&self) -> bool {
        !matches!(self.gradient, GradientUse::LocalStep { first, .. } if self.seq > first)
    }

    /// Iterations that the push at its end stands for; 0: there is none.
    pub fn covers(&self) -> u64 {
        match self.gradient {
            GradientUse::LocalStep { last, .. } if self.seq < last => 0,
            GradientUse::LocalStep { first, last } => last - first + 1,
            GradientUse::ApplyOnArrival { .. } | GradientUse::JoinRound => 1,
        }
    }
}

/// What a worker does right now.
#[derive(Debug, Clone)]
pub(super) enum Activity {
    /// Not there yet, or gone.
    Absent,
    Waiting {
        since_us: u64,
    },
    /// Its push is the event that ends the iteration.
    Computing {
        iteration: Iteration,
        since_us: u64,
        compute_us: u64,
        pull_us: u64,
        push_us: u64,
        waited_us: u64,
        /// Updates that were in when it pulled.
        pulled: u64,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub id: Incarnation,
    pub model: WorkerModel,
    pub activity: Activity,
    /// Raised when it leaves, so that the event of its open iteration means nothing.
    pub life: u32,
    pub queue: VecDeque<Iteration>,
    /// Reports of a local round that is not pushed yet, and when their iterations ended.
    pub held: Vec<(u64, TaskReport)>,
    pub pushes: u64,
    pub samples: u64,
    pub waited_us: u64,
    pub present_us: u64,
    pub present_since_us: u64,
    /// Of its last days, if it has left: the core forgets about it.
    pub left_with: Option<(PredictionErrors, u32)>,
    random: u64,
    drawn: u64,
    slow_left: u32,
}

impl Worker {
    pub(super) fn new(index: usize, model: WorkerModel, seed: u64) -> Self {
        let mut random = seed ^ (index as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        splitmix64(&mut random);
        Self {
            id: Incarnation(index as u64 + 1),
            model,
            activity: Activity::Absent,
            life: 0,
            queue: VecDeque::new(),
            held: Vec::new(),
            pushes: 0,
            samples: 0,
            waited_us: 0,
            present_us: 0,
            present_since_us: 0,
            left_with: None,
            random,
            drawn: 0,
            slow_left: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        (splitmix64(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Time to compute the next iteration on a batch of `share` times the nominal size, without transfers.
    /// Every call draws the same number of random numbers.
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
        !matches!(self.activity, Activity::Absent)
    }
}
