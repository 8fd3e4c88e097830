//! A shard counts as lost. Its jobs wait for it, as long as it takes and without workers. What the shard has when it is there again
//! decides how each goes on: where it was, from its newest checkpoint, from its begin, or not at all.

use serde::{Deserialize, Serialize};

use super::{
    event::Happening, job::Job, panics::Handling, records::Phase, state_machine::Core, turn::Turn, utc::utc,
};
use crate::{
    graph::{TaskEvent, TaskId},
    ids::{Incarnation, ShardIndex},
};

/// A shard that a job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostShard {
    /// Since when it counts as lost, in epoch µs.
    pub since_us: u64,
    /// Why, in words.
    pub reason: String,
}

impl Core {
    pub(super) fn shard_gone(&mut self, shard: ShardIndex, reason: &str, turn: &mut Turn<'_>) {
        let opened = |j: &Job| matches!(j.state.phase, Phase::Opening | Phase::Running);
        let mut released = Vec::new();
        for (id, job) in self.jobs.live_mut().filter(|(_, job)| opened(job)) {
            let _handling = Handling(id);
            released.extend(job.await_shard(shard, reason, turn));
        }
        for worker in released {
            self.release_worker(worker, format!("its job waits for parameter shard {shard}"), turn);
        }
    }

    /// A process serves the shard: it will say what it has of the jobs that waited for it.
    pub(super) fn shard_is_back(&mut self, shard: ShardIndex, now_us: u64) {
        for (_, job) in self.jobs.live_mut() {
            let Some(lost) = job.state.lost_shards.remove(&shard) else { continue };
            job.changes.job_state = true;
            // What it waited is no training, as a pause is none.
            if !job.awaits_shards() && job.state.trained_before_pause_us.is_none() {
                let waited_us = now_us.saturating_sub(lost.since_us);
                job.state.unled_us = job.state.unled_us.saturating_add(waited_us);
            }
        }
    }
}

impl Job {
    /// Returns the workers for which it has no use until the shard is back.
    fn await_shard(&mut self, shard: ShardIndex, reason: &str, turn: &mut Turn<'_>) -> Vec<Incarnation> {
        if self.state.lost_shards.contains_key(&shard) {
            return Vec::new();
        }
        let (since_us, reason) = (turn.now_us, reason.to_owned());
        self.tell(Happening::ShardLost { shard, reason: reason.clone() }, since_us);
        self.state.lost_shards.insert(shard, LostShard { since_us, reason });
        self.changes.job_state = true;
        self.wait_for(self.describe_lost_shards());
        let released: Vec<Incarnation> = self.present().collect();
        for task in released.iter().flat_map(|worker| self.leased_to(*worker)).collect::<Vec<_>>() {
            // No evaluation has failed because a shard is away.
            if matches!(task, TaskId::Node(_) | TaskId::Evaluation { .. }) {
                self.apply(&task, &TaskEvent::Retried, turn.now_us);
            }
        }
        released
    }

    /// Whether it goes on only when some shard is back.
    pub(super) fn awaits_shards(&self) -> bool {
        !self.state.lost_shards.is_empty()
    }

    /// Which shards it waits for, since when, and what to do about it, in words.
    pub(super) fn describe_lost_shards(&self) -> Option<String> {
        let one = |(shard, lost): (&ShardIndex, &LostShard)| {
            format!(
                "parameter shard {shard}, which counts as lost since {} ({})",
                utc(lost.since_us),
                lost.reason
            )
        };
        let named: Vec<String> = self.state.lost_shards.iter().map(one).collect();
        let then = match self.state.checkpoints.newest() {
            Some(_) => "goes on, if need be from its newest checkpoint",
            None if self.may_go_back() => "goes on, if need be from its begin, as it has no checkpoint yet",
            None => {
                "goes on if the shard still has its parameters, else it fails, as it keeps no checkpoints"
            }
        };
        (!named.is_empty()).then(|| {
            format!(
                "{}: start it on its old state directory, and the job {then}; `syncline cancel {}` gives it up",
                named.join(", and "),
                self.id()
            )
        })
    }
}
