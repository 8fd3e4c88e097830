//! The event loop: a core, its workers and its parameter server on a virtual clock.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    mem,
};

use super::{
    control_plane::ControlPlane,
    job::{training, training_job},
    outcome::Outcome,
    run_statistics::RunStatistics,
    scenario::{InvalidScenario, Scenario},
    shell::{NoStore, Shell},
    worker::{Activity, Iteration, Worker},
};
use crate::{
    core::{
        Assignment, GradientUse, IfTaken, Input, Iterated, Outcome as TaskOutcome, Submission, TaskReport,
        Work, WorkerInfo,
    },
    ids::{Incarnation, JobId},
    sync::Policy,
};

/// More samples than any run uses up.
const SAMPLES: u64 = 1 << 60;
/// How often the core looks for workers that overran their predictions, as in the engine.
const TICK_US: u64 = 100_000;

/// What happens at a moment, in the order in which simultaneous events are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Push { life: u32 },
    Leave,
    Join,
    Tick,
}

/// A run that goes on event by event.
pub struct Simulation<'a, S> {
    scenario: &'a Scenario,
    plane: ControlPlane<S>,
    job: JobId,
    submitted: bool,
    workers: Vec<Worker>,
    /// Present workers that wait with an iteration in hand.
    blocked: BTreeSet<usize>,
    /// What pulls wait for, as it was when the blocked were last looked at: closed barriers and the lowest
    /// clock.
    released: (u64, Option<u64>),
    events: BinaryHeap<Reverse<(u64, Event, usize)>>,
    now_us: u64,
    tally: RunStatistics,
}

impl<'a, S: Shell> Simulation<'a, S> {
    /// At time 0, with nobody there yet. `plot_us` keeps the boxes of the beginning.
    pub fn new(scenario: &'a Scenario, plot_us: u64, shell: S) -> Result<Self, InvalidScenario> {
        scenario.validate()?;
        let models = scenario.workers.iter().enumerate();
        let mut events = BinaryHeap::new();
        for (i, model) in models.clone() {
            events.push(Reverse((model.joins_at_us, Event::Join, i)));
            events.extend(model.leaves_at_us.map(|at_us| Reverse((at_us, Event::Leave, i))));
        }
        if Policy::new(scenario.policy).as_dyn().overrun_factor().is_some() {
            events.push(Reverse((TICK_US, Event::Tick, 0)));
        }
        Ok(Self {
            plane: ControlPlane::new(1, shell),
            job: "job".parse().expect("a valid name"),
            submitted: false,
            workers: models.map(|(i, model)| Worker::new(i, model.clone(), scenario.seed)).collect(),
            blocked: BTreeSet::new(),
            released: (0, None),
            events,
            now_us: 0,
            tally: RunStatistics::new(scenario, plot_us),
            scenario,
        })
    }

    /// Handles the next event; `false` if the time is over.
    pub fn step(&mut self) -> bool {
        let Some(Reverse((at_us, event, index))) = self.events.pop() else { return false };
        if at_us > self.scenario.duration_us {
            return false;
        }
        self.now_us = at_us;
        match event {
            Event::Join => self.join(index),
            Event::Leave => self.leave(index),
            Event::Push { life } if self.workers[index].life == life => self.finish_iteration(index),
            Event::Push { .. } => {}
            Event::Tick => {
                self.events.push(Reverse((at_us + TICK_US, Event::Tick, 0)));
                self.deliver([Input::Tick]);
            }
        }
        true
    }

    /// What surrounds the core.
    pub fn shell(&self) -> &S {
        &self.plane.shell
    }

    /// What came of it, as if it ended when the scenario says.
    pub fn outcome(mut self) -> Outcome {
        self.now_us = self.scenario.duration_us;
        for index in 0..self.workers.len() {
            if self.workers[index].is_present() {
                self.end_presence(index);
            }
        }
        self.tally.outcome(&self.workers, self.plane.core.job(&self.job))
    }

    fn join(&mut self, index: usize) {
        let (worker, now_us) = (&mut self.workers[index], self.now_us);
        worker.activity = Activity::Waiting { since_us: now_us };
        worker.present_since_us = now_us;
        let worker = worker.id;
        self.tally.joined(worker);
        let mut inputs = vec![Input::WorkerJoined { worker, about: WorkerInfo::default() }];
        // The job comes when all who start together are there.
        let next = self.events.peek();
        let more = matches!(next, Some(Reverse((at_us, Event::Join, _))) if *at_us == now_us);
        if !more && !mem::replace(&mut self.submitted, true) {
            let spec = training_job(training(self.scenario.policy, SAMPLES, self.scenario.batch));
            inputs.push(Input::Submit(Submission {
                spec: Box::new(spec),
                nonce: 0,
                if_taken: IfTaken::Refuse,
            }));
        }
        self.deliver(inputs);
    }

    fn leave(&mut self, index: usize) {
        if !self.workers[index].is_present() {
            return;
        }
        self.end_presence(index);
        self.blocked.remove(&index);
        let id = self.workers[index].id;
        let member = self.plane.core.job(&self.job).and_then(|job| job.member(id));
        let left_with = member.map(|m| (m.speed.errors(), m.batch));
        let worker = &mut self.workers[index];
        worker.left_with = left_with;
        worker.activity = Activity::Absent;
        worker.life += 1;
        worker.queue.clear();
        worker.held.clear();
        self.tally.left(id);
        self.deliver([Input::WorkerGone { worker: id, reason: "it leaves".into(), never_told: Vec::new() }]);
    }

