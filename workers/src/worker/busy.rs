//! How long the executor has been busy with its present task, so that the engine can tell a worker that hangs from one
//! that works. Waiting at a shard does not count: that is for others to end.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Clones share one stopwatch.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<Mutex<Watch>>);

#[derive(Debug, Default)]
struct Watch {
    /// When the present task began.
    began: Option<Instant>,
    /// What of the time since then was waiting, the present wait left out.
    waited: Duration,
    /// When the present wait began.
    waiting: Option<Instant>,
    /// The longest that a task took.
    longest: Duration,
}

impl Busy {
    /// A task begins.
    pub(super) fn begin(&self) {
        let mut watch = self.lock();
        (watch.began, watch.waited, watch.waiting) = (Some(Instant::now()), Duration::ZERO, None);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        let mut watch = self.lock();
        watch.longest = watch.longest.max(watch.running().unwrap_or_default());
        watch.began = None;
    }

    /// Does what may have to wait at a shard.
    pub(super) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.lock().waiting = Some(Instant::now());
        let done = wait();
        let mut watch = self.lock();
        if let Some(since) = watch.waiting.take() {
            watch.waited += since.elapsed();
        }
        done
    }

    /// Milliseconds of the present task, 0 if there is none, and of the longest so far.
    pub(super) fn running_and_longest_ms(&self) -> (u64, u64) {
        let watch = self.lock();
        let running = watch.running().map_or(0, |running| (running.as_millis() as u64).max(1));
        (running, watch.longest.as_millis() as u64)
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn running(&self) -> Option<Duration> {
        let waits = self.waiting.map_or(Duration::ZERO, |since| since.elapsed());
        Some(self.began?.elapsed().saturating_sub(self.waited + waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_at_a_shard_is_not_being_busy() {
        const PART: Duration = Duration::from_millis(30);
        let busy = Busy::default();
        assert_eq!(busy.running_and_longest_ms(), (0, 0));
        busy.begin();
        assert!(busy.running_and_longest_ms().0 >= 1);
        // Whatever the machine does meanwhile is inside the wait.
        let before = busy.lock().began.unwrap().elapsed();
        let running = busy.waiting(|| {
            std::thread::sleep(PART);
            busy.lock().running().unwrap()
        });
        assert!(busy.lock().waited >= PART && running < before + PART, "{running:?}");
        std::thread::sleep(PART);
        busy.end();
        let (running, longest) = busy.running_and_longest_ms();
        assert!(running == 0 && longest >= PART.as_millis() as u64, "{longest}");
    }
}
