//! What may be lost outside the core: a shard's parameters, or what the store had acknowledged. A job that
//! lost something goes back to a checkpoint, or ends and says so; it never goes on with counts that are
//! wrong.

use super::{
    commit::GONE_WORKERS_KEPT,
    job::Job,
    member::Membership,
    records::Phase,
    shard_protocol::{BarrierOrder, ClosedBarrier, ProgressFloor, ShardProgress},
    superstep::SuperstepPhase,
    turn::Turn,
};
use crate::{
    fault_code::FaultCode,
    ids::{Incarnation, RunId, ShardIndex},
};

/// How the reason of a job begins that goes back, or ends, because of that.
const LOST: &str = "Redis has lost what it had acknowledged";

/// Number of sealed workers of which each shard says with its progress what their last push was.
const SEALED_KEPT: u64 = 256;

impl Job {
    /// A shard is there without the job's parameters.
    pub(super) fn parameters_missing(&mut self, shard: ShardIndex, why: &str, turn: &mut Turn<'_>) {
        let reason = format!("parameter shard {shard} has lost the job's parameters: {why}");
        self.parameters_lost(&reason, turn);
    }

    /// A shard could not do what the job needs.
    pub(super) fn shard_failed(&mut self, code: FaultCode, reason: String, turn: &mut Turn<'_>) {
        match code {
            FaultCode::PARAMETERS_LOST => self.parameters_lost(&reason, turn),
            FaultCode::CLOSED => self.closed_unknown("a shard", turn),
            FaultCode::STORE_LOST => self.store_lost(&reason, turn),
            FaultCode::CHECKPOINT_UNUSABLE => self.checkpoint_unusable(code, reason, turn),
            // For so long as it was waited for: an older one may be readable, and where none is they are kept
            // for a job that goes on once the disk is back.
            FaultCode::SHARD_IO if self.opens_checkpoint() => self.checkpoint_unusable(code, reason, turn),
            _ if self.goes_back_after(code) => self.parameters_lost(&reason, turn),
            _ => self.end(Phase::Failed { code, reason }, turn),
        }
    }

    /// Whether a shard that refuses an order has something else than what is known here: both know what a
    /// checkpoint holds. One that is refused as well, before anything was done with it, would be refused
    /// forever.
    fn goes_back_after(&self, code: FaultCode) -> bool {
        code == FaultCode::ORDER_REFUSED && self.has_advanced() && self.may_go_back()
    }

    /// Whether a shard that refuses a push has something else than its worker knows of, as one that came back
    /// as it was a while ago. Where it is refused again before there is a newer checkpoint, it may be refused
    /// at the same place each time.
    pub(super) fn goes_back_after_push(&self, code: FaultCode) -> bool {
        let newest = self.state.checkpoints.newest().map(|checkpoint| checkpoint.number);
        let is_first = self.state.generation.number() == 1;
        self.goes_back_after(code) && (is_first || self.state.checkpoints.restored != newest)
    }

    /// Whether anything was done in the present generation of the parameters.
    fn has_advanced(&self) -> bool {
        self.state.closed > 0 || self.members.values().any(|member| member.finished > 0)
    }

    /// What a shard that is asked from now on must have: pushes of those who take part, and of those who have
    /// left and are still known to every shard.
    pub fn floor(&self) -> ProgressFloor {
        let sealing = self.members.values().filter(|m| matches!(m.membership, Membership::Sealing { .. }));
        // Each shard may have sealed so many since, in whatever order they came there.
        let begun = self.state.seals + sealing.count() as u64;
        let pushes = self.members.iter().filter_map(|(worker, member)| {
            let kept = || member.seal.filter(|seal| begun - seal.complete_before <= SEALED_KEPT);
            let known = match &member.membership {
                Membership::Preparing => return None,
                Membership::Active => member.finished,
                // A shard may have sealed it, and all others that go, before any answer is heard.
                Membership::Sealing { .. } => kept().map(|_| member.finished)?,
                Membership::Gone => kept()?.applied,
            };
            Some((*worker, known))
        });
        ProgressFloor { closed: self.state.closed, pushes: pushes.collect() }
    }

