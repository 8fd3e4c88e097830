//! A shard counts as lost. Its jobs wait for it, as long as it takes and without workers. What the shard has
//! when it is there again decides how each goes on: where it was, from its newest checkpoint, from its
//! beginning, or not at all.

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
    /// It is there, without the state directory that it had, which is waited for until then, in epoch µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<u64>,
    /// For how long the job had trained when it began to wait, in µs; `None` if it had not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_us: Option<u64>,
}

impl Core {
    pub(super) fn shard_gone(&mut self, shard: ShardIndex, reason: &str, turn: &mut Turn<'_>) {
        let opened = |j: &Job| matches!(j.state.phase, Phase::Opening | Phase::Running);
        let mut released = Vec::new();
        for (id, job) in self.jobs.live_mut().filter(|(_, job)| opened(job)) {
            let _handling = Handling(id);
            released.extend(job.await_shard(shard, reason.to_owned(), None, turn));
        }
        self.release_from_waiting(shard, released, turn);
    }

    pub(super) fn release_from_waiting(
        &mut self,
        shard: ShardIndex,
        workers: Vec<Incarnation>,
        turn: &mut Turn<'_>,
    ) {
        for worker in workers {
            self.release_worker(worker, format!("its job waits for parameter shard {shard}"), turn);
        }
    }

    /// A process serves the shard: it will say what it has of the jobs that waited for it.
    pub(super) fn shard_is_back(&mut self, shard: ShardIndex, turn: &mut Turn<'_>) {
        for (_, job) in self.jobs.live_mut() {
            let awaited_dir = job.awaits_state_dir(shard);
            if awaited_dir && job.lies_elsewhere(shard, &self.state_dirs) {
                continue;
            }
            job.end_wait(shard, turn.now_us);
            // What was ordered meanwhile, the shard could not do.
            if awaited_dir && job.state.phase == Phase::Opening {
                turn.effects.push(job.open_order());
            }
        }
    }
}

impl Job {
    /// Returns the workers for which it has no use until the shard is back, or until `until_us`.
    pub(super) fn await_shard(
        &mut self,
        shard: ShardIndex,
        reason: String,
        until_us: Option<u64>,
        turn: &mut Turn<'_>,
    ) -> Vec<Incarnation> {
        if self.state.lost_shards.contains_key(&shard) && !self.awaits_state_dir(shard) {
            return Vec::new();
        }
        let since_us = turn.now_us;
        self.tell(Happening::ShardLost { shard, reason: reason.clone() }, since_us);
        let lost = self.state.lost_shards.values();
        let trained_us = lost.filter_map(|lost| lost.trained_us).min().or_else(|| self.training_us(since_us));
        self.state.lost_shards.insert(shard, LostShard { since_us, reason, until_us, trained_us });
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

    /// It waits for this shard no more.
    pub(super) fn end_wait(&mut self, shard: ShardIndex, now_us: u64) {
        let Some(lost) = self.state.lost_shards.remove(&shard) else { return };
        self.changes.job_state = true;
        // What it waited is no training, whatever came within the wait: a pause, or time without an engine.
        if let Some(trained_us) = lost.trained_us.filter(|_| !self.awaits_shards()) {
            self.set_trained(trained_us, now_us);
        }
    }

    /// Whether it goes on only when some shard is back.
    pub(super) fn awaits_shards(&self) -> bool {
        !self.state.lost_shards.is_empty()
    }

    /// Which shards it waits for, since when, and what to do about it, in words.
    pub(super) fn describe_lost_shards(&self) -> Option<String> {
        let one =
            |(shard, LostShard { since_us, reason, until_us, .. }): (&ShardIndex, &LostShard)| match until_us
            {
                None => format!(
                    "parameter shard {shard}, which counts as lost since {} ({reason})",
                    utc(*since_us)
                ),
                Some(until_us) => format!(
                    "parameter shard {shard}, since {}, until {} at most ({reason})",
                    utc(*since_us),
                    utc(*until_us)
                ),
            };
        let named: Vec<String> = self.state.lost_shards.iter().map(one).collect();
        let then = match self.state.checkpoints.newest() {
            Some(_) => "goes on, if need be from its newest checkpoint",
            None if self.may_go_back() => {
                "goes on, if need be from its beginning, as it has no checkpoint yet"
            }
            None => {
                "goes on if the shard still has its parameters, else it fails, as it keeps no checkpoints"
            }
        };
        (!named.is_empty()).then(|| {
            format!(
                "{}: once its process has ended, start it on its old state directory, and the job {then}; `syncline cancel {}` gives it up",
                named.join(", and "),
                self.id()
            )
        })
    }
}
