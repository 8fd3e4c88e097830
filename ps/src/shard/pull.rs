//! Waiting for a version, and reading it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{ShardFault, threads::lock};
use syncline_scheduler::ids::Incarnation;

use super::{JobShard, job_state::JobState};

/// How often a blocked pull checks whether its caller is still there.
pub(super) const PRESENCE_INTERVAL: Duration = Duration::from_millis(500);

/// What a pull asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadCondition {
    /// The latest values, once this many barriers have closed and no worker's clock is below `min_clock`.
    /// With 0 no clock is asked for; with more, a roster of clocks must have come.
    Version {
        /// Barriers that must have closed; 0: the values as they are.
        closed: u64,
        /// Lowest that any worker's clock on the roster may be; 0: clocks do not matter.
        min_clock: u64,
    },
    /// Exactly this version, which a barrier order asked to keep, or which is the newest one while the job is
    /// at rest: that nothing is pushed then is up to who asks. It is never compressed.
    Pinned(u64),
}

impl ReadCondition {
    /// Whether it waits for a barrier.
    pub(crate) fn needs_close(self) -> bool {
        matches!(self, Self::Pinned(_) | Self::Version { closed: 1.., .. })
    }

    /// The latest values, once `closed` barriers have closed.
    pub const fn version(closed: u64) -> Self {
        Self::Version { closed, min_clock: 0 }
    }
}

/// What a pull will get.
#[derive(Debug, Clone)]
pub struct ReadGrant {
    /// Barriers closed.
    pub version: u64,
    /// Pushes that are in completely.
    pub pushes: u64,
    /// How long the pull waited for its condition; 0 if it was met at once.
    pub waited_us: u64,
    /// The copy, where a pinned version was asked for.
    pub pinned: Option<Arc<Vec<f32>>>,
}

impl JobShard {
    /// Waits until `condition` can be served to `worker`. `present` is asked twice a second whether the
    /// caller still waits; it may block.
    ///
    /// Ends with a fault when the job is closed, replaced by a newer generation, or `worker` is sealed.
    pub fn wait_readable(
        &self,
        worker: Incarnation,
        condition: ReadCondition,
        present: impl FnMut() -> bool,
    ) -> Result<ReadGrant, ShardFault> {
        let started = Instant::now();
        let mut waited = false;
        self.wait_until(present, |state| {
            if state.sealed.contains(worker) {
                return Err(ShardFault::Sealed { job: self.job().clone(), worker });
            }
            if !state.poll_condition(condition) {
                waited = true;
                return Ok(None);
            }
            let waited_us = if waited { started.elapsed().as_micros() as u64 } else { 0 };
            self.grant(state, condition, waited_us).map(Some)
        })
    }

    /// Waits until there is an `answer`, which is looked for whenever something has moved. `present` is asked
    /// twice a second whether the caller still waits; it may block, and nothing is locked meanwhile. Ends
    /// with a fault when the job is over.
    pub(super) fn wait_until<T>(
        &self,
        mut present: impl FnMut() -> bool,
        mut answer: impl FnMut(&mut JobState) -> Result<Option<T>, ShardFault>,
    ) -> Result<T, ShardFault> {
        let mut looked = Instant::now();
        loop {
            let seen = self.events.seen();
            // Whoever has it for long tells when it is over.
            if !seen.is_busy
                && let Some(answer) = answer(&mut *self.lock_running()?)?
            {
                return Ok(answer);
            }
            self.events.wait(seen, PRESENCE_INTERVAL);
            if looked.elapsed() >= PRESENCE_INTERVAL {
                if !present() {
                    return Err(ShardFault::Invalid { what: "the caller hung up".into() });
                }
                looked = Instant::now();
            }
        }
    }

    /// Waits while somebody works on all parameters, as long as the caller is `present`. False: it is not.
    #[must_use]
    pub fn wait_while_busy(&self, mut present: impl FnMut() -> bool) -> bool {
        loop {
            let seen = self.events.seen();
            if !seen.is_busy {
                return true;
            }
            self.events.wait(seen, PRESENCE_INTERVAL);
            if !present() {
                return false;
            }
        }
    }

