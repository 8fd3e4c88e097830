//! Closing barriers: the moment at which a version comes into being.

use std::{
    collections::TryReserveError,
    num::NonZeroUsize,
    panic::resume_unwind,
    sync::{Arc, Mutex, atomic::Ordering},
    thread,
};

use syncline_rpc::{BarrierOrder, ClosedBarrier, ShardFault, threads::lock};
use syncline_scheduler::ids::EngineEpoch;
use tokio::sync::watch;
use tracing::warn;

use super::{JobShard, chunk::Chunk, job_state::JobState, standby_op::StandbyOp};

/// Orders that may wait for their superstep; the engine sends one or two ahead.
const MAX_OPEN_ORDERS: usize = 4096;
/// Below this many chunks per thread, starting a thread costs more than it saves.
const CHUNKS_PER_THREAD: usize = 8;

impl JobShard {
    /// Adds a barrier order, or amends the roster of one.
    pub fn add_barrier(&self, epoch: EngineEpoch, order: BarrierOrder) -> Result<(), ShardFault> {
        let _changing = self.standby_log.enter();
        let mut state = self.lock_running()?;
        state.fence(epoch)?;
        if state.orders.len() >= MAX_OPEN_ORDERS {
            return Err(ShardFault::Invalid { what: format!("{MAX_OPEN_ORDERS} barriers are open already") });
        }
        if !(order.learning_rate.is_finite() && order.learning_rate >= 0.0) {
            let what = format!("learning_rate = {} in a barrier order", order.learning_rate);
            return Err(ShardFault::Invalid { what });
        }
        self.standby_log.record(|| StandbyOp::Barrier { epoch, order: order.clone() }.entry());
        state.add_order(order);
        self.close_barriers(&mut state);
        Ok(())
    }

    /// Barriers closed beyond the first `seen`, and whether orders for further ones are here.
    pub fn closed_since(
        &self,
        epoch: EngineEpoch,
        seen: u64,
    ) -> Result<(Vec<ClosedBarrier>, bool), ShardFault> {
        let mut state = self.lock_running()?;
        state.fence(epoch)?;
        Ok((state.closed_since(seen), !state.orders.is_empty()))
    }

    /// Tells when something has moved; subscribe before looking.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed_async.subscribe()
    }

    /// Closes every barrier whose turn it is. The state stays locked meanwhile, so nobody sees a half-made
    /// version.
    pub(super) fn close_barriers(&self, state: &mut JobState) {
        let before = state.closed;
        while let Some(order) = state.next_to_close() {
            let _busy = self.events.mark_busy();
            // Without the other shards' sums it closes when the last of them comes in.
            let Some(clip) = self.clip(state, &order) else { break };
            if self.accumulated.swap(false, Ordering::Acquire) {
                self.close_chunks(state, &order, clip);
                state.round_version = state.closed + 1;
            }
            // What was pinned until a copy was whole came with it.
            if order.pin && !self.catch_up.is_on() {
                self.pin(state);
            }
            state.record_close();
        }
        if state.closed != before {
            // Also where no gradient came, and so no sum of its own: the other shards tell theirs.
            state.norms.prune(state.closed);
            self.standby_log.mark_close();
            self.notify();
        }
    }

    /// Keeps a copy of the values as the version that is closed now. Where there is no memory for one, that
    /// version is not pinned: what needs it fails, and not this process with all its jobs.
    fn pin(&self, state: &mut JobState) {
        let version = state.closed + 1;
        // First of all: only one is kept, and both may be more than there is memory for.
        state.pinned = None;
        let copied = self.check_room(self.bytes()).and_then(|()| Ok(self.copy_values()?));
        match copied {
            Ok(values) => state.pinned = Some((version, Arc::new(values))),
            Err(error) => warn!(job = %self.job(), version, %error, "no memory to pin a version"),
        }
    }

    /// Lets what was pushed into the round become new values.
    fn close_chunks(&self, state: &mut JobState, order: &BarrierOrder, clip: f64) {
        let (rule, rate) = (order.rule, order.learning_rate);
        if self.tables.is_some() {
            self.close_rows(state, rule, rate, clip);
        } else {
            self.prepare_change();
            self.map_chunks(|index, chunk| {
                if self.catch_up.has_in_copy(index as u32) {
                    return;
                }
                self.change(index, &mut lock(chunk), |chunk, to| {
                    chunk.close_round(self.rules.of_chunk(index), rule, rate, clip, to);
                });
            });
        }
    }

    /// Everything held here, chunk by chunk.
    pub(crate) fn copy_values(&self) -> Result<Vec<f32>, TryReserveError> {
        let mut values = Vec::new();
        values.try_reserve_exact(self.range().len() as usize)?;
        for chunk in &self.chunks {
            values.extend_from_slice(lock(chunk).values());
        }
        Ok(values)
    }

    /// What `work` makes of every chunk, in their order; on several threads if there are enough of them.
    pub(super) fn map_chunks<T: Send>(&self, work: impl Fn(usize, &Mutex<Chunk>) -> T + Sync) -> Vec<T> {
        let chunks: Vec<(usize, &Mutex<Chunk>)> = self.chunks.iter().enumerate().collect();
        map_parallel(&chunks, chunks.len(), |(index, chunk)| work(*index, chunk))
    }
}

