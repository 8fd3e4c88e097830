//! The core's counterparts, reduced to what it can see of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syncline_scheduler::{
    core::{Assignment, Barrier, Input, Iterated, Outcome, Stand, TaskKey, TaskReport, Work},
    ids::{Generation, Incarnation},
};

#[derive(Default)]
pub struct Shard {
    pub generation: Generation,
    pub closed: u64,
    /// Closes that the engine has been told of.
    pub told: u64,
    pub pushes: u64,
    watermarks: BTreeMap<Incarnation, u64>,
    begun: BTreeMap<Incarnation, u64>,
    sealed: BTreeSet<Incarnation>,
    barriers: BTreeMap<u64, Barrier>,
}

impl Shard {
    pub fn order(&mut self, barrier: &Barrier) {
        let newer = self.barriers.get(&barrier.superstep.0).is_none_or(|b| b.revision < barrier.revision);
        if barrier.superstep.0 >= self.closed && newer {
            self.barriers.insert(barrier.superstep.0, barrier.clone());
        }
    }

    pub fn close_what_can(&mut self) {
        while let Some(barrier) = self.barriers.get(&self.closed) {
            if !barrier.roster.iter().all(|(w, last)| self.watermarks.get(w).copied().unwrap_or(0) >= *last) {
                return;
            }
            self.barriers.remove(&self.closed);
            self.closed += 1;
        }
    }

    pub fn seal(&mut self, worker: Incarnation) -> Stand {
        self.sealed.insert(worker);
        let watermark = self.watermarks.get(&worker).copied().unwrap_or(0);
        Stand { watermark, partial: self.begun.get(&worker).is_some_and(|&b| b > watermark) }
    }

    fn begin(&mut self, worker: Incarnation, seq: u64) -> bool {
        !self.sealed.contains(&worker) && {
            self.begun.insert(worker, seq);
            true
        }
    }

    fn finish(&mut self, worker: Incarnation, seq: u64) -> bool {
        if self.sealed.contains(&worker) {
            return false;
        }
        assert_eq!(self.watermarks.get(&worker).copied().unwrap_or(0) + 1, seq, "pushes come in order");
        self.watermarks.insert(worker, seq);
        self.pushes += 1;
        true
    }
}

/// Where a worker is inside its front task.
enum Stage {
    Pulling,
    Computing,
    /// The next half push: shard `n / 2`, begun (even) or finished (odd).
    Pushing(usize),
}

pub struct Worker {
    id: Incarnation,
    pace_us: u64,
    queue: VecDeque<Assignment>,
    stage: Stage,
    seen: BTreeSet<TaskKey>,
    unsettled: Vec<TaskReport>,
    resend: bool,
}

impl Worker {
    pub fn new(id: Incarnation, pace_us: u64) -> Self {
        let (queue, seen, unsettled) = Default::default();
        Self { id, pace_us, queue, stage: Stage::Pulling, seen, unsettled, resend: false }
    }

    pub fn receive(&mut self, assignment: Assignment) {
        if self.seen.insert(assignment.key.clone()) {
            self.queue.push_back(assignment);
        }
    }

    pub fn settle(&mut self, key: &TaskKey) {
        self.unsettled.retain(|r| r.key != *key);
    }

    pub fn resend_reports(&mut self) {
        self.resend = !self.unsettled.is_empty();
    }

    pub fn can_move(&self, closed: &[u64]) -> bool {
        self.resend
            || self.queue.front().is_some_and(|a| match (&a.work, &self.stage) {
                (Work::Iterate { superstep, .. }, Stage::Pulling) => closed.iter().all(|&c| c >= superstep.0),
                _ => true,
            })
    }

    pub fn step(&mut self, _now_us: u64, shards: &mut [Shard]) -> Vec<Input> {
        let worker = self.id;
        if std::mem::take(&mut self.resend) {
            return self.unsettled.iter().map(|r| Input::Report { worker, report: r.clone() }).collect();
        }
        let Some(front) = self.queue.front().cloned() else { return Vec::new() };
        let Work::Iterate { seq, .. } = front.work else {
            return self.done(Outcome::Evaluated { loss: 0.5, accuracy: Some(1.0), samples: 3 });
        };
        match self.stage {
            Stage::Pulling => self.stage = Stage::Computing,
            Stage::Computing => self.stage = Stage::Pushing(0),
            Stage::Pushing(half) => {
                let shard = &mut shards[half / 2];
                let ok = if half % 2 == 0 { shard.begin(worker, seq) } else { shard.finish(worker, seq) };
                if !ok {
                    // Fenced: a real worker would register again; here its queue is over.
                    self.queue.clear();
                    return Vec::new();
                }
                self.stage = Stage::Pushing(half + 1);
                if half + 1 == 2 * shards.len() {
                    let it = Iterated {
                        loss: 1.0,
                        skipped: false,
                        compute_us: self.pace_us,
                        pace_us: 0,
                        pull_us: 0,
                        push_us: 0,
                        wait_us: 0,
                        staleness: 0,
                        cpu_load: 0.0,
                        memory_load: 0.0,
                    };
                    return self.done(Outcome::Iterated(it));
                }
            }
        }
        Vec::new()
    }

    fn done(&mut self, outcome: Outcome) -> Vec<Input> {
        self.stage = Stage::Pulling;
        let Some(front) = self.queue.pop_front() else { return Vec::new() };
        let report = TaskReport { key: front.key, ended_ago_us: 0, outcome };
        self.unsettled.push(report.clone());
        vec![Input::Report { worker: self.id, report }]
    }
}
