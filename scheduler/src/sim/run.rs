//! The event loop.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    outcome::{Outcome, WorkerOutcome},
    scenario::{InvalidScenario, Scenario},
    timeline::Timeline,
    worker::{Doing, Worker},
};
use crate::{
    predict::Measurement,
    sync::{Aggregation, Clocks, Policy, SpeedEstimate, WorkerProgress},
};

/// Staleness counted one by one; beyond that in one sum.
const HISTOGRAM: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Push {
        life: u32,
    },
    Leave,
    Join,
    /// The worker has overrun its prediction if it is still in this iteration.
    Overrun {
        seq: u64,
    },
}

/// The superstep that runs.
pub(super) struct SuperstepState {
    pub rounds: Aggregation,
    pub monitor: Option<u64>,
    pub max_lead: Option<u64>,
    /// Workers not seen often enough, and workers that have not arrived.
    pub unseen: usize,
    pub missing: usize,
    /// Whether every worker's last iteration is known.
    pub decided: bool,
    pub planned: bool,
    pub opened_us: u64,
}

pub(super) struct Run<'a> {
    pub scenario: &'a Scenario,
    pub policy: Policy,
    pub workers: Vec<Worker>,
    pub clocks: Clocks,
    pub events: BinaryHeap<Reverse<(u64, What, usize)>>,
    pub span: SuperstepState,
    pub now_us: u64,
    /// Updates of the parameters so far.
    pub updates: u64,
    pub estimates: Vec<SpeedEstimate>,
    pub seen: Vec<WorkerProgress>,
    pub superstep_us: u64,
    pub out: Outcome,
}