    fn grant(
        &self,
        state: &JobState,
        condition: ReadCondition,
        waited_us: u64,
    ) -> Result<ReadGrant, ShardFault> {
        let (version, pushes) = (state.closed, state.pushes);
        match (condition, &state.pinned) {
            (ReadCondition::Version { .. }, _) => Ok(ReadGrant { version, pushes, waited_us, pinned: None }),
            (ReadCondition::Pinned(wanted), Some((version, values))) if *version == wanted => {
                Ok(ReadGrant { version: wanted, pushes, waited_us, pinned: Some(values.clone()) })
            }
            (ReadCondition::Pinned(wanted), _) if wanted == version => {
                Ok(ReadGrant { version, pushes, waited_us, pinned: None })
            }
            (ReadCondition::Pinned(wanted), _) => {
                Err(ShardFault::NotPinned { job: self.job().clone(), wanted })
            }
        }
    }

    /// Barriers closed so far.
    pub fn version(&self) -> u64 {
        lock(&self.state).closed
    }

    /// Newest version that the mean of a round went into; 0 if there was none. A pull that began at an older
    /// one may hold a mixture.
    pub fn round_version(&self) -> u64 {
        lock(&self.state).round_version
    }

    /// Lets `read` look at chunk `first` and at those behind it that nobody is working on, `most` of them at
    /// most. It must not block: pushes to these chunks wait for it.
    pub fn read_chunks<T>(&self, first: u32, most: usize, read: impl FnOnce(&[&[f32]]) -> T) -> T {
        let (first, rest) = (&self.chunks[first as usize], &self.chunks[first as usize + 1..]);
        let mut held = vec![lock(first)];
        held.extend(rest.iter().take(most.saturating_sub(1)).map_while(|chunk| chunk.try_lock().ok()));
        let values: Vec<&[f32]> = held.iter().map(|chunk| chunk.values()).collect();
        read(&values)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use syncline_rpc::BarrierOrder;
    use syncline_scheduler::{
        ids::{EngineEpoch, Generation, Superstep},
        sync::{PushMode, RoundRule},
    };

    use super::*;
    use crate::{
        shard::{PushHeader, PushedChunk},
        waiting::until,
    };

    #[test]
    fn who_waits_while_a_round_closes_is_still_asked_whether_it_does() {
        let (job, [pushes, pulls]) =
            (JobShard::of_values(Generation(1), &[1.0, 2.0]), [1, 2].map(Incarnation));
        let (mode, rule) = (PushMode::Accumulate, RoundRule::Optimizer);
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
        let (superstep, roster) = (Superstep(0), [(pushes, 1)].into());
        let order = BarrierOrder { superstep, revision: 0, roster, rule, learning_rate: 1.0, pin: false };
        job.add_barrier(EngineEpoch(1), order).unwrap();
        let chunk = PushedChunk { worker: pushes, seq: 1, index: 0, header: &header, share: None };
        job.apply(chunk, &[0.5, 0.5]).unwrap();
        thread::scope(|scope| {
            let (asked, asks) = mpsc::channel();
            let present = move || asked.send(()).is_ok();
            let waits = job.read_chunks(0, 1, |_| {
                scope.spawn(|| job.complete(pushes, 1, &header).unwrap());
                until("the push is being completed", || job.events.seen().is_busy);
                let (pulling, resuming) = (present.clone(), present);
                let pulling = scope.spawn(|| job.wait_readable(pulls, ReadCondition::version(1), pulling));
                let resuming = scope.spawn(|| job.wait_while_busy(resuming));
                for _ in 0..4 {
                    asks.recv_timeout(Duration::from_secs(60)).expect("they wait for the state");
                }
                (pulling, resuming, asks)
            });
            let (pulling, resuming, _asks) = waits;
            assert_eq!(pulling.join().unwrap().unwrap().version, 1);
            assert!(resuming.join().unwrap());
        });
        assert_eq!(job.copy_values().unwrap(), [0.5, 1.5]);
    }
}
