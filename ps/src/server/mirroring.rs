//! Fetching from the process that serves, as long as this one follows it: each kind of thing in a thread that
//! looks again and again for what is missing here.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use syncline_rpc::threads::{self, NoThread};
use tracing::warn;

use super::Shared;
use crate::{
    client::{Link, LinkError, unexpected_reply},
    shard::Term,
    wire::{Reply, Request},
};

/// Bounds connecting and every wait for the other process.
pub(super) const PEER_LIMIT: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(1);
/// Looking takes at most one part in so many of the time, as long as the pause between two looks stays below
/// the longest.
const SHARE: u32 = 10;
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
const PIECE_BYTES: u64 = 256 << 10;

/// What is fetched by a thread, and the thread.
pub(super) struct Kind {
    /// In words, for the log.
    pub what: &'static str,
    pub thread: &'static str,
    /// Whether there is such a thread.
    pub is_running: fn(&Shared) -> &AtomicBool,
}

/// Asks the other process for a list, which comes as the body of `reply`.
pub(super) fn ask_for_list(
    link: &mut Link,
    request: &Request,
    reply: &Reply,
    max_bytes: u64,
) -> Result<Vec<u8>, LinkError> {
    link.ask(request)?;
    let (answer, bytes) = link.answer()?;
    if answer != *reply || bytes > max_bytes {
        return Err(unexpected_reply(&answer));
    }
    let mut body = vec![0; bytes as usize];
    link.read_body(&mut body)?;
    Ok(body)
}

/// Looks again and again, unless that goes on already, until this process follows no more. A look is told
/// where the primary is, under which term it is followed, and tells how long it took to find out what is
/// missing, without the copying.
pub(super) fn run(
    shared: &Arc<Shared>,
    kind: Kind,
    mut look: impl FnMut(&Arc<Shared>, &str, Term, &mut Duration) + Send + 'static,
) {
    let Kind { what, thread, is_running } = kind;
    if is_running(shared).swap(true, Ordering::AcqRel) {
        return;
    }
    let held = shared.clone();
    let mirror = move || {
        while let Some(term) = held.role.standby_term()
            && held.stopping().is_ok()
        {
            let mut looking = Duration::ZERO;
            if let Some(primary) = held.role.peer_address() {
                look(&held, &primary, term, &mut looking);
            }
            thread::sleep(pause_after(looking));
        }
        is_running(&held).store(false, Ordering::Release);
    };
    if let Err(error) = threads::spawn(thread, mirror) {
        is_running(shared).store(false, Ordering::Release);
        warn!(%error, hint = NoThread::HINT, "no thread that fetches {what}");
    }
}

/// How long to wait after a look that took so long.
pub(super) fn pause_after(looking: Duration) -> Duration {
    (looking * SHARE).clamp(INTERVAL, LONGEST_INTERVAL)
}

/// Passes so many bytes on, a piece at a time, unless this process is to stop.
pub(super) fn in_pieces<E: From<io::Error>>(
    shared: &Shared,
    bytes: u64,
    mut pass: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
    let mut left = bytes;
    while left > 0 {
        shared.stopping()?;
        let part = left.min(PIECE_BYTES);
        pass(&mut piece[..part as usize])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod rig;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_fetched_every_second_and_where_looking_takes_long_every_ten() {
        let pause_ms = |ms| pause_after(Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 90, 300, 60_000].map(pause_ms), [1_000, 1_000, 3_000, 10_000]);
    }
}