    /// A shard says how far it came with a job. What it did was ordered, and an order is committed before it
    /// is given: a shard that is ahead of the store proves that the store has gone back. One that is
    /// behind `floor`, which was known before it was asked, has gone back itself.
    pub(super) fn attached(
        &mut self,
        shard: ShardIndex,
        progress: &ShardProgress,
        floor: &ProgressFloor,
        turn: &mut Turn<'_>,
    ) {
        if let Some(what) = self.unknown_of(progress) {
            self.store_lost(&format!("shard {shard} has {what}"), turn);
        } else if let Some(what) = behind(floor, progress) {
            let why = format!("it came back with an older state, {what}");
            self.parameters_missing(shard, &why, turn);
        } else if let Some(what) = self.closed_by_another_order(progress) {
            self.store_lost(&format!("shard {shard} has {what}"), turn);
        } else {
            // A roster of clocks is what the members are: one that nobody knows any more is replaced, now or
            // once all shards have opened the job.
            self.state.clock_revision = self.state.clock_revision.max(progress.clock_revision);
            if self.unattached.remove(&shard) && self.unattached.is_empty() {
                self.clocks_changed(turn.effects);
                turn.effects.extend(self.checkpoint_order());
                self.grant_queue.everybody = true;
            }
        }
    }

    /// It was loaded: nothing is granted before every shard has told how far it is.
    pub(super) fn await_attachment(&mut self) {
        if self.state.phase == Phase::Running {
            self.unattached = (0..self.state.shards).map(ShardIndex).collect();
        }
    }

    /// What a shard has done, or was told to do, that is not known here, in words. Cost O(members +
    /// supersteps).
    fn unknown_of(&self, progress: &ShardProgress) -> Option<String> {
        let ahead = progress.watermarks.iter().find_map(|(worker, applied)| {
            let known = self.granted_to(*worker)?;
            (*applied > known).then_some((worker, applied, known))
        });
        if let Some((worker, applied, known)) = ahead {
            return Some(format!("applied push {applied} of {worker}, of whom {known} are known there"));
        }
        if let Some(closed) = self.unknown_closes(progress.closed) {
            return Some(closed);
        }
        let order = progress.orders.iter().find(|order| self.is_unknown(order))?;
        Some(format!("another order for barrier {} than is known there", order.superstep))
    }

    /// What shows that a shard has closed a barrier that has more pushes before it, as far as is known, in
    /// words: it was shortened since.
    fn closed_by_another_order(&self, progress: &ShardProgress) -> Option<String> {
        let mut closed = self.supersteps.iter().take_while(|(superstep, _)| superstep.0 < progress.closed);
        closed.find_map(|(superstep, record)| {
            record.roster.iter().find_map(|(worker, entry)| {
                let (last, applied) = (entry.last?, *progress.watermarks.get(worker)?);
                (applied < last).then(|| {
                    format!("closed barrier {superstep} behind push {applied} of {worker}, which comes behind push {last} there")
                })
            })
        })
    }

    /// What shows that so many barriers cannot be closed, as far as is known, in words: a shard closes what
    /// it was told to.
    fn unknown_closes(&self, closed: u64) -> Option<String> {
        let begun = self.state.next_superstep.0;
        if closed > begun {
            return Some(format!("closed {closed} barriers, {begun} are known there"));
        }
        let mut closed_ones = self.supersteps.iter().take_while(|(superstep, _)| superstep.0 < closed);
        let (superstep, _) = closed_ones.find(|(_, record)| !record.is_ordered())?;
        Some(format!("closed barrier {superstep}, which is not ordered there"))
    }

    /// A shard has closed a barrier, and all before it.
    pub(super) fn shard_closed(&mut self, shard: ShardIndex, barrier: ClosedBarrier, turn: &mut Turn<'_>) {
        match self.unknown_closes(barrier.superstep.0 + 1) {
            Some(what) => self.store_lost(&format!("shard {shard} has {what}"), turn),
            None => self.note_closed(shard, barrier, turn.now_us),
        }
    }

