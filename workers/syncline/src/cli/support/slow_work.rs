//! A word about work that takes long, so that nobody takes it for a hang.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cli::say;

/// How long work may take without a word.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often it is said again.
const AGAIN: Duration = Duration::from_secs(30);

/// The result of the work; while it lasts, stderr is told now and then what it is.
pub(crate) async fn said_while_slow<T>(what: &str, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut pause = PATIENCE;
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(pause) => say(&format!("{what}, for {} s now", began.elapsed().as_secs())),
        }
        pause = AGAIN;
    }
}
