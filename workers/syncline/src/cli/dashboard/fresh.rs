//! An answer that is asked for once for all who look on.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// An answer that is younger is given again.
const FRESH_FOR: Duration = Duration::from_millis(500);

/// What was answered last, and when.
pub(super) struct Fresh<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Fresh<T> {
    /// As of less than a second ago; `ask` is the answer now.
    pub(super) async fn get(&self, ask: impl Future<Output = T>) -> T {
        // Whoever comes while one asks is answered the same.
        let mut kept = self.0.lock().await;
        if let Some((_, answer)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return answer.clone();
        }
        let answer = ask.await;
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }

    /// Whether it would be given again, or somebody asks just now.
    pub(super) fn is_fresh(&self) -> bool {
        match self.0.try_lock() {
            Ok(kept) => kept.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH_FOR),
            Err(_) => true,
        }
    }
}
