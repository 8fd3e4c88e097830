//! A worker's part in one job: what is stored of it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    shard_protocol::PushProgress, stragglers::StragglerNotice, worker_info::WorkerInfo,
    worker_protocol::Iterated,
};
use crate::{
    balance::CurveFit,
    ids::{ShardIndex, Superstep},
    predict::{HeldUp, IntervalEstimator, Measurement, PredictionErrors},
    samples::SampleRange,
    spec::TrainSpec,
    sync::Clock,
};

/// Whether a worker still takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    /// It shows that it can run the job, and nobody waits for it.
    Preparing,
    /// It is given iterations, and its clock counts.
    Active,
    /// Dropped; the shards are asked how far its pushes came.
    Sealing {
        /// Of those that have answered; with the last one its iterations are settled.
        answers: BTreeMap<ShardIndex, PushProgress>,
    },
    /// Nothing of it is open; it stays listed for a while.
    Gone,
}

/// Durations a worker has reported, summed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeTotals {
    /// Iterations that it has reported as done, and those of which the shards had all when it was lost: how long
    /// these took is not known.
    pub iterations: u64,
    /// Samples in them.
    pub samples: u64,
    /// Computing, from the samples to the gradient.
    pub compute_us: u64,
    /// Sleep that emulates a slower machine.
    #[serde(rename = "pace_us")]
    pub throttle_us: u64,
    /// Transfer of parameters, without waiting for the version.
    pub pull_us: u64,
    /// Pushes, from their beginning to the acknowledgement of the last shard.
    pub push_us: u64,
    /// Waiting for the version at the parameter server, or because the policy lets it go no further ahead of
    /// the others.
    pub wait_us: u64,
}

/// One worker incarnation in one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// As it registered.
    #[serde(flatten)]
    pub about: WorkerInfo,
    /// So many workers came to the job before it: what draws random numbers there begins with this.
    #[serde(default)]
    pub number: u32,
    /// Whether it takes part now.
    #[serde(rename = "standing")]
    pub membership: Membership,
    /// Last iteration that some superstep has room for; never below `granted`.
    pub planned: u64,
    /// Last iteration that was leased.
    pub granted: u64,
    /// Last iteration up to which all are over.
    pub finished: u64,
    /// From when it is sealed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
    /// Samples set aside for iterations `granted + 1 ..= planned`, in that order.
    pub reserved: VecDeque<SampleRange>,
    /// Its clock when it joined: iteration `seq` makes its clock `clock_base + seq`.
    pub clock_base: u64,
    /// Samples per iteration in the newest superstep it has a part in.
    pub batch: u32,
    /// When the last iteration ended and how long it took without waiting, on the engine's clock.
    pub last_end_us: u64,
    /// See [`Iterated::busy_us`]; 0 before the first one.
    pub interval_us: u64,
    /// Samples of that iteration.
    pub interval_samples: u32,
    /// What is predicted of its speed, and how well.
    pub speed: IntervalEstimator,
    /// Which of its newest iterations may have been held up.
    #[serde(default, skip_serializing_if = "HeldUp::is_nothing")]
    pub held_up: HeldUp,
    /// Its predicted time as a function of the batch, where the policy needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveFit>,
    /// Where its newest iterations spent their time.
    #[serde(rename = "transfer")]
    pub step_times: StepTimes,
    /// Set while it is much slower than most.
    #[serde(rename = "slow", default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<Straggler>,
    /// What people were told of that.
    #[serde(default, skip_serializing_if = "StragglerNotice::is_nothing")]
    pub slow_told: StragglerNotice,
    /// What all its reports say together, those included that a roll back has undone.
    pub spent: TimeTotals,
    /// Loss of its newest iteration that has one, and what the samples of that weigh in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_loss: Option<(f32, f32)>,
    /// Since when the policy has it wait without anything in hand, because it is ahead of the others as far
    /// as it may be; epoch µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_us: Option<u64>,
    /// When it ended its last iterations of supersteps whose barriers have not closed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrivals_us: BTreeMap<Superstep, u64>,
}

