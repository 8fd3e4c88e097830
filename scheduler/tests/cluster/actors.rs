//! A worker, reduced to what the core can see of it.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{
        Assignment, Blame, EvaluationSums, GradientUse, Input, Iterated, Outcome, TaskKey, TaskReport, Work,
    },
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::ShardModel,
};

/// Where a worker is inside its front task.
enum Stage {
    Pulling,
    Computing,
    /// The next half push: shard `n / 2`, begun (even) or finished (odd).
    Pushing(usize),
}

pub struct Worker {
    id: Incarnation,
    interval_us: u64,
    queue: VecDeque<Assignment>,
    stage: Stage,
    unsettled: Vec<TaskReport>,
    resend: bool,
    /// Reports of a local round that is not pushed yet.
    held: Vec<TaskReport>,
    /// First iteration of the last local round, and the one that comes next in it.
    round: Option<(u64, u64)>,
    /// The store has lost something: tasks are revoked of which nobody knows that others follow them.
    has_lost: bool,
}

/// What an evaluation finds in parameters with so many pushes in them: sometimes more, sometimes less.
pub fn loss_after(pushes: u64) -> f64 {
    (pushes.wrapping_mul(0x9E37_79B9) >> 7) as u8 as f64 / 16.0
}

/// An iteration that starts to compute.
pub struct Started {
    pub superstep: u64,
    pub seq: u64,
}

impl Worker {
    pub fn new(id: Incarnation, interval_us: u64) -> Self {
        let (queue, unsettled, held) = Default::default();
        Self {
            id,
            interval_us,
            queue,
            stage: Stage::Pulling,
            unsettled,
            resend: false,
            held,
            round: None,
            has_lost: false,
        }
    }

    pub fn receive(&mut self, assignment: Assignment) {
        let ended = || self.unsettled.iter().chain(&self.held).map(|report| &report.key);
        let mut holding = self.queue.iter().map(|held| &held.key).chain(ended());
        if !holding.any(|key| *key == assignment.key) {
            self.queue.push_back(assignment);
        }
    }

    pub fn settle(&mut self, key: &TaskKey) {
        self.unsettled.retain(|r| r.key != *key);
    }

    pub fn settle_all(&mut self) {
        self.unsettled.clear();
    }

    /// Nobody wants a task any more; one that has begun goes on.
    pub fn revoke(&mut self, key: &TaskKey) {
        self.settle(key);
        let begun = usize::from(!matches!(self.stage, Stage::Pulling));
        let mut index = 0;
        self.queue.retain(|assignment| {
            index += 1;
            index <= begun || assignment.key != *key
        });
    }

    /// Nobody wants what is not known; a task that has begun goes on.
    pub fn forget_unknown(&mut self, is_known: impl Fn(&TaskKey) -> bool) {
        self.has_lost = true;
        let keys: Vec<TaskKey> = self.queue.iter().map(|assignment| assignment.key.clone()).collect();
        keys.iter().filter(|key| !is_known(key)).for_each(|key| self.revoke(key));
    }

    /// The job of the task that it works on, or will.
    pub fn job(&self) -> Option<&JobId> {
        self.queue.front().map(|assignment| &assignment.key.run.job)
    }

    pub fn resend_reports(&mut self) {
        self.resend = !self.unsettled.is_empty();
    }

    /// Whether some shard does not hold the job of the front task any more, or in another generation.
    fn meets_another_life(&self, shards: &[ShardModel]) -> bool {
        let key = self.queue.front().map(|assignment| &assignment.key);
        key.is_some_and(|key| shards.iter().any(|shard| !shard.holds(&key.run)))
    }

    pub fn can_move(&self, shards: &[ShardModel]) -> bool {
        self.resend
            || self.meets_another_life(shards)
            || self.queue.front().is_some_and(|a| match (&a.work, &self.stage) {
                (Work::Iterate { superstep, min_clock, .. }, Stage::Pulling) => {
                    self.inside_round(&a.work) || shards.iter().all(|s| s.serves(*superstep, *min_clock))
                }
                _ => true,
            })
    }

    fn inside_round(&self, work: &Work) -> bool {
        matches!(work, Work::Iterate { seq, gradient: GradientUse::LocalStep { first, .. }, .. } if seq > first)
    }

    /// The iteration that starts with the next step, if one does.
    pub fn starting(&self, shards: &[ShardModel]) -> Option<Started> {
        match (&self.queue.front()?.work, &self.stage) {
            (Work::Iterate { superstep, seq, .. }, Stage::Pulling)
                if !self.resend && !self.meets_another_life(shards) =>
            {
                Some(Started { superstep: superstep.0, seq: *seq })
            }
            _ => None,
        }
    }