/// Runs a scenario; `plot_us` keeps the boxes of its beginning.
pub fn simulate(scenario: &Scenario, plot_us: u64) -> Result<Outcome, InvalidScenario> {
    scenario.validate()?;
    let mut run = Run::new(scenario, plot_us);
    while let Some(Reverse((at_us, what, index))) = run.events.pop() {
        if at_us > scenario.duration_us {
            break;
        }
        run.now_us = at_us;
        match what {
            What::Join => run.join(index),
            What::Leave => run.leave(index),
            What::Push { life } if run.workers[index].life == life => run.push(index),
            What::Overrun { seq } if run.workers[index].granted() == seq => run.overrun(index),
            What::Push { .. } | What::Overrun { .. } => {}
        }
    }
    Ok(run.finish())
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, plot_us: u64) -> Self {
        let predictor = scenario.policy.predictor;
        let workers: Vec<Worker> = scenario
            .workers
            .iter()
            .enumerate()
            .map(|(i, model)| Worker::new(i, model.clone(), predictor, scenario.batch, scenario.seed))
            .collect();
        let mut events = BinaryHeap::new();
        for (i, model) in scenario.workers.iter().enumerate() {
            events.push(Reverse((model.joins_at_us, What::Join, i)));
            events.extend(model.leaves_at_us.map(|at| Reverse((at, What::Leave, i))));
        }
        Self {
            scenario,
            policy: Policy::new(scenario.policy),
            workers,
            clocks: Clocks::default(),
            events,
            // Nobody is there: the first who joins opens a superstep.
            span: SuperstepState {
                rounds: Aggregation::PerPush,
                monitor: None,
                max_lead: None,
                unseen: 0,
                missing: 0,
                decided: true,
                planned: false,
                opened_us: 0,
            },
            now_us: 0,
            updates: 0,
            estimates: Vec::new(),
            seen: Vec::new(),
            superstep_us: 0,
            out: Outcome {
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
            },
        }
    }

    /// Whether another event at this very moment brings somebody in: a superstep opens for all who start together.
    fn more_join_now(&self) -> bool {
        matches!(self.events.peek(), Some(Reverse((at, What::Join, _))) if *at == self.now_us)
    }

    fn join(&mut self, index: usize) {
        let now_us = self.now_us;
        let worker = &mut self.workers[index];
        worker.doing = Doing::Waiting(now_us);
        (worker.present_since_us, worker.last_end_us) = (now_us, now_us);
        // Inside a superstep that is watched everybody counts from its beginning.
        let counts_from_here = self.span.monitor.is_some().then(Default::default);
        self.clocks.join(worker.id, counts_from_here);
        if self.span.missing == 0 && !self.more_join_now() {
            self.open();
        } else if self.span.missing > 0 && !self.span.decided {
            // Like the core: whoever comes while the end is open takes part.
            self.enlist(index);
            self.start_if_allowed(index);
        }
    }

    fn leave(&mut self, index: usize) {
        if !self.workers[index].is_present() {
            return;
        }
        self.end_wait(index);
        let now_us = self.now_us;
        let worker = &mut self.workers[index];
        let (listed, arrived) = (worker.listed, worker.quota.is_some_and(|q| worker.done >= q));
        let unseen = self.span.monitor.is_some_and(|pushes| worker.done < pushes);
        worker.doing = Doing::Absent;
        worker.life += 1;
        worker.listed = false;
        worker.present_us += now_us - worker.present_since_us;
        self.clocks.leave(worker.id);
        if listed {
            self.span.unseen -= usize::from(unseen && !self.span.decided);
            self.span.missing -= usize::from(!arrived);
            if self.span.missing == 0 {
                return self.close();
            }
        }
        // Whoever waited for it may go on.
        self.start_waiting();
    }

    /// Lets everybody start who waits and may.
    pub(super) fn start_waiting(&mut self) {
        for index in 0..self.workers.len() {
            if matches!(self.workers[index].doing, Doing::Waiting(_)) {
                self.start_if_allowed(index);
            }
        }
    }

    fn may_start(&self, index: usize) -> bool {
        let worker = &self.workers[index];
        if !worker.listed {
            return false;
        }
        match (worker.quota, self.span.max_lead) {
            (Some(quota), _) if worker.done >= quota => return false,
            (None, Some(lead)) => {
                let listed = self.workers.iter().filter(|w| w.listed);
                let lowest = listed.map(|w| w.done).min().unwrap_or(0);
                if worker.done + 1 > lowest + lead {
                    return false;
                }
            }
            _ => {}
        }
        let until = self.policy.as_dyn().gate(worker.id, &self.clocks).until;
        until.is_none_or(|until| self.clocks.get(worker.id).map_or(0, |c| c.pushes) < until)
    }

    fn start_if_allowed(&mut self, index: usize) {
        if !self.may_start(index) {
            return;
        }
        self.end_wait(index);
        let (now_us, batch) = (self.now_us, self.scenario.batch);
        let local = self.span.rounds.is_local();
        let worker = &mut self.workers[index];
        let mut took_us = worker.draw_us(now_us, f64::from(worker.batch) / f64::from(batch));
        took_us += if local && worker.done > 0 { 0 } else { worker.model.pull_us };
        took_us += if local && worker.quota != Some(worker.done + 1) { 0 } else { worker.model.push_us };
        worker.pulled = self.updates;
        worker.doing = Doing::Computing(now_us);
        self.events.push(Reverse((now_us + took_us, What::Push { life: worker.life }, index)));
        self.watch_overrun(index);
    }

    fn end_wait(&mut self, index: usize) {
        if let Doing::Waiting(since_us) = self.workers[index].doing {
            self.workers[index].waited_us += self.now_us - since_us;
            self.out.timeline.bar(index, since_us, self.now_us, true);
        }
    }

    fn push(&mut self, index: usize) {
        let now_us = self.now_us;
        let worker = &mut self.workers[index];
        let Doing::Computing(began_us) = worker.doing else { return };
        let (id, interval_us, samples) = (worker.id, now_us - began_us, worker.batch);
        worker.doing = Doing::Waiting(now_us);
        worker.finished += 1;
        worker.done += 1;
        worker.samples += u64::from(samples);
        worker.last_end_us = now_us;
        worker.last = Some((samples, interval_us));
        worker.speed.observe(&Measurement { interval_us, samples, cpu_load: 0.0, memory_load: 0.0 });
        worker.curve.observe(samples, interval_us);
        let (done, pulled, quota) = (worker.done, worker.pulled, worker.quota);
        self.out.timeline.bar(index, began_us, now_us, false);
        self.out.pushes += 1;
        if self.span.rounds == Aggregation::PerPush {
            let staleness = self.updates - pulled;
            self.out.staleness_histogram[(staleness as usize).min(HISTOGRAM)] += 1;
            self.out.mean_staleness += staleness as f64;
            self.updates += 1;
        } else {
            self.out.staleness_histogram[0] += 1;
        }
        let lowest = self.clocks.lowest();
        self.policy.as_dyn_mut().pushed(id, now_us, &mut self.clocks);
        self.out.max_lead = self.out.max_lead.max(self.clocks.lead(id));
        if self.span.monitor == Some(done) && !self.span.decided {
            self.span.unseen -= 1;
        }
        if quota == Some(done) {
            self.span.missing -= 1;
            if self.span.missing == 0 {
                return self.close();
            }
        }
        if self.span.monitor.is_some() && !self.span.decided && self.span.unseen == 0 && self.plan() {
            return;
        }
        self.start_if_allowed(index);
        let held_back = self.span.max_lead.is_some() || self.clocks.lowest() != lowest;
        if held_back {
            self.start_waiting();
        }
    }

    fn finish(mut self) -> Outcome {
        self.now_us = self.scenario.duration_us;
        for index in 0..self.workers.len() {
            if self.workers[index].is_present() {
                self.end_wait(index);
                if let Doing::Computing(began_us) = self.workers[index].doing {
                    self.out.timeline.bar(index, began_us, self.now_us, false);
                }
                let worker = &mut self.workers[index];
                worker.present_us += self.now_us.saturating_sub(worker.present_since_us);
            }
        }
        let Self { workers, mut out, superstep_us, .. } = self;
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let sum = |of: fn(&Worker) -> u64| workers.iter().map(of).sum::<u64>();
        out.waiting_fraction = share(sum(|w| w.waited_us), sum(|w| w.present_us));
        out.pushes_per_s = out.pushes as f64 / out.duration_s;
        out.samples_per_s = sum(|w| w.samples) as f64 / out.duration_s;
        out.mean_staleness /= out.pushes.max(1) as f64;
        out.mean_superstep_ms = share(superstep_us, out.barriers) / 1e3;
        let (mut squares, mut count) = (0.0, 0u64);
        for (i, w) in workers.iter().enumerate() {
            let errors = w.speed.errors();
            squares += errors.rmse_us * errors.rmse_us * errors.count as f64;
            count += errors.count;
            out.per_worker.push(WorkerOutcome {
                worker: i + 1,
                pushes: w.finished,
                waiting_fraction: share(w.waited_us, w.present_us),
                batch: w.batch,
                prediction_rmse_ms: errors.rmse_us / 1e3,
                prediction_bias_ms: errors.bias_us / 1e3,
            });
        }
        out.prediction_rmse_ms = (squares / count.max(1) as f64).sqrt() / 1e3;
        out
    }
}
