//! What may be lost outside the core: a shard's parameters, or what the store had acknowledged. A job that lost
//! something goes back to a checkpoint, or ends and says so; it never goes on with counts that are wrong.

use std::collections::BTreeMap;

use super::{
    commit::GONE_WORKERS_KEPT, job::Job, member::Membership, records::Phase, shard_protocol::ProgressFloor,
    turn::Turn,
};
use crate::{
    fault_code::FaultCode,
    ids::{Incarnation, ShardIndex},
};

/// Number of sealed workers whose last push each shard keeps.
const SEALED_KEPT: u64 = 256;

/// Code of a job that ended because the store lost what it had acknowledged.
const STORE_LOST: FaultCode = FaultCode::new("E226");

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
            FaultCode::CHECKPOINT_UNUSABLE => self.checkpoint_unusable(code, reason, turn),
            // For so long as it was waited for: an older one may be readable, and where none is they are kept for a job that
            // goes on once the disk is back.
            FaultCode::SHARD_IO if self.opens_checkpoint() => self.checkpoint_unusable(code, reason, turn),
            _ => self.end(Phase::Failed { code, reason }, turn),
        }
    }

    /// What a shard that is asked from now on must have: pushes of those who take part, and of those who have left and are
    /// still known to every shard.
    pub fn floor(&self) -> ProgressFloor {
        let sealing = self.members.values().filter(|m| matches!(m.membership, Membership::Sealing { .. }));
        // Each shard may have sealed so many since, in whatever order they came there.
        let begun = self.state.seals + sealing.count() as u64;
        let pushes = self.members.iter().filter_map(|(worker, member)| {
            let known = match &member.membership {
                Membership::Preparing => return None,
                Membership::Active | Membership::Sealing { .. } => member.finished,
                Membership::Gone => {
                    member.seal.filter(|seal| begun - seal.complete_before <= SEALED_KEPT)?.applied
                }
            };
            Some((*worker, known))
        });
        ProgressFloor { closed: self.state.closed, pushes: pushes.collect() }
    }

    /// A shard says how far it came with a job. What it applied was granted, and a grant is committed before it is given: a
    /// shard that is ahead of the store proves that the store has gone back. One that is behind `floor`, which was known
    /// before it was asked, has gone back itself.
    pub(super) fn attached(
        &mut self,
        shard: ShardIndex,
        closed: u64,
        watermarks: &BTreeMap<Incarnation, u64>,
        floor: &ProgressFloor,
        turn: &mut Turn<'_>,
    ) {
        let ahead = watermarks.iter().find_map(|(worker, applied)| {
            let known = self.granted_to(*worker)?;
            (*applied > known).then_some((worker, applied, known))
        });
        if let Some((worker, applied, known)) = ahead {
            let what = format!(
                "shard {shard} has applied push {applied} of {worker}, of whom {known} are known there"
            );
            self.store_lost(&what, turn);
        } else if closed > self.state.next_superstep.0 {
            let known = self.state.next_superstep;
            self.store_lost(
                &format!("shard {shard} has closed {closed} barriers, {known} are known there"),
                turn,
            );
        } else if let Some(what) = behind(floor, closed, watermarks) {
            let why = format!("it came back with an older state, {what}");
            self.parameters_missing(shard, &why, turn);
        }
    }

    /// Iterations that a worker has been given; `None` if it may have taken part and is forgotten. Those that are forgotten were gone,
    /// and came before all that are kept as gone; anybody else who is not known was never given anything. Cost O(members).
    pub(super) fn granted_to(&self, worker: Incarnation) -> Option<u64> {
        if let Some(member) = self.members.get(&worker) {
            return Some(member.granted);
        }
        let gone_later = self.members.range(worker..).filter(|(_, member)| member.is_gone()).count();
        (gone_later < GONE_WORKERS_KEPT).then_some(0)
    }

    /// A shard has closed the parameters of this job, which is ordered once it has ended and that is committed.
    pub(super) fn closed_unknown(&mut self, who: &str, turn: &mut Turn<'_>) {
        self.store_lost(&format!("{who} has closed the job, which had ended before"), turn);
    }

    /// Ends the job: the store does not know what somebody else proves to have happened.
    pub(super) fn store_lost(&mut self, what: &str, turn: &mut Turn<'_>) {
        let reason = format!("Redis has lost what it had acknowledged: {what}");
        self.end(Phase::Failed { code: STORE_LOST, reason }, turn);
    }
}

/// What a shard had and has no more, in words.
fn behind(floor: &ProgressFloor, closed: u64, watermarks: &BTreeMap<Incarnation, u64>) -> Option<String> {
    if closed < floor.closed {
        return Some(format!("in which {closed} of {} closed barriers are closed", floor.closed));
    }
    let applied = |worker| watermarks.get(worker).copied().unwrap_or(0);
    let (worker, last) = floor.pushes.iter().find(|(worker, last)| applied(worker) < **last)?;
    Some(format!("in which {} of {last} pushes of {worker} are applied", applied(worker)))
}