/// How a worker left a generation in which it may have pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Seals of this job that were complete when this one began.
    pub complete_before: u64,
    /// Its last push that every shard has applied; 0 until all have answered.
    pub applied: u64,
}

/// A member as it is stored: with its clock, if it takes part, and with how well its speed was predicted.
#[derive(Debug, Serialize)]
pub(super) struct MemberRecord<'a> {
    #[serde(flatten)]
    pub member: &'a Member,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<&'a Clock>,
    /// For people only: it follows from the member.
    pub prediction: PredictionErrors,
}

/// The clock in a member's record.
#[derive(Debug, Deserialize)]
pub(super) struct ClockRecord {
    #[serde(default)]
    pub clock: Option<Clock>,
}

/// Moving averages of where a worker's time goes, in µs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    pub compute_us: f64,
    /// Of iterations that pulled or pushed anything.
    pub pull_us: f64,
    pub push_us: f64,
}

/// A worker that is much slower than most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    /// When it became so, in epoch µs.
    pub since_us: u64,
    /// Its predicted time per sample over the median.
    pub factor: f64,
}

impl Member {
    /// Takes in one of its iterations: on how many samples, and on how many its iterations are otherwise.
    pub(super) fn observe(&mut self, it: &Iterated, (samples, batch): (u32, u32), end_us: u64) {
        self.last_end_us = end_us;
        if !it.skipped && it.loss.is_finite() {
            self.newest_loss = Some((it.loss, it.loss_weight));
        }
        let expected_us = self.expected_us(it, samples);
        if !expected_us.is_some_and(|us| self.held_up.judge(it.push_us > 0, it.busy_us(), us)) {
            self.learn_speed(it, samples, batch);
        }
        self.spent.add(it, u64::from(samples));
    }

    /// What an iteration that transfers what this one does should have taken; `None` before the first.
    fn expected_us(&self, it: &Iterated, samples: u32) -> Option<u64> {
        let usual_us = self.step_times.usual_us(it.pull_us > 0, it.push_us > 0);
        Some(self.speed.interval_us(samples)?.max(usual_us))
    }

    /// Learns from an iteration how fast it is.
    fn learn_speed(&mut self, it: &Iterated, samples: u32, batch: u32) {
        let (cpu_load, memory_load) = (it.cpu_load, it.memory_load);
        // A pull and a push for the few samples that were left of an epoch say little about one of all
        // others.
        let is_typical = u64::from(samples) * 2 >= u64::from(batch);
        if is_typical || u64::from(self.interval_samples) * 2 < u64::from(batch) {
            (self.interval_us, self.interval_samples) = (it.busy_us(), samples);
        }
        if is_typical || self.speed.samples_per_s().is_none() {
            self.speed.observe(&Measurement { interval_us: it.busy_us(), samples, cpu_load, memory_load });
        }
        // The first one takes long for other reasons.
        if let Some(curve) = self.curve.as_mut().filter(|_| self.spent.iterations > 0) {
            curve.observe(samples, it.busy_us());
        }
        self.step_times.add(it);
    }

    /// The job's batch, or what fits on this worker.
    pub(super) fn fitting(&self, train: &TrainSpec) -> u32 {
        train.batch.min(train.batch_limit(self.about.max_batch).unwrap_or(u32::MAX)).max(1)
    }

    /// Iterations leased and not over.
    pub(super) fn outstanding(&self) -> u64 {
        self.granted - self.finished
    }

    /// Whether it takes part or is about to.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.membership, Membership::Preparing | Membership::Active)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.membership == Membership::Gone
    }
}

impl TimeTotals {
    /// An iteration, but for how long it waited.
    pub(super) fn add(&mut self, it: &Iterated, samples: u64) {
        self.iterations += 1;
        self.samples += samples;
        self.compute_us += it.compute_us;
        self.throttle_us += it.throttle_us;
        self.pull_us += it.pull_us;
        self.push_us += it.push_us;
    }
}
