//! Parts of checkpoints that shards keep as blobs until whoever asked for them has had the time to fetch
//! them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use syncline_rpc::threads::lock;
use syncline_scheduler::ids::ContentDigest;

use tokio::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

/// How long what is shared stays, whatever its size.
const SHARED_FOR: Duration = Duration::from_secs(600);
/// And so much longer as it takes over a slow line: parts are fetched one after the other.
const SLOW_BYTES_PER_S: u64 = 1_000_000;

/// Which parts are shared, and until when; clones share it. Somebody may ask for the same checkpoint again
/// meanwhile.
#[derive(Clone, Default)]
pub(super) struct SharedParts(Arc<Parts>);

#[derive(Default)]
struct Parts {
    until: Mutex<BTreeMap<ContentDigest, Instant>>,
    /// Held for reading while parts come to be shared, for writing while they are removed.
    changing: RwLock<()>,
}

impl SharedParts {
    /// While it is held no part is removed.
    pub(super) async fn sharing(&self) -> RwLockReadGuard<'_, ()> {
        self.0.changing.read().await
    }

    /// While it is held no part comes to be shared.
    pub(super) async fn removing(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.changing.write().await
    }

    /// Somebody has asked for these parts, of so many bytes in all, at `now`; until when they stay.
    pub(super) fn keep(&self, parts: &[ContentDigest], bytes: u64, now: Instant) -> Instant {
        let until = now + SHARED_FOR + Duration::from_secs(bytes / SLOW_BYTES_PER_S);
        lock(&self.0.until).extend(parts.iter().map(|part| (*part, until)));
        until
    }

    /// Those of these parts whose time is over at `now`; they are shared no more.
    pub(super) fn take_expired(&self, parts: &[ContentDigest], now: Instant) -> Vec<ContentDigest> {
        let mut until = lock(&self.0.until);
        let is_over = |part: &&ContentDigest| until.get(*part).is_some_and(|until| *until <= now);
        let over: Vec<ContentDigest> = parts.iter().filter(is_over).copied().collect();
        until.retain(|part, _| !over.contains(part));
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_asked_for_again_stays_as_long_for_the_one_who_asked_last() {
        let (shared, begin) = (SharedParts::default(), Instant::now());
        let [a, b] = [0xa, 0xb].map(|byte| ContentDigest::from_bytes([byte; 32]));
        let [first, both] = [vec![a], vec![a, b]];
        let until = shared.keep(&both, 0, begin);
        let later = shared.keep(&first, 0, begin + SHARED_FOR / 2);
        assert_eq!(shared.take_expired(&both, until), [b]);
        assert_eq!(shared.take_expired(&first, later), [a]);
        assert!(shared.take_expired(&both, later).is_empty(), "each is removed once");
    }

    #[test]
    fn large_parts_stay_until_the_last_of_them_has_come_over_a_slow_line() {
        let (shared, begin) = (SharedParts::default(), Instant::now());
        let (parts, bytes) = (vec![ContentDigest::from_bytes([1; 32])], 30_000_000_000);
        let until = shared.keep(&parts, bytes, begin);
        let fetched = Duration::from_secs(bytes / SLOW_BYTES_PER_S);
        assert!(shared.take_expired(&parts, begin + fetched).is_empty());
        assert_eq!(shared.take_expired(&parts, until), parts);
    }
}
