//! Which blobs are being fetched from the other process of the shard because somebody asks for them: one at a
//! time of each.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, PoisonError},
};
use syncline_rpc::threads::lock;
use syncline_scheduler::ids::ContentDigest;

#[derive(Default)]
pub(super) struct BlobFetches {
    current: Mutex<HashSet<ContentDigest>>,
    ended: Condvar,
}

/// One that goes on until this is dropped.
pub(super) struct BlobFetch<'a> {
    all: &'a BlobFetches,
    digest: ContentDigest,
}

impl BlobFetches {
    /// Waits for whoever fetches the same one.
    pub(super) fn begin(&self, digest: ContentDigest) -> BlobFetch<'_> {
        let mut current = lock(&self.current);
        while !current.insert(digest) {
            current = self.ended.wait(current).unwrap_or_else(PoisonError::into_inner);
        }
        BlobFetch { all: self, digest }
    }
}

impl Drop for BlobFetch<'_> {
    fn drop(&mut self) {
        lock(&self.all.current).remove(&self.digest);
        self.all.ended.notify_all();
    }
}
