//! Stopping shards so that those of the next start go on with their jobs.

use std::{
    thread,
    time::{Duration, Instant},
};

use syncline_ps::{PsError, server};
use tracing::warn;

/// How long a full disk, or somebody who is still served, may hold the stop up: as long as `syncline up` waits.
const SAVE_LIMIT: Duration = Duration::from_secs(600);
/// Pause before what could not be kept is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Stops shards and keeps their jobs. Returns the first reason for which one was lost.
pub(super) fn stop_and_save(shards: Vec<server::Handle>) -> Result<(), PsError> {
    let deadline = Instant::now() + SAVE_LIMIT;
    let mut outcome = Ok(());
    for shard in shards {
        let kept = shard.stop_and_save(|error| wait_and_retry(error, deadline));
        outcome = outcome.and(kept.map(drop));
    }
    outcome
}

/// Whether to try again, a moment later.
fn wait_and_retry(error: &PsError, deadline: Instant) -> bool {
    warn!(%error, "jobs not kept yet");
    let in_time = Instant::now() < deadline;
    if in_time {
        thread::sleep(RETRY_INTERVAL);
    }
    in_time
}
