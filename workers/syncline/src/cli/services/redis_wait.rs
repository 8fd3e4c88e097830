//! A Redis server that does not answer yet is waited for: machines may boot in any order.

use std::time::Duration;

use syncline_engine::{service::EngineError, store::StoreError};
use tokio::time::{Instant, sleep};

/// Pause before it is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Tries until it is done, for as long as `wait` while Redis cannot be used for a reason that passes, and for
/// as long as it takes while Redis reads its own files. `tell` hears of the first try that failed so.
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
    let mut told = None;
    loop {
        let error = match attempt().await {
            Err(EngineError::Store(error)) if error.is_passing() => error,
            done => return done,
        };
        let loads = matches!(error, StoreError::Loading { .. });
        if !loads && give_up.is_some_and(|end| Instant::now() >= end) {
            return Err(error.into());
        }
        if told.replace(loads) != Some(loads) {
            tell(&error);
        }
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Tries as often as there are answers, and would wait for no time at all; of which failures was told.
    async fn wait(answers: Vec<Option<StoreError>>) -> (Vec<&'static str>, Result<(), String>) {
        let (mut answers, told) = (answers.into_iter(), RefCell::new(Vec::new()));
        let attempt = async || answers.next().flatten().map_or(Ok(()), |error| Err(error.into()));
        let tell = |error: &StoreError| {
            told.borrow_mut().push(if matches!(error, StoreError::Loading { .. }) {
                "loads"
            } else {
                "away"
            });
        };
        let waited = while_redis_is_away(Duration::ZERO, attempt, tell).await;
        (told.take(), waited.map_err(|error| error.to_string()))
    }

    #[tokio::test]
    async fn a_redis_that_reads_its_files_is_waited_for_however_long_it_takes_and_one_that_is_away_is_not() {
        let loading = || Some(StoreError::Loading { op: "ask", cause: "LOADING".into() });
        let away = || Some(StoreError::Unavailable { op: "ask", cause: "refused".into() });
        assert_eq!(wait(vec![loading(), loading(), None]).await, (vec!["loads"], Ok(())));
        let (told, gave_up) = wait(vec![loading(), away(), None]).await;
        assert_eq!(told, ["loads"]);
        assert!(gave_up.unwrap_err().contains("refused"));
    }
}
