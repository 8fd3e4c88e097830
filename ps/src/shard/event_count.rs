//! Whoever waits for something that happens to a job waits here, without its state: a barrier that closes has
//! that locked for as long as it walks over all parameters, and a caller who hears nothing for some seconds
//! hangs up.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use syncline_rpc::threads::lock;

/// What has happened to one job, as a count.
#[derive(Default)]
pub(super) struct EventCount {
    seen: Mutex<Seen>,
    moved: Condvar,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    count: u64,
    /// Somebody has the state locked for long.
    pub is_busy: bool,
}

/// The state is locked for long as long as this lives.
pub(super) struct Busy<'a>(&'a EventCount);

impl EventCount {
    /// Where it stands; look at the state behind that.
    pub(super) fn seen(&self) -> Seen {
        *lock(&self.seen)
    }

    /// Wakes everybody who waits.
    pub(super) fn notify(&self) {
        lock(&self.seen).count += 1;
        self.moved.notify_all();
    }

    /// Called by who has locked the state and is to work on all parameters.
    pub(super) fn mark_busy(&self) -> Busy<'_> {
        lock(&self.seen).is_busy = true;
        Busy(self)
    }

    /// Waits until something has happened since `seen`, for so long at most.
    pub(super) fn wait(&self, seen: Seen, limit: Duration) {
        let seen_before = |now: &mut Seen| now.count == seen.count;
        drop(
            self.moved
                .wait_timeout_while(lock(&self.seen), limit, seen_before)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        lock(&self.0.seen).is_busy = false;
        self.0.notify();
    }
}
