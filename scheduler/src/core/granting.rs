//! Granting iterations: who may start what, and how far ahead.
//!
//! While a superstep's end is unknown a worker gets few iterations beyond its last finished one, because a
//! plan can only name iterations that are granted already or later. Once the end is known they are granted in
//! longer runs, so that no worker waits for the engine.

use super::{
    effects::Effect,
    job::Job,
    member::{Member, Membership},
    records::{Task, TaskBody},
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
    turn::Turn,
};
use crate::{
    graph::{Holder, TaskEvent, TaskId},
    ids::{Incarnation, Superstep},
    samples::SampleRange,
    sync::{Aggregation, EndRule},
};

/// A step shorter than this is shorter than a control round trip with some noise: its worker is granted two
/// at a time.
const DOUBLE_GRANT_BELOW_US: u64 = 5_000;
/// Work that a worker has in hand when nothing forbids it: it then reports many short steps at once, and
/// nobody waits for that.
const PIPELINE_US: u64 = 250_000;
const PIPELINE_MAX: u64 = 256;
/// What is left of the job is handed out in so many turns at least, so that all workers end at about the same
/// time.
const LAST_TURNS: u64 = 8;

/// Where a worker's next iteration belongs.
enum Slot {
    In {
        superstep: Superstep,
        ahead: u64,
    },
    /// Every superstep with room is over for this worker: a new one must open.
    New,
    /// It is as far ahead of the others as the policy lets it go.
    HeldBack,
    /// Nothing to do for it now.
    Nothing,
}

impl Job {
    /// Grants whatever may be granted to the workers for whom something has changed.
    pub(super) fn grant(&mut self, turn: &mut Turn<'_>) {
        if !self.unattached.is_empty() {
            return;
        }
        loop {
            if std::mem::take(&mut self.grant_queue.everybody) {
                self.grant_queue.workers = self.active().collect();
            }
            let Some(worker) = self.grant_queue.workers.pop_first() else { return };
            if self.members.get(&worker).is_some_and(|m| m.membership == Membership::Active) {
                self.grant_to(worker, turn);
            }
        }
    }

    fn grant_to(&mut self, worker: Incarnation, turn: &mut Turn<'_>) {
        loop {
            let outstanding = self.members[&worker].outstanding();
            match self.slot(worker) {
                Slot::In { superstep, ahead } if outstanding < ahead && !self.is_gated(worker) => {
                    if !self.grant_one(worker, superstep, turn) {
                        return;
                    }
                }
                Slot::New if outstanding < self.opened_ahead(worker) => self.open_superstep(turn),
                Slot::In { ahead, .. } if outstanding < ahead => return self.hold_back(worker, turn.now_us),
                Slot::HeldBack => return self.hold_back(worker, turn.now_us),
                _ => return,
            }
        }
    }

    /// Notes since when the policy has a worker wait that has nothing in hand.
    fn hold_back(&mut self, worker: Incarnation, now_us: u64) {
        let member = self.members.get_mut(&worker).expect("callers name members of the job");
        if member.outstanding() == 0 && member.held_back_us.is_none() {
            member.held_back_us = Some(now_us);
            self.changes.members.insert(worker);
        }
    }

    fn slot(&self, worker: Incarnation) -> Slot {
        let member = &self.members[&worker];
        for (&superstep, record) in self.supersteps.iter().filter(|(_, s)| !s.is_closed()) {
            let current = superstep.0 == self.state.closed;
            match (record.roster.get(&worker), &record.phase) {
                // Where the others will be when the next superstep begins is not known, also to one who just
                // joined.
                (_, SuperstepPhase::Planning(_)) => return Slot::Nothing,
                (Some(RosterEntry { last: Some(last), .. }), _) if member.granted < *last => {
                    let ahead = match (record.aggregation.is_local(), current) {
                        // The reports of a local round come together at its end, and the engine may hear some
                        // time after it that the round before is merged.
                        (true, _) => u64::MAX,
                        (false, true) => self.pipeline(worker),
                        (false, false) => self.opened_ahead(worker),
                    };
                    return Slot::In { superstep, ahead };
                }
                (Some(RosterEntry { last: Some(_), .. }), _) => {}
                (_, SuperstepPhase::Open(_)) if self.grants_nothing_new() => return Slot::Nothing,
                (_, SuperstepPhase::Open(EndRule::Free)) => {
                    return Slot::In { superstep, ahead: self.pipeline(worker) };
                }
                (_, SuperstepPhase::Open(_)) if self.leads_too_far(worker, record) => return Slot::HeldBack,
                // Whoever has nobody to meet is not watched.
                (_, SuperstepPhase::Open(_)) if record.is_of_one_alone() => {
                    return Slot::In { superstep, ahead: self.pipeline(worker) };
                }
                (_, SuperstepPhase::Open(_)) => return Slot::In { superstep, ahead: self.ahead(worker) },
                (None, _) => {}
                (Some(RosterEntry { last: None, .. }), _) => return Slot::Nothing,
            }
        }
        if self.grants_nothing_new() { Slot::Nothing } else { Slot::New }
    }

