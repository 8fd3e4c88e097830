//! Stopping shards so that those of the next start go on with their jobs.

use std::{
    mem, thread,
    time::{Duration, Instant},
};

use syncline_ps::{PsError, server};
use tracing::warn;

/// How long a full disk, or somebody who is still served, may hold the stop up: as long as `syncline up`
/// waits.
const SAVE_LIMIT: Duration = Duration::from_secs(600);
/// Pause before what could not be kept is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Shards that are being started, and have taken their jobs off the disk. Dropped, as where nobody waits for
/// the start any more, they keep these there again.
#[derive(Default)]
pub(super) struct StartingShards(Vec<server::Handle>);

impl StartingShards {
    pub(super) fn push(&mut self, shard: server::Handle) {
        self.0.push(shard);
    }

    /// All are started, and somebody has them.
    pub(super) fn into_handles(mut self) -> Vec<server::Handle> {
        mem::take(&mut self.0)
    }
}

impl Drop for StartingShards {
    fn drop(&mut self) {
        // The log names what cannot be kept.
        let _ = stop_and_save(mem::take(&mut self.0));
    }
}

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