    /// Whether this order of a barrier was never given, as far as is known. What is closed by now may be
    /// forgotten.
    fn is_unknown(&self, order: &BarrierOrder) -> bool {
        let Some(record) = self.supersteps.get(&order.superstep) else {
            return order.superstep >= self.state.next_superstep;
        };
        let is_same = || record.phase != SuperstepPhase::Ordered || record.order_roster() == order.roster;
        order.revision > record.revision || order.revision == record.revision && !is_same()
    }

    /// Iterations that a worker has been given; `None` if it may have taken part and is forgotten. Those that
    /// are forgotten were gone, and came before all that are kept as gone; anybody else who is not known
    /// was never given anything. Cost O(members).
    pub(super) fn granted_to(&self, worker: Incarnation) -> Option<u64> {
        if let Some(member) = self.members.get(&worker) {
            return Some(member.granted);
        }
        let gone_later = self.members.range(worker..).filter(|(_, member)| member.is_gone()).count();
        (gone_later < GONE_WORKERS_KEPT).then_some(0)
    }

    /// A shard has closed the parameters of this job, which is ordered once it has ended and that is
    /// committed. What it has come to is not done again unasked.
    pub(super) fn closed_unknown(&mut self, who: &str, turn: &mut Turn<'_>) {
        let reason = format!("{LOST}: {who} has closed the job, which had ended before");
        self.end(Phase::Failed { code: FaultCode::STORE_LOST, reason }, turn);
    }

    /// The store does not know what somebody else proves to have happened: the job goes back to the newest
    /// checkpoint that the store knows, or to its beginning while that knows of none, as where a shard
    /// has lost parameters.
    pub(super) fn store_lost(&mut self, what: &str, turn: &mut Turn<'_>) {
        let reason = format!("{LOST}: {what}");
        if self.may_go_back() {
            let age_s = self.age_s(turn.now_us);
            self.state.checkpoints.expect_unknown(age_s);
            return self.parameters_lost(&reason, turn);
        }
        self.end(Phase::Failed { code: FaultCode::STORE_LOST, reason }, turn);
    }

    /// Whether it is open yet what becomes of a run of this job that a shard holds: the store may have gone
    /// back behind it. The next generation takes its place, or is refused since too much would be thrown
    /// away.
    pub(super) fn may_need(&self, run: &RunId) -> bool {
        let is_ahead = || self.state.checkpoints.known_through.is_some() || run.follows(&self.run());
        run.is_of_same_job(&self.run()) && !self.state.phase.is_over() && is_ahead()
    }

    /// Whether nobody needs a run that a shard holds: it is one of this job, which is over, or goes on in a
    /// later generation. What the store has lost of it, somebody may yet bring back.
    pub(super) fn is_done_with(&self, run: &RunId) -> bool {
        run.is_of_same_job(&self.run()) && !run.follows(&self.run()) && !self.ended_with_store()
    }

    /// Whether it has ended because the store had gone back: a newer copy of that knows how it goes on with
    /// what the shards hold.
    pub(super) fn ended_with_store(&self) -> bool {
        let went_back = [FaultCode::STORE_LOST, FaultCode::NEWER_CHECKPOINT];
        matches!(&self.state.phase, Phase::Failed { code, .. } if went_back.contains(code))
    }

    /// How long ago it was submitted.
    pub(super) fn age_s(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.state.submitted_us) / 1_000_000
    }
}

/// What a shard had and has no more, in words.
fn behind(floor: &ProgressFloor, ShardProgress { closed, watermarks, .. }: &ShardProgress) -> Option<String> {
    if *closed < floor.closed {
        return Some(format!("in which {closed} of {} closed barriers are closed", floor.closed));
    }
    let applied = |worker| watermarks.get(worker).copied().unwrap_or(0);
    let (worker, last) = floor.pushes.iter().find(|(worker, last)| applied(worker) < **last)?;
    Some(format!("in which {} of {last} pushes of {worker} are applied", applied(worker)))
}