    fn take_samples(&mut self, most: u32) -> Option<SampleRange> {
        let open = self.open_epochs();
        self.state.cursor.take(most, open)
    }

    /// Whether no samples are left to grant, or none in front of an evaluation.
    pub(super) fn has_no_samples(&self) -> bool {
        self.state.cursor.is_exhausted_until(self.open_epochs())
    }

    /// Whether no samples are left, or the job comes to rest for a checkpoint, an evaluation or a pause.
    fn grants_nothing_new(&self) -> bool {
        self.has_no_samples()
            || self.state.checkpoints.rests()
            || self.state.evaluations.rests()
            || self.state.paused
    }

    /// Whether the policy's gate is closed for a worker's next iteration. Where the parameter server can do
    /// the waiting, it is open as soon as everything that is waited for has been granted.
    pub(super) fn is_gated(&self, worker: Incarnation) -> bool {
        let gate = self.state.policy.as_dyn().gate(worker, &self.clocks);
        let next = self.clocks.get(worker).map_or(0, |c| c.granted) + 1;
        match (gate.behind, gate.until) {
            (Some(behind), _) => self.clocks.lowest_granted().is_some_and(|low| next > low + behind + 1),
            (None, until) => until.is_some_and(|until| next > until),
        }
    }

    /// Whether one more iteration would take a worker of a monitored superstep beyond the bound on the lead.
    fn leads_too_far(&self, worker: Incarnation, record: &SuperstepState) -> bool {
        let Some(max_lead) = record.max_lead else { return false };
        let base = record.roster.get(&worker).map_or(self.members[&worker].planned, |entry| entry.base);
        let next = self.members[&worker].granted + 1 - base.min(self.members[&worker].granted);
        next > record.least_progress() + max_lead
    }

    /// Counts from now on how far a worker is in a superstep into which it came.
    pub(super) fn begin_progress(&mut self, worker: Incarnation, superstep: Superstep) {
        let finished = self.members[&worker].finished;
        if let Some(record) = self.supersteps.get_mut(&superstep) {
            record.count_progress(worker, finished, finished);
        }
    }

    /// Iterations granted beyond the last finished one while no plan exists.
    pub(super) fn ahead(&self, worker: Incarnation) -> u64 {
        let interval_us = self.members[&worker].interval_us;
        let default = if (1..DOUBLE_GRANT_BELOW_US).contains(&interval_us) { 2 } else { 1 };
        self.train().ahead.map_or(default, u64::from)
    }

    /// Iterations granted beyond the last finished one where the end is known, or known never to come.
    pub(super) fn pipeline(&self, worker: Incarnation) -> u64 {
        let ahead = self.ahead(worker);
        let Some(run) = PIPELINE_US.checked_div(self.members[&worker].interval_us) else { return ahead };
        let turn = self.clocks.len() as u64 * u64::from(self.train().batch) * LAST_TURNS;
        let share = self.state.cursor.remaining(self.open_epochs()) / turn.max(1);
        run.min(share).clamp(2, PIPELINE_MAX).max(ahead)
    }

