//! Whether workers reach the process that serves a shard. The engine may hear it while a network is cut
//! between it and all of them: then the standby serves, which nobody waits for else. A worker that alone does
//! not reach it has a bad link of its own.
//!
//! | of the workers | the shard is |
//! |---|---|
//! | one has lately done something, for which it needs all shards | reached |
//! | one is at something and has not said that it does not reach the shard | perhaps reached |
//! | one does not reach it, which it has tried lately | not reached, since that one has lost it, unless others say otherwise |
//!
//! Nobody goes back to a process that no worker has reached, before one has reached the other.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use syncline_rpc::UnreachedShard;
use syncline_scheduler::ids::{JobId, ShardIndex};

use super::{ReplicaProcess, SILENCE_SHOWN_AFTER, STANDBY_SILENCE, ShardSlots, Slot};
use crate::service::worker_status::WorkerStatus;

/// A worker that has not tried for so long may reach the shard by now. One that is excluded alone from all
/// trainings is offered them again in a few seconds, and has another answer half a minute later.
const TRIED_LATELY: Duration = Duration::from_secs(60);
/// Most workers that are named.
const NAMED: usize = 4;

/// What people are told of a shard that some worker does not reach.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::service) enum ReachNote {
    /// It stands in the way of every job.
    OfAll(String),
    /// Of the trainings of these workers.
    OfSome(BTreeMap<JobId, Vec<String>>),
}

impl<C: Clone> ShardSlots<C> {
    /// A worker has done something for which it needs all shards.
    pub(in crate::service) fn note_reached(&mut self, now: Instant) {
        for slot in self.slots.values_mut() {
            (slot.reached, slot.left_at) = (Some(now), None);
        }
    }

    /// The shards whose standby is to serve because no worker has reached the other process for `silence`.
    pub(in crate::service) fn unreached_failovers_due(
        &self,
        workers: &[WorkerStatus],
        now: Instant,
        silence: Duration,
    ) -> Vec<ShardIndex> {
        let due = |index: ShardIndex, slot: &Slot<C>| {
            let (Some(primary), Some(standby)) = (&slot.primary, &slot.standby) else { return false };
            let tells = |(worker, lost): (&WorkerStatus, &UnreachedShard)| {
                !worker.is_silent() && lost_for(lost) >= silence && is_tried(lost)
            };
            standby.could_replace(primary)
                && now.duration_since(standby.seen) <= STANDBY_SILENCE
                && slot.left_at.as_ref() != Some(&standby.hello.address)
                && now.duration_since(slot.reached.unwrap_or(self.begun)) > silence
                && !may_be_reached(workers)
                && cut_off(index, primary, workers).any(tells)
        };
        self.slots.iter().filter(|(index, slot)| due(**index, slot)).map(|(index, _)| *index).collect()
    }

    /// The standby of a shard is to serve because no worker reaches the process that serves it now.
    pub(in crate::service) fn note_unreached(&mut self, index: ShardIndex) {
        if let Some(slot) = self.slots.get_mut(&index) {
            slot.left_at = slot.primary.as_ref().map(|primary| primary.hello.address.clone());
        }
    }

    /// Which shards are not reached, by whom, since when, and what becomes of it.
    pub(in crate::service) fn reach_notes(
        &self,
        workers: &[WorkerStatus],
        now: Instant,
        silence: Duration,
    ) -> Vec<ReachNote> {
        let note = |(index, slot): (&ShardIndex, &Slot<C>)| {
            // Of one that is silent people are told that.
            let heard =
                |primary: &&ReplicaProcess<C>| now.duration_since(primary.seen) <= SILENCE_SHOWN_AFTER;
            let primary = slot.primary.as_ref().filter(heard)?;
            let of_shard = format!("parameter shard {index} at {}", primary.hello.address);
            let mut lost: Vec<(&WorkerStatus, &UnreachedShard)> = cut_off(*index, primary, workers).collect();
            lost.retain(|(_, lost)| lost_for(lost) > SILENCE_SHOWN_AFTER);
            let last_lost = lost.iter().map(|(_, lost)| lost_for(lost)).min()?;
            // What was done before the last of them lost it says nothing about the others now. A report of
            // that may have been held up on its way.
            let reached_since =
                slot.reached.is_some_and(|at| now.duration_since(at) + SILENCE_SHOWN_AFTER < last_lost);
            let tried = lost.iter().any(|(_, lost)| is_tried(lost));
            if reached_since || !tried || may_be_reached(workers) {
                let mut of_jobs = BTreeMap::<JobId, Vec<String>>::new();
                for (worker, lost) in lost {
                    let text = format!(
                        "worker {} does not reach {of_shard}, unlike others: see to its link, over which it tries again by itself; the others go on",
                        describe(worker, lost),
                    );
                    of_jobs.entry(lost.job.clone()).or_default().push(text);
                }
                return Some(ReachNote::OfSome(of_jobs));
            }
            let named = lost.iter().take(NAMED).map(|(worker, lost)| describe(worker, lost));
            let more = lost.len().saturating_sub(NAMED);
            let more = (more > 0).then(|| format!("{more} more"));
            Some(ReachNote::OfAll(format!(
                "no worker reaches {of_shard}, which the engine hears ({}); {}",
                named.chain(more).collect::<Vec<_>>().join(", "),
                slot.outlook(primary, silence)
            )))
        };
        self.slots.iter().filter_map(note).collect()
    }
}

impl<C> Slot<C> {
    /// What becomes of a shard that no worker reaches, in words.
    fn outlook(&self, primary: &ReplicaProcess<C>, silence: Duration) -> String {
        let mend = "see to the network between them, and the trainings go on by themselves";
        let silence_s = silence.as_secs_f64();
        match &self.standby {
            None => format!("it has no standby to take over: {mend}"),
            Some(standby) if self.left_at.as_ref() == Some(&standby.hello.address) => format!(
                "its standby at {} does not take over, as no worker reached the shard there before: {mend}",
                standby.hello.address
            ),
            Some(standby) => {
                let lacks = if standby.could_replace(primary) { "" } else { " it has all jobs and" };
                let address = &standby.hello.address;
                format!(
                    "its standby at {address} takes over once{lacks} that has been so for {silence_s:.0} s"
                )
            }
        }
    }
}

/// The workers that do not reach the process that serves a shard. What was told of another address says
/// nothing about this one.
fn cut_off<'a, C>(
    index: ShardIndex,
    primary: &'a ReplicaProcess<C>,
    workers: &'a [WorkerStatus],
) -> impl Iterator<Item = (&'a WorkerStatus, &'a UnreachedShard)> {
    let of_shard = move |lost: &&UnreachedShard| lost.shard == index && lost.address == primary.hello.address;
    workers.iter().filter_map(move |worker| Some((worker, worker.activity.unreached.iter().find(of_shard)?)))
}

/// Whether a worker is at something that has not failed so far. One that waits for a shard in vain says so.
fn may_be_reached(workers: &[WorkerStatus]) -> bool {
    workers.iter().any(|worker| worker.is_busy && worker.activity.unreached.is_empty())
}

fn lost_for(lost: &UnreachedShard) -> Duration {
    Duration::from_millis(lost.lost_ms)
}

fn is_tried(lost: &UnreachedShard) -> bool {
    Duration::from_millis(lost.tried_ms) <= TRIED_LATELY
}

fn describe(worker: &WorkerStatus, lost: &UnreachedShard) -> String {
    let (name, host, lost_s) = (&worker.about.name, &worker.about.host, lost.lost_ms / 1000);
    format!("{name} ({}) on {host} for {lost_s} s", worker.worker)
}
