//! Counts what happens in a run.

use super::{
    outcome::{Outcome, WorkerOutcome},
    parameter_server::ShardModel,
    scenario::Scenario,
    timeline::Timeline,
    worker::Worker,
};
use crate::{
    core::Job,
    ids::{Incarnation, Superstep},
    predict::PredictionErrors,
    sync::{Aggregation, Clock, Clocks},
};

/// Staleness counted one by one; beyond that in one sum.
const HISTOGRAM: usize = 32;

/// Sums of a run so far.
pub(super) struct RunStatistics {
    out: Outcome,
    /// Updates of the parameters.
    updates: u64,
    /// Iterations of each worker since the last barrier.
    since_barrier: Clocks,
    /// Supersteps that were opened, and barriers that were closed, as far as they are counted.
    opened: u64,
    closed: u64,
    opened_us: Option<u64>,
    last_barrier_us: u64,
    /// Whether the present superstep ends with a barrier.
    meets: bool,
}

impl RunStatistics {
    pub(super) fn new(scenario: &Scenario, plot_us: u64) -> Self {
        let out = Outcome {
            policy: scenario.policy.to_string(),
            duration_s: scenario.duration_us as f64 / 1e6,
            pushes: 0,
            pushes_per_s: 0.0,
            samples_per_s: 0.0,
            waiting_fraction: 0.0,
            max_lead: 0,
            mean_staleness: 0.0,
            barriers: 0,
            replanned: 0,
            mean_superstep_ms: 0.0,
            prediction_rmse_ms: 0.0,
            staleness_histogram: vec![0; HISTOGRAM + 1],
            rules: Default::default(),
            per_worker: Vec::new(),
            timeline: Timeline::until(plot_us),
        };
        Self {
            out,
            updates: 0,
            since_barrier: Clocks::default(),
            opened: 0,
            closed: 0,
            opened_us: None,
            last_barrier_us: 0,
            meets: false,
        }
    }

    pub(super) fn updates(&self) -> u64 {
        self.updates
    }

    pub(super) fn joined(&mut self, worker: Incarnation) {
        self.since_barrier.join(worker, Some(Clock::default()));
    }

    pub(super) fn left(&mut self, worker: Incarnation) {
        self.since_barrier.leave(worker);
    }

    pub(super) fn bar(&mut self, worker: usize, start_us: u64, end_us: u64, waiting: bool) {
        self.out.timeline.bar(worker, start_us, end_us, waiting);
    }

    /// An iteration ended that had pulled after `pulled` updates; returns its staleness. `applied`: its
    /// gradient is an update of its own.
    pub(super) fn iterated(&mut self, applied: bool, pulled: u64) -> u64 {
        let staleness = if applied { self.updates - pulled } else { 0 };
        self.updates += u64::from(applied);
        self.out.pushes += 1;
        self.out.mean_staleness += staleness as f64;
        self.out.staleness_histogram[(staleness as usize).min(HISTOGRAM)] += 1;
        staleness
    }

    /// Counts a worker's iteration, which `shard` knows of if it was pushed, and returns its lead over the
    /// slowest.
    pub(super) fn lead(&mut self, worker: Incarnation, shard: &ShardModel) -> u64 {
        self.since_barrier.push(worker, 0);
        let lead = if self.meets { self.since_barrier.lead(worker) } else { shard.clocks().lead(worker) };
        self.out.max_lead = self.out.max_lead.max(lead);
        lead
    }

    /// Counts the supersteps that were opened and the barriers that were closed since the last look.
    pub(super) fn look_at(&mut self, job: &Job, shard: &ShardModel, now_us: u64) {
        while let Some(superstep) = job.superstep(Superstep(self.opened)) {
            self.opened += 1;
            self.opened_us.get_or_insert(now_us);
            self.meets = !superstep.is_endless();
            *self.out.rules.entry(superstep.why.rule.clone()).or_default() += 1;
        }
        while self.closed < shard.closed() {
            let superstep = job.superstep(Superstep(self.closed));
            self.updates += u64::from(superstep.is_some_and(|s| s.aggregation != Aggregation::PerPush));
            self.closed += 1;
            self.out.barriers += 1;
            self.last_barrier_us = now_us;
            self.out.timeline.barrier(now_us);
            let workers: Vec<Incarnation> = self.since_barrier.iter().map(|(worker, _)| worker).collect();
            workers.into_iter().for_each(|worker| self.joined(worker));
        }
    }

    /// The sums and means, once everybody has left or the time is over.
    pub(super) fn outcome(self, workers: &[Worker], job: Option<&Job>) -> Outcome {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let sum = |of: fn(&Worker) -> u64| workers.iter().map(of).sum::<u64>();
        let mut out = self.out;
        out.waiting_fraction = share(sum(|w| w.waited_us), sum(|w| w.present_us));
        out.pushes_per_s = out.pushes as f64 / out.duration_s;
        out.samples_per_s = sum(|w| w.samples) as f64 / out.duration_s;
        out.mean_staleness /= out.pushes.max(1) as f64;
        let met_us = self.last_barrier_us.saturating_sub(self.opened_us.unwrap_or(0));
        out.mean_superstep_ms = share(met_us, out.barriers) / 1e3;
        out.replanned = job.map_or(0, |job| job.counters().replanned);
        let (mut squares, mut count) = (0.0, 0u64);
        for (i, w) in workers.iter().enumerate() {
            let member = || job?.member(w.id).map(|m| (m.speed.errors(), m.batch));
            let (errors, batch) = w.left_with.or_else(member).unwrap_or((PredictionErrors::default(), 0));
            squares += errors.rmse_us * errors.rmse_us * errors.count as f64;
            count += errors.count;
            out.per_worker.push(WorkerOutcome {
                worker: i + 1,
                pushes: w.pushes,
                waiting_fraction: share(w.waited_us, w.present_us),
                batch,
                prediction_rmse_ms: errors.rmse_us / 1e3,
                prediction_bias_ms: errors.bias_us / 1e3,
            });
        }
        out.prediction_rmse_ms = (squares / count.max(1) as f64).sqrt() / 1e3;
        out
    }
}
