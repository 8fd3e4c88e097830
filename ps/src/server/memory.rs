//! Memory that jobs had, back to the system. The C library keeps what is freed in pieces of a chunk's size,
//! for each thread that ever received some: a process that has served large jobs would look as large as all
//! of them for as long as it lives.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use syncline_rpc::threads::lock;
use tokio::task::spawn_blocking;

/// Connections let go of a job a moment after it is closed.
const AFTER: Duration = Duration::from_secs(5);

/// When to give back what jobs had that are over here.
#[derive(Default)]
pub(super) struct FreedMemory(Mutex<Option<Instant>>);

impl FreedMemory {
    /// A job is over: what it had is given back a moment from now.
    pub(super) fn note(&self) {
        lock(&self.0).get_or_insert_with(|| Instant::now() + AFTER);
    }

    /// Gives back what is free, if it is time. Cost: milliseconds of one thread, during which its siblings
    /// may wait to allocate.
    pub(super) async fn give_back_if_due(&self) {
        if self.is_due(Instant::now()) {
            let _ = spawn_blocking(give_back).await;
        }
    }

    /// Whether it is time, which is said once.
    fn is_due(&self, now: Instant) -> bool {
        lock(&self.0).take_if(|due| *due <= now).is_some()
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the standard library has no name for it")]
fn give_back() {
    // SAFETY: it takes no pointer, and touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_for_all_jobs_that_end_within_a_moment() {
        let (freed, now) = (FreedMemory::default(), Instant::now());
        assert!(!freed.is_due(now + 2 * AFTER));
        freed.note();
        freed.note();
        assert!(!freed.is_due(now));
        assert_eq!([2, 2].map(|times| freed.is_due(now + times * AFTER)), [true, false]);
    }
}
