//! Whether a blob is still what its digest says: a disk may flip a bit, and a power cut tear a file.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};
use syncline_scheduler::ids::ContentDigest;

use rustix::fs::Advice;
use syncline_rpc::{ShardFault, threads::lock};
use tracing::warn;

use super::{Shared, blobs::disk_fault, checkpoint_digest, checkpoints, damaged_snapshot};
use crate::content::digest_from;

/// Blobs that are being read. All shards ask for the initial parameters of a job at once: whoever asks while
/// a blob is read waits for what that finds.
#[derive(Default)]
pub(super) struct BlobChecks(Mutex<HashMap<ContentDigest, Arc<Check>>>);

/// Size of a blob that is whole; `None`: there is none.
type Check = OnceLock<Result<Option<u64>, ShardFault>>;

impl BlobChecks {
    fn share(
        &self,
        digest: &ContentDigest,
        read: impl FnOnce() -> Result<Option<u64>, ShardFault>,
    ) -> Result<Option<u64>, ShardFault> {
        let check = lock(&self.0).entry(*digest).or_default().clone();
        let found = check.get_or_init(read).clone();
        let mut current = lock(&self.0);
        if current.get(digest).is_some_and(|current| Arc::ptr_eq(current, &check)) {
            current.remove(digest);
        }
        found
    }
}

/// As [`stat`](super::blobs::BlobStore::stat), of a blob that is read as a whole first. A damaged one is
/// removed: without it the blob can be given again, by a peer or by whoever made it.
pub(super) fn check(shared: &Shared, digest: &ContentDigest) -> Result<Option<u64>, ShardFault> {
    shared.blob_checks.share(digest, || read_and_judge(shared, digest))
}

fn read_and_judge(shared: &Shared, digest: &ContentDigest) -> Result<Option<u64>, ShardFault> {
    let Some(bytes) = shared.blobs.stat(digest)? else { return Ok(None) };
    let path = shared.blobs.path(digest);
    match is_whole(digest, &path, hash_of) {
        Ok(true) => return Ok(Some(bytes)),
        Ok(false) => {
            warn!(path = %path.display(), "a blob is damaged, and removed");
            damaged_snapshot::set_aside(shared, &path)?;
            checkpoint_digest::forget(&checkpoints::folder(shared), digest);
            shared.blobs.remove(std::iter::once(*digest))?;
        }
        // It was collected meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(disk_fault("read", &path, &e)),
    }
    Ok(None)
}

/// Whether a file is what its digest says. What is read may be wrong where the file is right, as by a bad
/// cable, or memory: only what is wrong twice, the second time from the disk itself, is taken for damaged.
fn is_whole(
    digest: &ContentDigest,
    path: &Path,
    mut hash_of: impl FnMut(&Path) -> io::Result<ContentDigest>,
) -> io::Result<bool> {
    if hash_of(path)? == *digest {
        return Ok(true);
    }
    // Advice: where it is not taken, the same memory is read again.
    let _ = rustix::fs::fadvise(&File::open(path)?, 0, None, Advice::DontNeed);
    let is_whole = hash_of(path)? == *digest;
    if is_whole {
        warn!(path = %path.display(), "a blob was read wrongly once, and is well: see whether disk and memory of this machine are");
    }
    Ok(is_whole)
}

/// Cost: a pass over the file, in pieces.
pub(super) fn hash_of(path: &Path) -> io::Result<ContentDigest> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(digest_from(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::waiting::until;

    #[test]
    fn a_file_is_damaged_only_if_it_is_read_wrongly_twice() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [right, wrong] = [1, 2].map(|byte| ContentDigest::from_bytes([byte; 32]));
        for (reads, whole) in [(vec![right], true), (vec![wrong, right], true), (vec![wrong, wrong], false)] {
            let mut reads = reads.into_iter();
            let found = is_whole(&right, file.path(), |_| Ok(reads.next().unwrap()));
            assert_eq!((found.unwrap(), reads.next()), (whole, None));
        }
        assert!(is_whole(&right, Path::new("missing"), hash_of).is_err());
    }

    #[test]
    fn who_asks_for_a_blob_that_is_being_read_waits_for_what_that_finds_and_the_next_one_reads_it_again() {
        let (checks, digest) = (BlobChecks::default(), ContentDigest::LOWEST);
        let ((begin, begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        thread::scope(|scope| {
            let checks = &checks;
            let first = scope.spawn(move || {
                checks.share(&digest, || {
                    begin.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(Some(4))
                })
            });
            begun.recv().unwrap();
            let second = scope.spawn(move || checks.share(&digest, || Ok(None)));
            // The table holds it, and each of the two.
            until("both ask", || Arc::strong_count(&lock(&checks.0)[&digest]) >= 3);
            release.send(()).unwrap();
            assert_eq!([first, second].map(|asked| asked.join().unwrap()), [Ok(Some(4)), Ok(Some(4))]);
        });
        assert_eq!(checks.share(&digest, || Ok(None)), Ok(None));
    }
}
