//! Stopping shards so that those of the next start go on with their jobs.

use std::{
    mem, thread,
    time::{Duration, Instant},
};

use syncline_ps::{PsError, server};
use syncline_rpc::threads;
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
        let mut shards = mem::take(&mut self.0);
        if shards.is_empty() {
            return;
        }
        // Who gives up the start may be async code, whose threads must not wait for the end of a runtime. The log
        // names what cannot be kept.
        thread::scope(|scope| {
            let save = || stop_and_save(mem::take(&mut shards));
            if let Err(none) = threads::spawn_scoped(scope, "local-save", save) {
                warn!(%none, "no thread for shards that stop");
            }
        });
        let _ = stop_and_save(shards);
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use syncline_rpc::Token;
    use tokio::runtime::Runtime;

    use super::*;

    #[test]
    fn shards_whose_start_async_code_gives_up_are_stopped_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let options = || server::Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: Token::generate(),
            state_dir: dir.path().to_owned(),
            index: 0,
            count: 1,
            replicas: 1,
            engine: None,
            advertise: None,
        };
        let mut starting = StartingShards::default();
        starting.push(server::start(options()).unwrap());
        Runtime::new().unwrap().block_on(async { drop(starting) });
        // The folder is nobody's any more.
        server::start(options()).unwrap().stop();
    }
}
