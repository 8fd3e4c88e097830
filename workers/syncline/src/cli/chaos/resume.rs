//! How long it takes until an engine leads again after one was killed.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use syncline_rpc::threads::lock;
use syncline_workers::client::Client;
use tokio::time::{sleep, timeout};

/// Pause between two questions: what is measured is longer by so much, at most.
const LOOK: Duration = Duration::from_millis(10);
/// An engine that stands still is asked no longer: the next question may find another one.
const PATIENCE: Duration = Duration::from_millis(500);

/// The times from the last kill of an engine to the first answer of one that leads.
#[derive(Clone, Default)]
pub(super) struct ResumeTimes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Since when nobody is known to lead.
    killed: Option<Instant>,
    kills: u64,
    longest: Duration,
}

impl ResumeTimes {
    /// An engine has just been killed.
    pub(super) fn engine_killed(&self) {
        let mut inner = self.lock();
        inner.kills += 1;
        inner.killed = Some(Instant::now());
    }

    /// Asks who leads for as long as it is polled.
    pub(super) async fn watch(&self, client: &Client) -> Infallible {
        loop {
            let asked = Instant::now();
            let about = timeout(PATIENCE, client.engine()).await;
            if let Ok(Ok(about)) = about
                && about.idle.is_none()
            {
                self.somebody_leads(asked);
            }
            sleep(LOOK).await;
        }
    }

    /// An engine that was asked at this time leads.
    fn somebody_leads(&self, asked: Instant) {
        let mut inner = self.lock();
        // An answer to an earlier question may be that of the one that was killed.
        if let Some(killed) = inner.killed.filter(|killed| *killed <= asked) {
            inner.longest = inner.longest.max(killed.elapsed());
            inner.killed = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }
}

impl fmt::Display for ResumeTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        write!(
            f,
            "engines killed: {}, one led again after {} ms at most",
            inner.kills,
            inner.longest.as_millis()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_question_from_before_the_kill_is_no_resumption() {
        let times = ResumeTimes::default();
        let before = Instant::now();
        times.engine_killed();
        times.somebody_leads(before);
        assert!(times.lock().killed.is_some());
        times.somebody_leads(Instant::now());
        assert!(times.lock().killed.is_none());
        assert!(times.to_string().starts_with("engines killed: 1, "));
    }
}