    /// Leases one iteration; `false` if no samples are left for it.
    fn grant_one(&mut self, worker: Incarnation, superstep: Superstep, turn: &mut Turn<'_>) -> bool {
        let usual = self.members[&worker].fitting(self.train());
        let batch = self.supersteps[&superstep].roster.get(&worker).map_or(usual, |s| s.batch);
        let reserved = self.take_reserved(worker, batch);
        let Some(range) = reserved.or_else(|| self.take_samples(batch)) else { return false };
        let learning_rate = self.iteration_rate(worker, superstep, range);
        let member = self.member_mut(worker);
        let held_back_us =
            member.held_back_us.take().map_or(0, |since_us| turn.now_us.saturating_sub(since_us));
        let base = member.granted;
        member.granted += 1;
        member.planned = member.planned.max(member.granted);
        let seq = member.granted;
        self.add_wait(worker, held_back_us);
        self.clocks.grant(worker);
        if self.clocks.lowest_granted() == self.clocks.get(worker).map(|c| c.granted) {
            // The last to be granted this clock: whoever waits for it at the parameter server may be granted
            // more.
            self.grant_queue.everybody |=
                self.state.policy.as_dyn().gate(worker, &self.clocks).behind.is_some();
        }
        if !self.supersteps[&superstep].roster.contains_key(&worker) {
            self.member_mut(worker).batch = batch;
            let whole = self.train().batch;
            let record = self.superstep_mut(superstep);
            record.balanced |= batch != whole;
            record.roster.insert(worker, RosterEntry::new(base, batch));
            if matches!(record.phase, SuperstepPhase::Open(EndRule::Monitor { .. })) {
                record.unobserved.insert(worker);
            }
            self.begin_progress(worker, superstep);
        }

        let id = TaskId::Iteration { worker, seq };
        let mut task = Task::new(TaskBody::Iteration { superstep, range, learning_rate }, 0, turn.now_us);
        if superstep.0 > 0 {
            task.version.push(TaskId::Barrier(Superstep(superstep.0 - 1)));
        }
        let min_clock = self.min_clock(worker, seq);
        if min_clock > 0 {
            task.version.push(TaskId::Clock(min_clock));
            self.await_clock(min_clock, turn.now_us);
        }
        self.tasks.insert(id.clone(), task);
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, turn.now_us);
        if let Some(assignment) = self.assignment(&id) {
            turn.effects.push(Effect::Assign { worker, assignment });
        }
        true
    }

    /// Rate of the schedule where what is to be handed out next begins.
    pub(super) fn learning_rate(&self) -> f32 {
        self.rate_after(self.state.cursor.handed_out())
    }

    /// Rate of the schedule after so many samples, as far as evaluations have left it.
    pub(super) fn rate_after(&self, samples: u64) -> f32 {
        let train = self.train();
        self.reduced(train.learning_rate.at(samples, train.total_samples()))
    }

    /// What evaluations have left of a rate of the schedule.
    pub(super) fn reduced(&self, rate: f32) -> f32 {
        let train = self.train();
        let multiplier = self.state.evaluations.watch.reduced_by(train.evaluate.as_ref());
        multiplier.map_or(rate, |multiplier| train.reduced_rate(rate, multiplier))
    }

    /// Rate of a worker's next iteration, which is granted `range`: that of its superstep's one step, of the
    /// step that all take side by side in a local round, or of the schedule where its own samples begin.
    /// What is set aside for later iterations does not count.
    fn iteration_rate(&self, worker: Incarnation, superstep: Superstep, range: SampleRange) -> f32 {
        let (record, train) = (&self.supersteps[&superstep], self.train());
        if record.aggregation == Aggregation::PerBarrier {
            return record.step_rate(train.batch);
        }
        if let Some(begun) = record.local_step_begins_at(worker, self.members[&worker].granted + 1) {
            return self.rate_after(begun) * record.rate_factor;
        }
        let ahead = self.samples_set_aside + u64::from(range.len);
        let before = self.state.cursor.handed_out().saturating_sub(ahead);
        self.rate_after(before) * record.rate_factor
    }

    /// Predicts what everybody takes for `quota` iterations, and waits for the slowest: once every speed is
    /// known.
    pub(super) fn predict_quota(&mut self, superstep: Superstep, quota: u32) {
        let interval_us =
            |(w, entry): (&Incarnation, &RosterEntry)| self.members.get(w)?.speed.interval_us(entry.batch);
        let each: Option<Vec<u64>> = self.supersteps[&superstep].roster.iter().map(interval_us).collect();
        let Some(each) = each else { return };
        let slowest_us = each.iter().copied().max().unwrap_or(0);
        let record = self.superstep_mut(superstep);
        record.predicted_wait_us = Some(each.iter().map(|us| (slowest_us - us) * u64::from(quota)).sum());
        for (entry, interval_us) in record.roster.values_mut().zip(each) {
            entry.predicted_interval_us = Some(interval_us);
        }
    }

    /// Sets samples aside for `wanted` further iterations of each worker of a superstep, and thereby fixes
    /// its last one. When samples run short everybody gets its share of what is left.
    pub(super) fn reserve(&mut self, superstep: Superstep, wanted: &[(Incarnation, u64)]) {
        let batch_of = |job: &Self, w: &Incarnation| {
            u64::from(job.supersteps[&superstep].roster.get(w).map_or(1, |entry| entry.batch))
        };
        let need: u64 = wanted.iter().map(|(w, n)| n * batch_of(self, w)).sum();
        let mut have = self.state.cursor.remaining(self.open_epochs());
        let short = need > have;
        let share =
            |n: u64| if short { (u128::from(n) * u128::from(have) / u128::from(need)) as u64 } else { n };
        let shares: Vec<u64> = wanted.iter().map(|(_, n)| share(*n)).collect();
        have = have.saturating_sub(wanted.iter().zip(&shares).map(|((w, _), n)| n * batch_of(self, w)).sum());
        let mut samples = 0;
        for (&(worker, n), &share) in wanted.iter().zip(&shares) {
            let batch = batch_of(self, &worker);
            // What rounding down leaves goes out one by one.
            let extra = u64::from(share < n && have > 0);
            have = have.saturating_sub(extra * batch);
            let iterations = share + extra;
            let mut got = 0;
            while got < iterations {
                let len = (iterations - got).saturating_mul(batch).min(u64::from(u32::MAX)) as u32;
                let Some(range) = self.take_samples(len) else { break };
                got += u64::from(range.len).div_ceil(batch);
                samples += u64::from(range.len);
                self.samples_set_aside += u64::from(range.len);
                self.member_mut(worker).reserved.push_back(range);
            }
            let member = self.member_mut(worker);
            member.planned += got;
            let (granted, last) = (member.granted, member.planned);
            if let Some(entry) = self.superstep_mut(superstep).roster.get_mut(&worker) {
                entry.last = Some(last);
                samples += granted.saturating_sub(entry.base) * batch;
            }
        }
        self.superstep_mut(superstep).samples = Some(samples);
    }

    /// Takes the samples of the next iteration out of those that are set aside for a worker.
    pub(super) fn take_reserved(&mut self, worker: Incarnation, batch: u32) -> Option<SampleRange> {
        let taken = self.member_mut(worker).take_reserved(batch)?;
        self.samples_set_aside -= u64::from(taken.len);
        Some(taken)
    }

    /// Ends an open superstep once no samples are left to grant, or none for now.
    pub(super) fn end_when_exhausted(&mut self, turn: &mut Turn<'_>) {
        if self.has_no_samples() || self.state.paused {
            self.end_open_superstep(turn);
        }
    }

    /// Ends an open superstep at what is granted.
    pub(super) fn end_open_superstep(&mut self, turn: &mut Turn<'_>) {
        let open = self.supersteps.iter().find(|(_, s)| s.is_open()).map(|(n, _)| *n);
        if let Some(superstep) = open {
            let granted: Vec<_> = self.supersteps[&superstep].roster.keys().map(|w| (*w, 0)).collect();
            self.reserve(superstep, &granted);
            self.order_barrier(superstep, turn);
        }
    }
}

impl Member {
    fn take_reserved(&mut self, batch: u32) -> Option<SampleRange> {
        let front = self.reserved.front_mut()?;
        let taken = front.split_front(batch);
        if front.len == 0 {
            self.reserved.pop_front();
        }
        Some(taken)
    }
}
