//! What becomes of the work of those who leave: the shards say what they have applied, the rest is handed out
//! again.

use super::{
    effects::Effect,
    event::Happening,
    inputs::TaskFault,
    job::Job,
    member::{Membership, Seal},
    records::{Phase, TaskBody},
    shard_protocol::PushProgress,
    superstep::SuperstepState,
    turn::Turn,
};
use crate::{
    fault_code::FaultCode,
    graph::{TaskEvent, TaskId},
    ids::{Incarnation, ShardIndex, Superstep},
    samples::SampleRange,
};

/// How a worker has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// By itself, in whatever way: what it was about may have been the reason.
    Lost,
    /// In order.
    Left,
    /// It was sent away, and comes again: nothing that it was about is to blame.
    Dismissed,
}

impl Job {
    /// A worker is gone: the shards are asked how far its pushes came before anything else is decided about
    /// them.
    pub(super) fn worker_gone(&mut self, worker: Incarnation, reason: &str, turn: &mut Turn<'_>) {
        let Some(member) = self.members.get(&worker).filter(|m| m.is_present()) else { return };
        let took_part = member.membership == Membership::Active;
        let complete_before = self.state.seals;
        let member = self.member_mut(worker);
        member.membership = Membership::Sealing { answers: Default::default() };
        member.seal = Some(Seal { complete_before, applied: 0 });
        self.stop_clock(worker, turn.now_us);
        self.expect_no_report_of(worker);
        self.apply(&TaskId::Prepare(worker), &TaskEvent::Lost, turn.now_us);
        self.tell(
            Happening::WorkerLost { worker: self.named(worker), reason: reason.to_owned() },
            turn.now_us,
        );
        for id in self.leased_to(worker) {
            let Some(task) = self.tasks.get(&id) else { continue };
            if !task.body.is_node() && !matches!(id, TaskId::Evaluation { .. }) {
                continue;
            }
            let key = self.key(id, task.attempts);
            let reason = format!("worker {} left: {reason}", self.display_name(worker));
            let fault = TaskFault { code: FaultCode::WORKER_LOST, reason };
            self.failed_by(worker, &key, fault, turn);
        }
        if took_part && matches!(self.state.phase, Phase::Running) {
            let run = self.run();
            turn.effects.push(Effect::Seal { run, worker });
        } else {
            // Nothing was ever pushed.
            self.member_mut(worker).membership = Membership::Gone;
        }
    }

    /// One shard's answer about a worker that is gone. With the last one its iterations are settled: what
    /// every shard has applied is done, the next is torn if any shard has some of it, the others go back
    /// to the pool.
    pub(super) fn sealed(
        &mut self,
        worker: Incarnation,
        shard: ShardIndex,
        progress: PushProgress,
        turn: &mut Turn<'_>,
    ) {
        let shards = u64::from(self.state.shards);
        if !matches!(self.members.get(&worker).map(|m| &m.membership), Some(Membership::Sealing { .. })) {
            return;
        }
        let Membership::Sealing { answers } = &mut self.member_mut(worker).membership else { return };
        // Asked again, a shard may have forgotten how far a worker came that it sealed long ago.
        answers.entry(shard).or_insert(progress);
        if (answers.len() as u64) < shards {
            return;
        }
        let applied = answers.values().map(|s| s.watermark).min().unwrap_or(0);
        let begun = answers.values().any(|s| s.watermark > applied || s.watermark == applied && s.partial);
        for id in self.leased_to(worker) {
            let TaskId::Iteration { seq, .. } = id else { continue };
            self.settle_iteration(worker, &id, seq, applied, begun, turn.now_us);
        }
        self.put_back_reserved(worker);
        self.state.seals += 1;
        let member = self.member_mut(worker);
        member.membership = Membership::Gone;
        if let Some(seal) = &mut member.seal {
            seal.applied = applied;
        }
        member.finished = member.granted;
        member.planned = member.granted;
        member.arrivals_us.clear();
        self.remove_from_rosters(worker, turn.effects);
        self.tell(Happening::WorkerSealed { worker: self.named(worker), applied }, turn.now_us);
    }

    fn settle_iteration(
        &mut self,
        worker: Incarnation,
        id: &TaskId,
        seq: u64,
        applied: u64,
        begun: bool,
        now_us: u64,
    ) {
        let Some(TaskBody::Iteration { superstep, range, .. }) = self.tasks.get(id).map(|t| t.body.clone())
        else {
            return;
        };
        if seq <= applied {
            let attempt = self.tasks.get(id).map_or(1, |t| t.attempts);
            self.apply(id, &TaskEvent::Finished { attempt }, now_us);
            let spent = &mut self.member_mut(worker).spent;
            (spent.iterations, spent.samples) = (spent.iterations + 1, spent.samples + u64::from(range.len));
            return self.iteration_done(worker, range);
        }
        self.miss(superstep, range);
        if begun && seq <= self.torn_until(worker, id, applied) {
            self.apply(id, &TaskEvent::TornApart, now_us);
            self.state.counters.torn += 1;
            self.state.counters.samples_torn += u64::from(range.len);
            self.count(range);
            self.tell(Happening::IterationTorn { task: id.clone() }, now_us);
        } else {
            self.apply(id, &TaskEvent::Lost, now_us);
            self.state.counters.lost += 1;
            self.put_back(range);
        }
    }

    /// These samples do not come into a superstep that was to have them.
    pub(super) fn miss(&mut self, superstep: Superstep, range: SampleRange) {
        if let Some(record) = self.supersteps.get_mut(&superstep) {
            record.samples = record.samples.map(|all| all.saturating_sub(u64::from(range.len)));
            self.changes.supersteps.insert(superstep);
        }
    }

    /// Puts back what was set aside for a worker that left, of one superstep after the other.
    fn put_back_reserved(&mut self, worker: Incarnation) {
        let mut next = self.members[&worker].granted;
        let planned = |(n, record): (&Superstep, &SuperstepState)| {
            let entry = record.roster.get(&worker)?;
            Some((*n, entry.last?, entry.batch))
        };
        let planned: Vec<_> = self.supersteps.iter().filter_map(planned).collect();
        for (superstep, last, batch) in planned {
            for _ in next..last {
                let Some(range) = self.take_reserved(worker, batch) else { return };
                self.miss(superstep, range);
                self.put_back(range);
            }
            next = next.max(last);
        }
    }

    /// The last iteration in the push that comes after `applied`: a local round is one push.
    fn torn_until(&self, worker: Incarnation, id: &TaskId, applied: u64) -> u64 {
        let Some(TaskBody::Iteration { superstep, .. }) = self.tasks.get(id).map(|t| &t.body) else {
            return applied;
        };
        let local = self.supersteps.get(superstep).filter(|s| s.aggregation.is_local());
        let entry = local.and_then(|s| s.roster.get(&worker)).filter(|entry| entry.base <= applied);
        entry.and_then(|entry| entry.last).unwrap_or(applied + 1)
    }
}
