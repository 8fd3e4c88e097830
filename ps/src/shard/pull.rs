//! Waiting for a version, and reading it.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use syncline_engine::rpc::ShardFault;
use syncline_scheduler::ids::Incarnation;

use super::{JobShard, ledger::Ledger, lock};

/// How often a blocked pull looks whether its caller is still there.
const LOOK_ROUND: Duration = Duration::from_millis(500);

/// What a pull asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The latest values, once this many barriers have closed and no worker's clock is below `min_clock`. With 0 no
    /// clock is asked for; with more, a roster of clocks must have come.
    Version { closed: u64, min_clock: u64 },
    /// Exactly this version, which a barrier order asked to keep.
    Pinned(u64),
}

impl Want {
    /// The latest values, once `closed` barriers have closed.
    pub const fn version(closed: u64) -> Self {
        Self::Version { closed, min_clock: 0 }
    }
}

/// What a pull will get.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Barriers closed.
    pub version: u64,
    /// Pushes that are in completely.
    pub pushes: u64,
    pub waited_us: u64,
    /// The copy, where a pinned version was asked for.
    pub pinned: Option<Arc<Vec<f32>>>,
}

impl JobShard {
    /// Waits until `want` can be served to `worker`. `present` is asked twice a second whether the caller still waits;
    /// it may block.
    ///
    /// Ends with a fault when the job is closed, replaced by a newer generation, or `worker` is sealed.
    pub fn wait(
        &self,
        worker: Incarnation,
        want: Want,
        present: impl FnMut() -> bool,
    ) -> Result<Ready, ShardFault> {
        let started = Instant::now();
        let mut waited = false;
        self.wait_until(present, |ledger| {
            if ledger.sealed.contains(worker) {
                return Err(ShardFault::Sealed { job: self.job.clone(), worker });
            }
            if !ledger.serves(want) {
                waited = true;
                return Ok(None);
            }
            let waited_us = if waited { started.elapsed().as_micros() as u64 } else { 0 };
            self.ready(ledger, want, waited_us).map(Some)
        })
    }

    /// Waits until there is an `answer`, which is looked for whenever something has moved. `present` is asked twice a
    /// second whether the caller still waits; it may block, and nothing is locked meanwhile. Ends with a fault when the
    /// job is over.
    pub(super) fn wait_until<T>(
        &self,
        mut present: impl FnMut() -> bool,
        mut answer: impl FnMut(&mut Ledger) -> Result<Option<T>, ShardFault>,
    ) -> Result<T, ShardFault> {
        let mut looked = Instant::now();
        let mut ledger = self.open_ledger()?;
        loop {
            if let Some(over) = ledger.over {
                return Err(over.fault(&self.job, self.generation));
            }
            if let Some(answer) = answer(&mut ledger)? {
                return Ok(answer);
            }
            let woken = self.moved.wait_timeout(ledger, LOOK_ROUND);
            ledger = woken.unwrap_or_else(PoisonError::into_inner).0;
            if looked.elapsed() >= LOOK_ROUND {
                drop(ledger);
                if !present() {
                    return Err(ShardFault::Invalid { what: "the caller hung up".into() });
                }
                looked = Instant::now();
                ledger = lock(&self.ledger);
            }
        }
    }

    fn ready(&self, ledger: &Ledger, want: Want, waited_us: u64) -> Result<Ready, ShardFault> {
        let (version, pushes) = (ledger.closed, ledger.pushes);
        match (want, &ledger.pinned) {
            (Want::Version { .. }, _) => Ok(Ready { version, pushes, waited_us, pinned: None }),
            (Want::Pinned(wanted), Some((version, values))) if *version == wanted => {
                Ok(Ready { version: wanted, pushes, waited_us, pinned: Some(values.clone()) })
            }
            (Want::Pinned(wanted), _) => Err(ShardFault::NotPinned { job: self.job.clone(), wanted }),
        }
    }

    /// Barriers closed so far.
    pub fn version(&self) -> u64 {
        lock(&self.ledger).closed
    }

    /// Newest version that the mean of a round went into; 0 if there was none. A pull that began at an older one may
    /// hold a mixture.
    pub fn round_version(&self) -> u64 {
        lock(&self.ledger).round_version
    }

    /// Lets `read` look at chunk `first` and at those behind it that nobody is working on, `most` of them at most.
    /// It must not block: whoever applies a push waits for it.
    pub fn read_chunks<T>(&self, first: u32, most: usize, read: impl FnOnce(&[&[f32]]) -> T) -> T {
        let (first, rest) = (&self.chunks[first as usize], &self.chunks[first as usize + 1..]);
        let mut held = vec![lock(first)];
        held.extend(rest.iter().take(most.saturating_sub(1)).map_while(|chunk| chunk.try_lock().ok()));
        let values: Vec<&[f32]> = held.iter().map(|chunk| chunk.values()).collect();
        read(&values)
    }
}
