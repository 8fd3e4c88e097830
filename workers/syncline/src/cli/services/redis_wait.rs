//! A Redis server that does not answer yet is waited for: machines may boot in any order.

use std::time::Duration;

use syncline_engine::{service::EngineError, store::StoreError};
use tokio::time::{Instant, sleep};

/// Pause before it is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Tries until it is done, for as long as `wait` while Redis cannot be used for a reason that passes. `tell`
/// hears of the first try that failed so.
///
/// # Errors
/// That of the last try.
pub(super) async fn while_redis_is_away<T>(
    wait: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, EngineError>,
    tell: impl Fn(&StoreError),
) -> Result<T, EngineError> {
    // A wait beyond all times has no end.
    let give_up = Instant::now().checked_add(wait);
    let mut is_told = false;
    loop {
        match attempt().await {
            Err(EngineError::Store(error))
                if error.is_passing() && give_up.is_none_or(|end| Instant::now() < end) =>
            {
                if !is_told {
                    tell(&error);
                }
                is_told = true;
                sleep(RETRY_PAUSE).await;
            }
            done => return done,
        }
    }
}