/// What `work` makes of each of them, in their order; on several threads if it is as much work as enough
/// whole chunks are.
pub(super) fn map_parallel<I: Sync, T: Send>(
    items: &[I],
    whole_chunks: usize,
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(whole_chunks / CHUNKS_PER_THREAD);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let work = &work;
    thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(threads));
        let run = |part: &'_ [I]| part.iter().map(work).collect::<Vec<T>>();
        let start = |part| (part, thread::Builder::new().spawn_scoped(scope, move || run(part)));
        let running: Vec<_> = parts.map(start).collect();
        let results = running.into_iter().flat_map(|(part, started)| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system gives no thread. Half of a version must not be left: this one does it.
            Err(_) => run(part),
        });
        results.collect()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use syncline_rpc::OpenJob;
    use syncline_scheduler::{
        ids::{ContentDigest, Generation, Incarnation, RunId, ShardIndex, Superstep},
        spec::{ElementRange, Layout, Optimizer},
        sync::RoundRule,
    };

    use super::*;
    use crate::{shard::ReadCondition, waiting::until};

    const EPOCH: EngineEpoch = EngineEpoch(1);

    /// A barrier that waits for nobody.
    pub(in crate::shard) fn barrier(superstep: u64, pin: bool) -> BarrierOrder {
        let (superstep, rule) = (Superstep(superstep), RoundRule::Optimizer);
        BarrierOrder { superstep, revision: 0, roster: [].into(), rule, learning_rate: 1.0, pin }
    }

    #[test]
    fn a_version_that_there_is_no_memory_to_pin_is_not_pinned_and_the_job_goes_on() {
        let order = OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(0),
            shards: vec![String::new()],
            layout: Layout::default(),
            optimizer: Optimizer::sgd(),
            clip_norm: None,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let huge = ElementRange { start: 0, end: 1 << 60 };
        let job = JobShard::opened(&order, huge, Vec::new(), JobState::new(EPOCH));
        for order in [barrier(0, true), barrier(1, false)] {
            job.add_barrier(EPOCH, order).unwrap();
        }
        let read =
            |condition| job.wait_readable(Incarnation(1), condition, || true).map(|grant| grant.version);
        assert_eq!(read(ReadCondition::Pinned(1)).unwrap_err().code(), "E407");
        assert_eq!(read(ReadCondition::version(2)), Ok(2));
    }

    #[test]
    fn the_version_that_was_pinned_goes_before_the_next_one_is_copied() {
        let job = JobShard::of_values(Generation(1), &[1.0, 2.0]);
        job.add_barrier(EPOCH, barrier(0, true)).unwrap();
        let pinned =
            || lock(&job.state).pinned.as_ref().map(|(version, values)| (*version, Arc::downgrade(values)));
        let (_, first) = pinned().unwrap();
        thread::scope(|scope| {
            job.read_chunks(0, 1, |_| {
                scope.spawn(|| job.add_barrier(EPOCH, barrier(1, true)).unwrap());
                // The next one waits for its memory.
                until("the first version is given up", || first.strong_count() == 0);
            });
        });
        assert_eq!(pinned().unwrap().0, 2);
    }
}
