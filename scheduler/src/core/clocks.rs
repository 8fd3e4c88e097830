//! The clocks of a job: who counts, and the tasks that stand for "everybody has reached this".

use super::{
    effects::Effect,
    job::Job,
    member::StepTimes,
    records::{Phase, Task, TaskBody},
    shard_protocol::ClockRoster,
    worker_protocol::Iterated,
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::Incarnation,
};

/// Weight of the newest iteration in the moving averages.
const NEWEST: f64 = 0.2;

impl Job {
    /// Tells the shards whose clocks count, after a worker joined.
    pub(super) fn clocks_changed(&mut self, effects: &mut Vec<Effect>) {
        self.state.clock_revision += 1;
        self.changes.job_state = true;
        effects.extend(self.clock_roster());
    }

    /// What the shards must know about clocks, once they hold the job.
    pub(super) fn clock_roster(&self) -> Option<Effect> {
        if self.state.phase != Phase::Running {
            return None;
        }
        let base = self.active().map(|w| (w, self.members[&w].clock_base)).collect();
        let roster = ClockRoster { revision: self.state.clock_revision, base };
        let run = self.run();
        Some(Effect::Clocks { run, roster })
    }

    /// Puts a clock that some pull waits for into the graph, unless everybody has reached it.
    pub(super) fn await_clock(&mut self, clock: u64, now_us: u64) {
        let id = TaskId::Clock(clock);
        if self.clocks.lowest().is_none_or(|low| low >= clock) || self.tasks.contains_key(&id) {
            return;
        }
        self.tasks.insert(id.clone(), Task::new(TaskBody::Clock, 0, now_us));
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Shards }, now_us);
    }

    /// The slowest worker may have moved, or left: ends the clocks that everybody has reached and lets the
    /// gates be looked at again.
    pub(super) fn slowest_moved(&mut self, before: Option<u64>, now_us: u64) {
        let low = self.clocks.lowest();
        if low == before {
            return;
        }
        self.grant_queue.everybody = true;
        let reached = TaskId::Clock(low.unwrap_or(u64::MAX));
        let done: Vec<TaskId> = self
            .tasks
            .range(TaskId::Clock(0)..=reached)
            .filter(|(_, t)| !t.state.is_final())
            .map(|(id, _)| id.clone())
            .collect();
        for id in done {
            let attempt = self.tasks.get(&id).map_or(1, |t| t.attempts);
            self.apply(&id, &TaskEvent::Finished { attempt }, now_us);
        }
    }

    /// Takes a worker that left out of the clocks.
    pub(super) fn stop_clock(&mut self, worker: Incarnation, now_us: u64) {
        let before = self.clocks.lowest();
        self.clocks.leave(worker);
        self.slowest_moved(before, now_us);
    }
}

impl StepTimes {
    pub(super) fn add(&mut self, it: &Iterated) {
        let first = self.compute_us == 0.0;
        let mix = |mean: &mut f64, us: u64| {
            *mean = if first { us as f64 } else { *mean + NEWEST * (us as f64 - *mean) };
        };
        mix(&mut self.compute_us, it.compute_us + it.throttle_us);
        // Inside a local round nothing is transferred; that says nothing about the link.
        if it.pull_us > 0 {
            mix(&mut self.pull_us, it.pull_us);
        }
        if it.push_us > 0 {
            mix(&mut self.push_us, it.push_us);
        }
    }

    /// Of an iteration that pulls, or pushes.
    pub(super) fn usual_us(&self, pulls: bool, pushes: bool) -> u64 {
        let part = |is_there: bool, us: f64| if is_there { us } else { 0.0 };
        (self.compute_us + part(pulls, self.pull_us) + part(pushes, self.push_us)) as u64
    }

    /// Share of an iteration that pulls and pushes, in which these take their time.
    pub(super) fn share(&self) -> Option<f64> {
        let moved_us = self.pull_us + self.push_us;
        let all_us = moved_us + self.compute_us;
        (all_us > 0.0).then(|| moved_us / all_us)
    }
}
