//! The blobs of a shard lie on both of its processes: the one that follows fetches what it lacks, every second; the one that
//! serves asks the other for what it does not find.

use std::{
    fs::File,
    io::{self, Read, Write},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::ShardFault;
use tracing::{debug, warn};

use super::{Shared, blobs::Durability};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    wire::{Digest, Reply, Request},
};

/// Bounds connecting and every wait for the other process.
const PEER_LIMIT: Duration = Duration::from_secs(5);
/// The other process brings a blob to disk before it answers.
const STORE_LIMIT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_secs(1);
/// Looking takes at most one part in so many of the time, as long as the pause between two looks stays below the longest.
const SHARE: u32 = 10;
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
const PIECE_BYTES: u64 = 256 << 10;
/// Longest list that is read: a million blobs.
const MAX_LIST_BYTES: u64 = 32 << 20;

/// Starts to fetch what the primary has, unless that goes on already. Ends when this process follows no more.
pub(super) fn run(shared: &Arc<Shared>) {
    if shared.mirroring.swap(true, Ordering::AcqRel) {
        return;
    }
    let held = shared.clone();
    let mirror = move || {
        while let Some(term) = held.role.standby_term()
            && held.stopping().is_ok()
        {
            let mut looking = Duration::ZERO;
            if let Some(primary) = held.role.peer_address() {
                match fetch_missing(&held, &primary, &mut looking) {
                    Ok(()) => held.role.set_mirrored(term),
                    Err(error) => {
                        debug!(error = %error.into_error(&primary), "cannot fetch blobs from the primary yet");
                    }
                }
            }
            thread::sleep(pause_after(looking));
        }
        held.mirroring.store(false, Ordering::Release);
    };
    if let Err(error) = thread::Builder::new().name("ps-mirror".into()).spawn(mirror) {
        shared.mirroring.store(false, Ordering::Release);
        warn!(%error, "no thread that fetches blobs");
    }
}

fn pause_after(looking: Duration) -> Duration {
    (looking * SHARE).clamp(INTERVAL, LONGEST_INTERVAL)
}

/// What the primary lacks stays: only the engine says what nobody needs, to both. `looking`: how long it took to find out what
/// is missing, without the copying.
fn fetch_missing(shared: &Shared, primary: &str, looking: &mut Duration) -> Result<(), LinkError> {
    let started = Instant::now();
    let mut link = Link::open(primary, &shared.token, PEER_LIMIT)?;
    let mut missing = Vec::new();
    for digest in list(&mut link)? {
        if shared.blobs.stat(&digest).map_err(LinkError::Fault)?.is_none() {
            missing.push(digest);
        }
    }
    *looking = started.elapsed();
    for digest in missing {
        if shared.role.standby_term().is_none() || shared.stopping().is_err() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        copy(shared, &mut link, digest)?;
    }
    Ok(())
}

fn list(link: &mut Link) -> Result<Vec<Digest>, LinkError> {
    link.ask(&Request::ListBlobs)?;
    let bytes = match link.answer()? {
        (Reply::BlobList, bytes) if bytes <= MAX_LIST_BYTES => bytes,
        (reply, _) => return Err(unexpected_reply(&reply)),
    };
    let mut body = vec![0; bytes as usize];
    link.read_body(&mut body)?;
    Ok(body.as_chunks().0.to_vec())
}

/// Copies one blob from the other process; false if it is not there.
fn copy(shared: &Shared, link: &mut Link, digest: Digest) -> Result<bool, LinkError> {
    let Some(total) = link.stat_blob(digest)? else { return Ok(false) };
    match link.ask_blob(digest, 0, total) {
        // It went in the meantime.
        Err(LinkError::Fault(ShardFault::MissingBlob { .. })) => return Ok(false),
        asked => asked?,
    }
    let mut incoming = shared.blobs.begin().map_err(LinkError::Fault)?;
    in_pieces(shared, total, |piece| {
        link.read_body(piece)?;
        incoming.write(piece).map_err(LinkError::Fault)
    })?;
    shared.blobs.keep_checked(incoming, &digest, Durability::Soon).map_err(LinkError::Fault)?;
    Ok(true)
}

/// Looks for a blob that is not here on the process that follows this one. Whether it is here now.
pub(super) fn fetch_from_standby(shared: &Shared, digest: Digest) -> bool {
    let Some(standby) = shared.role.standby() else { return false };
    let fetch = || copy(shared, &mut Link::open(&standby.address, &shared.token, PEER_LIMIT)?, digest);
    fetch().unwrap_or_else(|error| {
        debug!(error = %error.into_error(&standby.address), "cannot ask the standby for a blob");
        false
    })
}

/// Gives a blob to the process that follows this one before it is acknowledged to anybody. One that cannot take it now fetches
/// it later.
pub(super) fn send_to_standby(shared: &Shared, digest: Digest) {
    let Some(standby) = shared.role.standby() else { return };
    if let Err(error) = send(shared, &standby.address, digest) {
        warn!(error = %error.into_error(&standby.address), "the standby has not got a blob yet");
    }
}

fn send(shared: &Shared, address: &str, digest: Digest) -> Result<(), LinkError> {
    let mut file = File::open(shared.blobs.path(&digest))?;
    let bytes = file.metadata()?.len();
    let mut link = Link::open(address, &shared.token, PEER_LIMIT)?;
    link.put_blob(digest, bytes, Some(STORE_LIMIT), |channel| {
        in_pieces(shared, bytes, |piece| {
            file.read_exact(piece)?;
            channel.write_all(piece)
        })
    })
}

/// Passes so many bytes on, a piece at a time, unless this process is to stop.
fn in_pieces<E: From<io::Error>>(
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
mod tests {
    use super::*;

    #[test]
    fn values_are_fetched_every_second_and_where_looking_takes_long_every_ten() {
        let pause_ms = |ms| pause_after(Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 90, 300, 60_000].map(pause_ms), [1_000, 1_000, 3_000, 10_000]);
    }
}
