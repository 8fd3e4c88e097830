//! Workers that a training lets go before it is over, so that others have them: all of one that is paused, and
//! those that one does not need of which only the shards have something left to do, where they cannot do it
//! now, as on a full disk, or take long. The shards keep the parameters meanwhile.

use super::{
    best_parameters::HandedOn,
    departures::Departure,
    effects::Effect,
    job::Job,
    records::{Phase, TaskBody},
    state_machine::Core,
    turn::Turn,
};
use crate::{
    graph::TrainingTaskState,
    ids::{Incarnation, JobId},
};

/// For so long the shards may write alone before the workers go: what runs on a worker beside the training is
/// begun anew elsewhere when it goes, and most snapshots are written sooner.
const SHARDS_ALONE_MS: u64 = 10_000;

impl Core {
    /// Ends the session of a worker that goes on with nothing that it has. It registers again, and may serve
    /// other jobs then.
    pub(super) fn release_worker(&mut self, worker: Incarnation, reason: String, turn: &mut Turn<'_>) {
        self.worker_gone(worker, Departure::Dismissed, &reason, turn);
        turn.effects.push(Effect::DismissWorker { worker, reason });
    }

    /// Lets the workers go that these trainings have no use for now, once they have done what they were given:
    /// the seal of the shards holds for what they did before.
    pub(super) fn release_unneeded(&mut self, touched: &[JobId], turn: &mut Turn<'_>) {
        let touched = touched.iter().filter_map(|id| self.jobs.get(id));
        let released: Vec<(Incarnation, &'static str)> =
            touched.flat_map(|job| job.released(turn.now_us)).collect();
        for (worker, reason) in released {
            self.release_worker(worker, reason.to_owned(), turn);
        }
    }
}

impl Job {
    /// Workers that it lets go, and why: who prepares itself at once, the others when they have done what they
    /// were given.
    fn released(&self, now_us: u64) -> Vec<(Incarnation, &'static str)> {
        let (needed, reason) = match self.needed_behind_training() {
            _ if self.state.paused => (0, "its job is paused"),
            Some(needed) if self.keeps_shards_busy(now_us) => (needed, "its job needs it no more"),
            _ => return Vec::new(),
        };
        // The shards copy what is at rest before anybody is sealed.
        let copied = !self.state.checkpoints.rests() && !self.state.evaluations.keeps();
        let rests = copied && self.state.phase == Phase::Running && self.is_at_rest();
        let (at_work, free): (Vec<_>, Vec<_>) =
            self.active().partition(|worker| !rests || !self.leased_to(*worker).is_empty());
        let unneeded =
            free.into_iter().chain(self.preparing()).skip((needed as usize).saturating_sub(at_work.len()));
        unneeded.map(|worker| (worker, reason)).collect()
    }

    /// How many workers a training needs whose parameters are what it hands on: one where something is still
    /// to be evaluated, now or behind what the shards write. `None`: it trains, or evaluates what it has come
    /// to, which all share.
    pub(super) fn needed_behind_training(&self) -> Option<u32> {
        let evaluations = &self.state.evaluations;
        let settles = || {
            self.end_was_tried() || self.is_writing_its_end() || evaluations.handed_on != HandedOn::Undecided
        };
        let is_trained = self.state.trained_us.is_some()
            || self.state.cursor.is_exhausted() && !evaluations.rests() && settles();
        let mut tasks = self.tasks.values();
        is_trained.then(|| {
            let is_open = tasks.any(|task| task.body == TaskBody::Evaluate && !task.state.is_final());
            u32::from(is_open || self.owes_test())
        })
    }

    /// Whether the shards could not write what a training that is over waits for, or are at it for long.
    fn keeps_shards_busy(&self, now_us: u64) -> bool {
        let done =
            self.tasks.values().filter(|task| task.body.is_node() && task.state == TrainingTaskState::Done);
        let newest_ms = done.filter_map(|task| task.ended_ms).max();
        !self.state.retries.is_empty()
            || newest_ms.is_some_and(|ended_ms| (now_us / 1000).saturating_sub(ended_ms) >= SHARDS_ALONE_MS)
    }
}