    /// Gives the core inputs, carries out what it decides, and so on until it is at rest; then lets everybody
    /// start who may.
    fn deliver(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let mut assigned = Vec::new();
        for (worker, assignment) in self.plane.settle(self.now_us, inputs) {
            assigned.push(worker.0 as usize - 1);
            self.receive(worker, assignment);
        }
        if let Some(job) = self.plane.core.job(&self.job) {
            self.tally.look_at(job, &self.plane.server.shards[0], self.now_us);
        }
        let shard = &self.plane.server.shards[0];
        let released = (shard.closed(), shard.clocks().lowest());
        if mem::replace(&mut self.released, released) != released {
            assigned.extend(&self.blocked);
        }
        assigned.sort_unstable();
        assigned.dedup();
        assigned.into_iter().for_each(|index| self.start_if_served(index));
    }

    fn receive(&mut self, worker: Incarnation, assignment: Assignment) {
        let Work::Iterate { superstep, seq, range, min_clock, gradient, .. } = assignment.work else {
            // What a simulated worker prepares takes no time.
            let report = TaskReport { key: assignment.key, ended_ago_us: 0, outcome: TaskOutcome::Prepared };
            return self.deliver(vec![Input::Report { worker, report }]);
        };
        let iteration = Iteration { key: assignment.key, superstep, seq, range, min_clock, gradient };
        self.workers[worker.0 as usize - 1].queue.push_back(iteration);
    }

    /// Starts a worker's next iteration if it waits for nothing else.
    fn start_if_served(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let (Activity::Waiting { since_us }, Some(next)) = (&worker.activity, worker.queue.front()) else {
            return;
        };
        if next.pulls() && !self.plane.server.shards[0].serves(next.superstep, next.min_clock) {
            self.blocked.insert(index);
            return;
        }
        self.blocked.remove(&index);
        let (now_us, since_us) = (self.now_us, *since_us);
        self.tally.bar(index, since_us, now_us, true);
        worker.waited_us += now_us - since_us;
        let Some(iteration) = worker.queue.pop_front() else { return };
        let share = f64::from(iteration.range.len) / f64::from(self.scenario.batch);
        let compute_us = worker.draw_us(now_us, share);
        let pull_us = if iteration.pulls() { worker.model.pull_us } else { 0 };
        let push_us = if iteration.covers() > 0 { worker.model.push_us } else { 0 };
        // A burst or a drift makes an interval of any length.
        let end_us = now_us.saturating_add(pull_us).saturating_add(compute_us).saturating_add(push_us);
        self.events.push(Reverse((end_us, Event::Push { life: worker.life }, index)));
        let (waited_us, pulled) = (now_us - since_us, self.tally.updates());
        worker.activity = Activity::Computing {
            iteration,
            since_us: now_us,
            compute_us,
            pull_us,
            push_us,
            waited_us,
            pulled,
        };
    }

    /// A worker ends its iteration, and pushes unless that is inside a local round.
    fn finish_iteration(&mut self, index: usize) {
        let (worker, now_us) = (&mut self.workers[index], self.now_us);
        let waiting = Activity::Waiting { since_us: now_us };
        let Activity::Computing { iteration, since_us, compute_us, pull_us, push_us, waited_us, pulled } =
            mem::replace(&mut worker.activity, waiting)
        else {
            return;
        };
        let (id, range, covers) = (worker.id, iteration.range, iteration.covers());
        worker.pushes += 1;
        worker.samples += u64::from(range.len);
        self.tally.bar(index, since_us, now_us, false);
        let staleness =
            self.tally.iterated(matches!(iteration.gradient, GradientUse::ApplyOnArrival { .. }), pulled);
        let mut it = Iterated {
            range,
            loss: 1.0,
            loss_weight: range.len as f32,
            compute_us,
            pull_us,
            push_us,
            wait_us: waited_us,
            staleness,
            ..Iterated::default()
        };
        let shard = &mut self.plane.server.shards[0];
        if covers > 0 {
            shard.finish_push(id, iteration.seq, covers);
        }
        it.lead = self.tally.lead(id, shard);
        let outcome = TaskOutcome::Iterated(it);
        worker.held.push((now_us, TaskReport { key: iteration.key, ended_ago_us: 0, outcome }));
        if covers == 0 {
            return self.start_if_served(index);
        }
        let report = |(ended_us, report): (u64, TaskReport)| {
            let report = TaskReport { ended_ago_us: now_us - ended_us, ..report };
            Input::Report { worker: id, report }
        };
        let reports: Vec<Input> = mem::take(&mut worker.held).into_iter().map(report).collect();
        self.deliver(reports);
        // It may have had its next iteration in hand already.
        self.start_if_served(index);
    }

    fn end_presence(&mut self, index: usize) {
        let (worker, now_us) = (&mut self.workers[index], self.now_us);
        match worker.activity {
            Activity::Absent => {}
            Activity::Waiting { since_us } => {
                worker.waited_us += now_us - since_us;
                self.tally.bar(index, since_us, now_us, true);
            }
            Activity::Computing { since_us, .. } => self.tally.bar(index, since_us, now_us, false),
        }
        worker.present_us += now_us.saturating_sub(worker.present_since_us);
    }
}

/// Runs a scenario; `plot_us` keeps the boxes of its beginning.
pub fn simulate(scenario: &Scenario, plot_us: u64) -> Result<Outcome, InvalidScenario> {
    let mut simulation = Simulation::new(scenario, plot_us, NoStore::default())?;
    while simulation.step() {}
    Ok(simulation.outcome())
}
