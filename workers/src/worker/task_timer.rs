//! How long the executor has been busy with its present task, so that the engine can tell a worker that hangs
//! from one that works. Waiting at a shard does not count: that is for others to end.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use syncline_rpc::threads::lock;

/// Clones share one stopwatch.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskTimer(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    /// When the present task began.
    began: Option<Instant>,
    /// What of the time since then was waiting, the present wait left out.
    waited: Duration,
    /// When the present wait began.
    waiting: Option<Instant>,
    /// The longest that a task took.
    longest: Duration,
}

impl TaskTimer {
    /// A task begins.
    pub(super) fn begin(&self) {
        let mut times = lock(&self.0);
        (times.began, times.waited, times.waiting) = (Some(Instant::now()), Duration::ZERO, None);
    }

    /// It has ended.
    pub(super) fn end(&self) {
        let mut times = lock(&self.0);
        times.longest = times.longest.max(times.running().unwrap_or_default());
        times.began = None;
    }

    /// A piece of the present task is done: whoever hangs in the next one is as late as in a task of its own.
    pub(super) fn progressed(&self) {
        let mut times = lock(&self.0);
        if times.began.is_some() {
            times.longest = times.longest.max(times.running().unwrap_or_default());
            (times.began, times.waited) = (Some(Instant::now()), Duration::ZERO);
        }
    }

    /// What nobody waited for took so long: a task that takes as long is none that hangs.
    pub(super) fn took(&self, time: Duration) {
        let mut times = lock(&self.0);
        times.longest = times.longest.max(time);
    }

    /// Does what may have to wait at a shard.
    pub(super) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        lock(&self.0).waiting = Some(Instant::now());
        let done = wait();
        let mut times = lock(&self.0);
        if let Some(since) = times.waiting.take() {
            times.waited += since.elapsed();
        }
        done
    }

    /// Milliseconds of the present task, 0 if there is none, and of the longest so far.
    pub(super) fn running_and_longest_ms(&self) -> (u64, u64) {
        let times = lock(&self.0);
        let running = times.running().map_or(0, |running| (running.as_millis() as u64).max(1));
        (running, times.longest.as_millis() as u64)
    }
}

impl Times {
    fn running(&self) -> Option<Duration> {
        let waits = self.waiting.map_or(Duration::ZERO, |since| since.elapsed());
        Some(self.began?.elapsed().saturating_sub(self.waited + waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_in_pieces_is_as_long_as_its_longest_piece() {
        const PIECE: Duration = Duration::from_millis(20);
        let timer = TaskTimer::default();
        timer.progressed();
        assert_eq!(timer.running_and_longest_ms(), (0, 0), "no task is under way");
        let began = Instant::now();
        timer.begin();
        for _ in 0..3 {
            std::thread::sleep(PIECE);
            timer.progressed();
        }
        let all = began.elapsed();
        timer.end();
        let longest = lock(&timer.0).longest;
        assert!(longest >= PIECE && longest <= all - 2 * PIECE, "{longest:?} of {all:?}");
        timer.took(Duration::from_secs(7));
        assert_eq!(timer.running_and_longest_ms(), (0, 7_000));
    }

    #[test]
    fn waiting_at_a_shard_is_not_being_busy() {
        const PART: Duration = Duration::from_millis(200);
        let timer = TaskTimer::default();
        assert_eq!(timer.running_and_longest_ms(), (0, 0));
        timer.begin();
        assert!(timer.running_and_longest_ms().0 >= 1);
        // Whatever the machine does meanwhile is inside the wait.
        let before = lock(&timer.0).began.unwrap().elapsed();
        let running = timer.waiting(|| {
            std::thread::sleep(PART);
            lock(&timer.0).running().unwrap()
        });
        assert!(lock(&timer.0).waited >= PART && running < before + PART, "{running:?}");
        std::thread::sleep(PART);
        timer.end();
        let (running, longest) = timer.running_and_longest_ms();
        assert!(running == 0 && longest >= PART.as_millis() as u64, "{longest}");
    }
}
