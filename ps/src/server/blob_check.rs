//! Whether a blob is still what its digest says: a disk may flip a bit, and a power cut tear a file.

use std::{fs::File, io, path::Path};

use syncline_rpc::ShardFault;
use tracing::warn;

use super::blobs::{BlobStore, disk_fault};
use crate::wire::Digest;

impl BlobStore {
    /// As [`BlobStore::stat`], of a blob that is read as a whole first. A damaged one is removed: without it the blob can be given
    /// again, by a peer or by whoever made it.
    pub(super) fn check(&self, digest: &Digest) -> Result<Option<u64>, ShardFault> {
        let Some(bytes) = self.stat(digest)? else { return Ok(None) };
        let path = self.path(digest);
        match hash_of(&path) {
            Ok(hash) if hash == *digest => return Ok(Some(bytes)),
            Ok(_) => {
                warn!(path = %path.display(), "a blob is damaged, and removed");
                self.remove(std::iter::once(*digest))?;
            }
            // It was collected meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(disk_fault("read", &path, &e)),
        }
        Ok(None)
    }
}

pub(super) fn hash_of(path: &Path) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(*hasher.finalize().as_bytes())
}
