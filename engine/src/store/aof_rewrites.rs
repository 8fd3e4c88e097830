//! Has a server that failed to write its append-only file write it anew.
//!
//! After one flush of the file that failed (fsync) a server refuses all writes, and flushes nothing until
//! there is something to write: it would refuse them for ever, although its disk is well again.
//! `BGREWRITEAOF` is allowed there, writes and flushes everything anew, and writes go on. Where the disk is
//! full it is asked seldom: a write that found no room the server repeats by itself every second, and a second
//! file of everything would take what room somebody makes. A flush that found none says the same, and is never
//! repeated.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use syncline_rpc::{is_of_full_disk, threads::lock};
use tracing::{info, warn};

use super::{error::StoreError, redis_store::RedisStore};

/// A write that failed for another reason than a flush is repeated by the server every second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two times: each writes everything that the server has.
const PAUSE: Duration = Duration::from_secs(60);
/// Both of them where the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(600);
/// In the answer of a server that does just that already, as where it takes longer than [`PAUSE`].
const UNDER_WAY: &str = "rewriting already in progress";

/// When a server is asked to write its append-only file anew; clones share that.
#[derive(Clone)]
pub struct AofRewrites(Arc<Mutex<Failing>>);

#[derive(Debug)]
struct Failing {
    patience: Duration,
    /// Of the first write that was refused for this reason, since the last that was not refused at all.
    since: Option<Instant>,
    asked: Option<Instant>,
}

impl Default for AofRewrites {
    fn default() -> Self {
        Self::after(PATIENCE)
    }
}

impl AofRewrites {
    /// It is asked once it has refused writes for so long.
    pub fn after(patience: Duration) -> Self {
        Self(Arc::new(Mutex::new(Failing { patience, since: None, asked: None })))
    }

    /// What became of a write to the server of `store`, which is asked where that is due.
    pub async fn note_write<T>(&self, store: &RedisStore, written: &Result<T, StoreError>) {
        let is_due = lock(&self.0).is_due(written, Instant::now());
        if !is_due {
            return;
        }
        match store.query::<String>("rewrite the append-only file", &["BGREWRITEAOF"]).await {
            Ok(answer) => {
                info!(answer, "redis fails to write its append-only file: it was asked to write it anew");
            }
            Err(error) if is_under_way(&error) => {
                info!("redis fails to write its append-only file, and is writing it anew");
            }
            // A user may lack the right.
            Err(error) => warn!(
                %error,
                hint = error.hint(),
                "redis fails to write its append-only file, and does not do BGREWRITEAOF, after which it takes writes again: send it by hand"
            ),
        }
    }
}

fn is_under_way(refused: &StoreError) -> bool {
    matches!(refused, StoreError::Refused { cause, .. } if cause.contains(UNDER_WAY))
}

impl Failing {
    /// Whether the file is to be written anew, after a write that ended so.
    fn is_due<T>(&mut self, written: &Result<T, StoreError>, now: Instant) -> bool {
        match written {
            Ok(_) => self.since = None,
            Err(StoreError::AppendOnlyFile { cause, .. }) => {
                let (patience, pause) = match is_of_full_disk(cause) {
                    true => (FULL_PAUSE, FULL_PAUSE),
                    false => (self.patience, PAUSE),
                };
                let since = *self.since.get_or_insert(now);
                let is_due = now.duration_since(since) >= patience
                    && self.asked.is_none_or(|asked| now.duration_since(asked) >= pause);
                if is_due {
                    self.asked = Some(now);
                }
                return is_due;
            }
            // No answer, for example, which says nothing of the file.
            Err(_) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_writes_the_file_anew_already_refuses_nothing() {
        let refused = |cause: &str| StoreError::Refused { op: "rewrite", cause: cause.to_owned() };
        assert!(is_under_way(&refused("ERR: Background append only file rewriting already in progress")));
        assert!(!is_under_way(&refused(
            "NOPERM: this user has no permissions to run the 'bgrewriteaof' command"
        )));
    }

    #[test]
    fn the_file_is_written_anew_after_ten_seconds_and_once_a_minute_until_a_write_is_taken() {
        let failed = |errno: &str| {
            let cause = format!("127.0.0.1:1: MISCONF: Errors writing to the AOF file: {errno}");
            Err(StoreError::AppendOnlyFile { op: "commit", cause })
        };
        let refused = || failed("Input/output error");
        let full = || failed("No space left on device");
        let away = || Err(StoreError::Unavailable { op: "commit", cause: "no answer".into() });
        #[rustfmt::skip]
        let cases: [(u64, Result<(), StoreError>, bool); 22] = [
            // at s, what became of a write, asked
            (0,   refused(), false),
            (9,   refused(), false),
            (10,  refused(), true),
            (11,  refused(), false),
            (40,  away(),    false),
            (69,  refused(), false),
            (70,  refused(), true),
            (75,  Ok(()),    false),
            // Another failure, within a minute of the last time.
            (80,  refused(), false),
            (95,  refused(), false),
            (130, refused(), true),
            (140, Ok(()),    false),
            // One that the server gets over by itself.
            (300, refused(), false),
            (305, Ok(()),    false),
            // The server repeats a write that found no room, and no flush that found none.
            (400,  full(),    false),
            (411,  full(),    false),
            (999,  full(),    false),
            (1000, full(),    true),
            (1100, full(),    false),
            // Somebody made room, and now a flush fails.
            (1101, refused(), true),
            (1102, Ok(()),    false),
            (1103, refused(), false),
        ];
        let AofRewrites(failing) = AofRewrites::default();
        let begun = Instant::now();
        for (at_s, written, asked) in cases {
            let now = begun + Duration::from_secs(at_s);
            assert_eq!(failing.lock().unwrap().is_due(&written, now), asked, "{at_s} s: {written:?}");
        }
    }
}
