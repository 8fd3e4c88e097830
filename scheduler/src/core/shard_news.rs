//! What is heard of shards: one is served by another process, says what it holds, or has done what ends
//! something.

use super::{
    effects::{Effect, LastWeights},
    event::Happening,
    inputs::TaskFault,
    job::Job,
    panics::Handling,
    records::Phase,
    shard_protocol::{HeldJob, PushProgress, SnapshotFile},
    state_machine::Core,
    turn::Turn,
};
use crate::ids::{Incarnation, RunId, ShardIndex};

impl Core {
    /// Another process serves a shard: those that read of a job's history see why it paused, and workers that
    /// did not reach a shard may reach this one.
    pub(super) fn shard_taken_over(&mut self, shard: ShardIndex, address: &str, now_us: u64) {
        self.end_exclusions_for_links();
        for (_, job) in self.jobs.live_mut().filter(|(_, j)| j.state.phase == Phase::Running) {
            job.tell(Happening::ShardTakenOver { shard, address: address.to_owned() }, now_us);
        }
    }

    /// A shard says what it holds: what nobody knows is set aside there, what is known to be over is dropped,
    /// what it should hold and does not is lost, and of the rest it is asked how far it is.
    pub(super) fn shard_holds(
        &mut self,
        shard: ShardIndex,
        asked_us: u64,
        held: &[HeldJob],
        turn: &mut Turn<'_>,
    ) {
        self.shard_is_back(shard, turn);
        let is_discarded = |run: &RunId| self.set_aside.is_discarded(run);
        let is_ours = |held: &&HeldJob| {
            (!held.closed || is_discarded(&held.run)) && !self.set_aside.contains(&held.run.job)
        };
        for HeldJob { run, .. } in held.iter().filter(is_ours) {
            let wanted = |j: &Job| j.is_run(run) && (!j.state.phase.is_over() || j.state.keeping);
            let weights = match self.jobs.get(&run.job) {
                Some(job) if wanted(job) || job.may_need(run) => continue,
                _ if is_discarded(run) => LastWeights::Discard,
                Some(job) if job.is_done_with(run) => LastWeights::Drop,
                // Of another job of that name as well: it is not known here what became of it.
                _ => LastWeights::SetAside,
            };
            turn.effects.push(Effect::CloseShards { run: run.clone(), weights });
        }
        let mut released = Vec::new();
        for (id, job) in self.jobs.live_mut() {
            let _handling = Handling(id);
            let opened_us = job.state.opened_us.or(job.state.started_us);
            let opened_before = opened_us.is_some_and(|opened_us| opened_us < asked_us);
            let holds = held.iter().find(|held| job.is_run(&held.run));
            let later = held.iter().find(|held| held.run.follows(&job.run()));
            let lies_elsewhere =
                holds.is_none() && later.is_none() && job.lies_elsewhere(shard, &self.state_dirs);
            if lies_elsewhere && (opened_before || job.state.phase == Phase::Opening) {
                if !job.awaits_state_dir(shard) {
                    released.extend(job.await_state_dir(shard, turn));
                }
                continue;
            }
            if job.state.phase != Phase::Running {
                continue;
            }
            match holds {
                Some(HeldJob { closed: false, .. }) => {
                    job.end_wait(shard, turn.now_us);
                    job.note_state_dir(shard, &self.state_dirs);
                    let (run, floor) = (job.run(), job.floor());
                    turn.effects.push(Effect::Attach { run, shard, floor });
                }
                Some(_) => job.closed_unknown(&format!("shard {shard}"), turn),
                None => match later {
                    Some(HeldJob { run, .. }) => {
                        let what =
                            format!("shard {shard} has generation {} of the parameters", run.generation);
                        job.store_lost(&what, turn);
                    }
                    None if opened_before && !job.awaits_state_dirs() => {
                        job.parameters_missing(shard, "its process was started again without them", turn);
                    }
                    // It is asked again once the directories of others are there.
                    None => {}
                },
            }
        }
        self.release_from_waiting(shard, released, turn);
    }

    /// The last weights of a run could not be written so far. Its job is over.
    pub(super) fn weights_delayed(&mut self, run: &RunId, reason: String) {
        if let Some(job) = self.jobs.get_mut(&run.job).filter(|job| job.is_run(run)) {
            job.weights_delayed(reason);
        }
    }

    /// The last weights of a run are written, or lost. Its job is over.
    pub(super) fn weights_kept(
        &mut self,
        run: &RunId,
        outcome: Result<SnapshotFile, TaskFault>,
        turn: &mut Turn<'_>,
    ) {
        if let Some(job) = self.jobs.get_mut(&run.job).filter(|job| job.is_run(run)) {
            job.weights_kept(outcome, turn);
        }
    }

    /// A shard takes no more pushes of a worker.
    pub(super) fn sealed(
        &mut self,
        run: &RunId,
        worker: Incarnation,
        shard: ShardIndex,
        progress: PushProgress,
        turn: &mut Turn<'_>,
    ) {
        self.with_open_job(run, |job| job.sealed(worker, shard, progress, turn));
        // It may have registered again meanwhile.
        self.note_if_idle(worker);
    }
}
