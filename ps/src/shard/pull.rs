//! Waiting for a version, and reading it.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use syncline_rpc::ShardFault;
use syncline_scheduler::ids::Incarnation;

use super::{JobShard, job_state::JobState, lock};

/// How often a blocked pull looks whether its caller is still there.
pub(super) const PRESENCE_INTERVAL: Duration = Duration::from_millis(500);

/// What a pull asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadCondition {
    /// The latest values, once this many barriers have closed and no worker's clock is below `min_clock`. With 0 no
    /// clock is asked for; with more, a roster of clocks must have come.
    Version {
        /// Barriers that must have closed; 0: the values as they are.
        closed: u64,
        /// Lowest that any worker's clock on the roster may be; 0: clocks do not matter.
        min_clock: u64,
    },
    /// Exactly this version, which a barrier order asked to keep, or which is the newest one while the job is at rest: that nothing
    /// is pushed then is up to who asks. It is never compressed.
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
    /// Waits until `condition` can be served to `worker`. `present` is asked twice a second whether the caller still waits;
    /// it may block.
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

    /// Waits until there is an `answer`, which is looked for whenever something has moved. `present` is asked twice a
    /// second whether the caller still waits; it may block, and nothing is locked meanwhile. Ends with a fault when the
    /// job is over.
    pub(super) fn wait_until<T>(
        &self,
        mut present: impl FnMut() -> bool,
        mut answer: impl FnMut(&mut JobState) -> Result<Option<T>, ShardFault>,
    ) -> Result<T, ShardFault> {
        let mut looked = Instant::now();
        let mut state = self.lock_running()?;
        loop {
            if let Some(end) = state.ended {
                return Err(end.fault(&self.run));
            }
            if let Some(answer) = answer(&mut state)? {
                return Ok(answer);
            }
            let woken = self.changed.wait_timeout(state, PRESENCE_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if looked.elapsed() >= PRESENCE_INTERVAL {
                drop(state);
                if !present() {
                    return Err(ShardFault::Invalid { what: "the caller hung up".into() });
                }
                looked = Instant::now();
                state = lock(&self.state);
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

    /// Newest version that the mean of a round went into; 0 if there was none. A pull that began at an older one may
    /// hold a mixture.
    pub fn round_version(&self) -> u64 {
        lock(&self.state).round_version
    }

    /// Lets `read` look at chunk `first` and at those behind it that nobody is working on, `most` of them at most.
    /// It must not block: pushes to these chunks wait for it.
    pub fn read_chunks<T>(&self, first: u32, most: usize, read: impl FnOnce(&[&[f32]]) -> T) -> T {
        let (first, rest) = (&self.chunks[first as usize], &self.chunks[first as usize + 1..]);
        let mut held = vec![lock(first)];
        held.extend(rest.iter().take(most.saturating_sub(1)).map_while(|chunk| chunk.try_lock().ok()));
        let values: Vec<&[f32]> = held.iter().map(|chunk| chunk.values()).collect();
        read(&values)
    }
}
