//! Waiting for what must come.

use std::time::{Duration, Instant};

/// Longest wait for anything to happen; generous, because test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until there is what is waited for.
pub async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for too long: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something is so.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}