    pub fn step(&mut self, _now_us: u64, shards: &mut [ShardModel]) -> Vec<Input> {
        let worker = self.id;
        if std::mem::take(&mut self.resend) {
            return self.unsettled.iter().map(|r| Input::Report { worker, report: r.clone() }).collect();
        }
        if self.meets_another_life(shards) {
            // The engine finds out from the shards.
            self.queue.pop_front();
            self.held.clear();
            self.stage = Stage::Pulling;
            return Vec::new();
        }
        let Some(front) = self.queue.front().cloned() else { return Vec::new() };
        if let Work::Prepare { .. } = front.work {
            return self.done(Outcome::Prepared);
        }
        let Work::Iterate { seq, gradient, .. } = front.work else {
            let loss = loss_after(shards[0].pushes());
            let sums = EvaluationSums { loss, weight: 1.0, samples: 3, ..EvaluationSums::default() };
            return self.done(Outcome::Evaluated(sums));
        };
        if matches!(self.stage, Stage::Pulling) && !self.goes_on_with(seq, gradient) {
            let reason = "it does not continue the round that is open".to_owned();
            let (code, blame) = (FaultCode::new("E460"), Blame::Worker);
            return self.done(Outcome::Failed { code, reason, blame });
        }
        match self.stage {
            Stage::Pulling => self.stage = Stage::Computing,
            Stage::Computing => match gradient {
                GradientUse::LocalStep { last, .. } if seq < last => return self.iterated(false),
                _ => self.stage = Stage::Pushing(0),
            },
            Stage::Pushing(half) => {
                let shard = &mut shards[half / 2];
                let covers = match gradient {
                    GradientUse::LocalStep { first, last } => last - first + 1,
                    GradientUse::ApplyOnArrival { .. } | GradientUse::JoinRound => 1,
                };
                let ok = if self.has_lost && shard.misses_one_before(worker, seq, covers) {
                    false
                } else if half % 2 == 0 {
                    shard.begin_push(worker, seq)
                } else {
                    shard.finish_push(worker, seq, covers)
                };
                if !ok {
                    // Fenced: a real worker would register again; here its queue is over, and its next task
                    // begins like any other.
                    self.queue.clear();
                    self.stage = Stage::Pulling;
                    return Vec::new();
                }
                self.stage = Stage::Pushing(half + 1);
                if half + 1 == 2 * shards.len() {
                    return self.iterated(true);
                }
            }
        }
        Vec::new()
    }

    /// Whether an iteration begins a local round, continues the one that is open, or belongs to none. The
    /// reports of a round that is given up are, too.
    fn goes_on_with(&mut self, seq: u64, gradient: GradientUse) -> bool {
        let GradientUse::LocalStep { first, .. } = gradient else { return true };
        let continues = seq == first || self.round == Some((first, seq));
        if seq == first || !continues {
            self.held.clear();
        }
        self.round = continues.then_some((first, seq + 1));
        continues
    }

    /// The front iteration is computed; unless it is inside a local round, everything so far is pushed as
    /// well.
    fn iterated(&mut self, pushed: bool) -> Vec<Input> {
        let Some(front) = self.queue.pop_front() else { return Vec::new() };
        let Work::Iterate { range, .. } = front.work else { return Vec::new() };
        let it = Iterated {
            range,
            loss: 1.0,
            loss_weight: range.len as f32,
            compute_us: self.interval_us,
            cpu_load: 0.5,
            memory_load: 0.5,
            ..Iterated::default()
        };
        self.stage = Stage::Pulling;
        self.held.push(TaskReport { key: front.key, ended_ago_us: 0, outcome: Outcome::Iterated(it) });
        if !pushed {
            return Vec::new();
        }
        let reports = std::mem::take(&mut self.held);
        self.unsettled.extend(reports.iter().cloned());
        reports.into_iter().map(|report| Input::Report { worker: self.id, report }).collect()
    }

    fn done(&mut self, outcome: Outcome) -> Vec<Input> {
        self.stage = Stage::Pulling;
        let Some(front) = self.queue.pop_front() else { return Vec::new() };
        let report = TaskReport { key: front.key, ended_ago_us: 0, outcome };
        self.unsettled.push(report.clone());
        vec![Input::Report { worker: self.id, report }]
    }
}
