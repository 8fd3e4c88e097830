//! Content-addressed blobs on disk: temporary file, fsync, rename; values of tasks are synced later, all at
//! once.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{Collected, DigestRange, ShardFault, folder, threads::lock};

use tracing::warn;

use super::connection::Connection;
use crate::{
    content::digest_from,
    transport::Duplex,
    wire::{BLOBS_PER_LIST, Reply},
};

const PIECE_BYTES: usize = 256 << 10;
/// Ending of files that are being written; what is left of them is removed at the start.
pub(super) const UNFINISHED: &str = "part";

/// The directory of blobs.
pub(super) struct BlobStore {
    dir: PathBuf,
    /// Makes the names of files that are being written unique.
    written: AtomicU64,
    /// Held while a blob is looked at in order to be used, or to be removed. When those were looked at whose
    /// files could not be told.
    touch_or_remove: Mutex<HashMap<ContentDigest, Instant>>,
    /// Values that may not be on disk yet.
    unsynced: Mutex<Vec<ContentDigest>>,
}

/// When a blob is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Before it is answered.
    Now,
    /// With the next [`BlobStore::sync_values`]: most values of tasks are not needed any more by then.
    Soon,
}

/// Names what the disk did, with the path.
pub(super) fn disk_fault(verb: &str, path: &Path, cause: &io::Error) -> ShardFault {
    ShardFault::Io { what: format!("cannot {verb} {}", path.display()), cause: cause.to_string() }
}

impl BlobStore {
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        folder::make_or_close(&dir)?;
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
        let (touch_or_remove, unsynced) = Default::default();
        Ok(Self { dir, written: AtomicU64::new(0), touch_or_remove, unsynced })
    }

    pub(super) fn path(&self, digest: &ContentDigest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    /// Size of the blob, if it is here.
    pub(super) fn stat(&self, digest: &ContentDigest) -> Result<Option<u64>, ShardFault> {
        let path = self.path(digest);
        match fs::metadata(&path) {
            Ok(found) => Ok(Some(found.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(disk_fault("look at", &path, &e)),
        }
    }

    /// As [`BlobStore::stat`]; also sets the modification time to now, so that the blob is not collected
    /// before the caller uses it. A disk that can be read only gives it all the same: until it is old, it
    /// is kept by what this process remembers.
    pub(super) fn stat_and_touch(&self, digest: &ContentDigest) -> Result<Option<u64>, ShardFault> {
        let mut untouched = lock(&self.touch_or_remove);
        let found = self.stat(digest)?;
        if found.is_some() {
            let path = self.path(digest);
            let now = SystemTime::now();
            match File::options().append(true).open(&path).and_then(|file| file.set_modified(now)) {
                Ok(()) => drop(untouched.remove(digest)),
                // Once for each blob: a disk that stays so would fill the log.
                Err(e) => {
                    if untouched.insert(*digest, Instant::now()).is_none() {
                        warn!(path = %path.display(), error = %e, "cannot set the time of a blob, which is given all the same");
                    }
                }
            }
        }
        Ok(found)
    }

    /// Removes what lies in `range`, is older than `age` and not among `keep`.
    pub(super) fn collect(
        &self,
        range: &DigestRange,
        keep: &HashSet<ContentDigest>,
        age: Duration,
    ) -> Result<Collected, ShardFault> {
        let mut collected = Collected::default();
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            // Removed by somebody: it is made again with the next blob.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(collected),
            Err(e) => return Err(disk_fault("read", &self.dir, &e)),
        };
        for entry in entries {
            let path = entry.map_err(|e| disk_fault("read", &self.dir, &e))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // What is being written has another name, and what somebody else put here is not ours.
            let Ok(digest) = name.parse() else { continue };
            if !range.contains(digest) || keep.contains(&digest) {
                continue;
            }
            let mut untouched = lock(&self.touch_or_remove);
            if untouched.get(&digest).is_some_and(|since| since.elapsed() < age) {
                continue;
            }
            untouched.remove(&digest);
            let Ok(about) = fs::metadata(&path) else { continue };
            // A time in the future comes from another clock: such a blob counts as new.
            let old = about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|since| since >= age));
            if old {
                fs::remove_file(&path).map_err(|e| disk_fault("remove", &path, &e))?;
                collected.blobs += 1;
                collected.bytes += about.len();
            }
        }
        Ok(collected)
    }

    /// Removes these blobs, as far as they are here.
    pub(super) fn remove(&self, digests: impl Iterator<Item = ContentDigest>) -> Result<(), ShardFault> {
        let _guard = lock(&self.touch_or_remove);
        for digest in digests {
            let path = self.path(&digest);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(disk_fault("remove", &path, &e)),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Brings the values to disk that have come since the last call and are still needed. What fails is told
    /// in the log: a value that is lost with the machine's power shows where it is fetched.
    pub(super) fn sync_values(&self) {
        let unsynced = std::mem::take(&mut *lock(&self.unsynced));
        let mut any = false;
        for digest in unsynced {
            match File::open(self.path(&digest)).and_then(|file| file.sync_all()) {
                Ok(()) => any = true,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    warn!(path = %self.path(&digest).display(), error = %e, "cannot bring a value to disk")
                }
            }
        }
        if any && let Err(e) = File::open(&self.dir).and_then(|dir| dir.sync_all()) {
            warn!(path = %self.dir.display(), error = %e, "cannot bring names of values to disk");
        }
    }

    fn keep(
        &self,
        file: PendingFile,
        digest: &ContentDigest,
        durability: Durability,
    ) -> Result<(), ShardFault> {
        let path = self.path(digest);
        match durability {
            Durability::Now => file.finish(&path),
            Durability::Soon => {
                fs::rename(&file.path, &path).map_err(|e| disk_fault("keep", &path, &e))?;
                lock(&self.unsynced).push(*digest);
                Ok(())
            }
        }
    }

    /// Stores a file that lies elsewhere on the same disk as a blob, as a hard link. Its name is on disk
    /// afterwards.
    pub(super) fn link(&self, digest: &ContentDigest, file: &Path) -> io::Result<()> {
        let path = self.path(digest);
        match with_parent_dir(&path, || fs::hard_link(file, &path)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            Ok(()) | Err(_) => {}
        }
        File::open(&self.dir)?.sync_all()
    }

    /// A file that will become a blob.
    pub(super) fn begin(&self) -> Result<PendingFile, ShardFault> {
        self.begin_in(&self.dir)
    }

    /// Keeps what was written if it is what it should be.
    pub(super) fn keep_checked(
        &self,
        file: PendingFile,
        digest: &ContentDigest,
        durability: Durability,
    ) -> Result<(), ShardFault> {
        if file.digest().0 != *digest {
            return Err(ShardFault::Invalid { what: format!("a blob arrived that is not {digest}") });
        }
        self.keep(file, digest, durability)
    }

    /// Digests of what is here, in no order: the `most` lowest from `first` on.
    pub(super) fn list(&self, first: &ContentDigest, most: usize) -> Result<Vec<ContentDigest>, ShardFault> {
        let fault = |e: &io::Error| disk_fault("read", &self.dir, e);
        let mut digests = Vec::new();
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(digests),
            entries => entries.map_err(|e| fault(&e))?,
        };
        for entry in entries {
            let name = entry.map_err(|e| fault(&e))?.file_name();
            let digest = name.to_str().and_then(|name| name.parse().ok());
            digests.extend(digest.filter(|digest: &ContentDigest| digest >= first));
        }
        if digests.len() > most {
            digests.select_nth_unstable(most);
            digests.truncate(most);
        }
        Ok(digests)
    }

    /// A file in `dir`, on the same disk, that will get its name when it is whole. Two never share one.
    pub(super) fn begin_in(&self, dir: &Path) -> Result<PendingFile, ShardFault> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        PendingFile::create(dir.join(format!("{}-{number}.{UNFINISHED}", std::process::id())))
    }
}

/// A file that becomes visible under its name only when it is whole and on disk.
pub(super) struct PendingFile {
    path: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl PendingFile {
    /// Makes its folder again if somebody has removed it. What is in it is its owner's business alone,
    /// wherever it is moved.
    pub(super) fn create(path: PathBuf) -> Result<Self, ShardFault> {
        let create = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        match with_parent_dir(&path, create) {
            Ok(file) => Ok(Self { path, file, hasher: blake3::Hasher::new(), bytes: 0 }),
            Err(e) => Err(disk_fault("create", &path, &e)),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ShardFault> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|e| disk_fault("write", &self.path, &e))
    }

    /// BLAKE3 and length of what was written.
    pub(super) fn digest(&self) -> (ContentDigest, u64) {
        (digest_from(self.hasher.finalize()), self.bytes)
    }

    /// Brings everything to disk, as of then.
    pub(super) fn sync_as_of(&self, written_at: SystemTime) -> Result<(), ShardFault> {
        let sync = || {
            self.file.set_modified(written_at)?;
            self.file.sync_all()
        };
        sync().map_err(|e| disk_fault("write", &self.path, &e))
    }

    /// Brings everything to disk and gives the file its name.
    pub(super) fn finish(self, name: &Path) -> Result<(), ShardFault> {
        let sync_and_rename = || {
            self.file.sync_all()?;
            fs::rename(&self.path, name)?;
            // The name itself is on disk only when the directory is.
            name.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        };
        sync_and_rename().map_err(|e| disk_fault("keep", name, &e))
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        // Gone already if it got its name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes something at `path`; once more with its folder, if that is gone.
fn with_parent_dir<T>(path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match (make(), path.parent()) {
        (Err(e), Some(dir)) if e.kind() == io::ErrorKind::NotFound => folder::make(dir).and_then(|()| make()),
        (made, _) => made,
    }
}

/// Takes a blob in. A full disk does not end the connection: the rest is read and dropped, the fault
/// answered. What must be durable at once is `kept` elsewhere as well before the answer.
pub(super) fn serve_put<D: Duplex>(
    store: &BlobStore,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
    bytes: u64,
    durability: Durability,
    kept: impl FnOnce(),
) -> io::Result<()> {
    let mut incoming = store.begin();
    let mut left = bytes;
    while left > 0 {
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut connection.chunk);
        let piece = &mut buffer[..left.min(PIECE_BYTES as u64) as usize];
        connection.duplex.read_exact(piece)?;
        left -= piece.len() as u64;
        incoming = incoming.and_then(|mut file| file.write(piece).map(|()| file));
    }
    let stored = incoming.and_then(|file| store.keep_checked(file, &digest, durability));
    if stored.is_ok() && durability == Durability::Now {
        kept();
    }
    connection.answer(stored.map(|()| Reply::BlobStored))
}

/// Sends the digests of blobs from `first` on.
pub(super) fn serve_list<D: Duplex>(
    store: &BlobStore,
    connection: &mut Connection<'_, D>,
    first: &ContentDigest,
) -> io::Result<()> {
    let digests = match store.list(first, BLOBS_PER_LIST) {
        Ok(digests) => digests,
        Err(fault) => return connection.answer(Err(fault)),
    };
    let body: Vec<u8> = digests.iter().flat_map(ContentDigest::as_bytes).copied().collect();
    connection.reply_corked(&Reply::BlobList, body.len() as u64)?;
    connection.duplex.write_all(&body)
}

/// Sends a piece of a blob.
pub(super) fn serve_get<D: Duplex>(
    store: &BlobStore,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let total = match store.stat(&digest) {
        Ok(Some(total)) => total,
        Ok(None) => {
            return connection.answer(Err(ShardFault::MissingBlob { digest }));
        }
        Err(fault) => return connection.answer(Err(fault)),
    };
    let mut file = match File::open(store.path(&digest)) {
        Ok(file) => file,
        Err(e) => return connection.answer(Err(disk_fault("open", &store.path(&digest), &e))),
    };
    file.seek(SeekFrom::Start(offset))?;
    send_file(connection, &mut file, total, length.min(total.saturating_sub(offset)))
}

/// Sends the next `left` bytes of a file of `total`.
pub(super) fn send_file<D: Duplex>(
    connection: &mut Connection<'_, D>,
    file: &mut File,
    total: u64,
    mut left: u64,
) -> io::Result<()> {
    connection.reply_corked(&Reply::Blob { total }, left)?;
    while left > 0 {
        let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut connection.chunk);
        let piece = &mut buffer[..left.min(PIECE_BYTES as u64) as usize];
        // A file that fails now ends the connection: its length has been promised.
        file.read_exact(piece)?;
        connection.duplex.write_all(piece)?;
        left -= piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const DIGEST: ContentDigest = ContentDigest::from_bytes([7; 32]);

    #[test]
    fn a_blob_whose_time_cannot_be_set_is_there_and_is_not_collected_until_it_is_old() {
        let dir = tempdir().unwrap();
        let store = BlobStore::open(dir.path().join("blobs")).unwrap();
        assert_eq!(store.stat_and_touch(&DIGEST), Ok(None));
        // What cannot be opened for writing, whoever runs this: a folder.
        let path = store.path(&DIGEST);
        fs::create_dir(&path).unwrap();
        let age = || {
            let old = SystemTime::now() - 2 * HOUR;
            File::open(&path).unwrap().set_modified(old).unwrap();
        };
        age();
        assert!(matches!(store.stat_and_touch(&DIGEST), Ok(Some(_))));
        age();
        let collect = |age| store.collect(&DigestRange::default(), &HashSet::new(), age);
        let collected = collect(HOUR);
        assert_eq!(collected, Ok(Collected::default()));
        // Where nothing is too young, it is tried.
        assert!(collect(Duration::ZERO).is_err());
    }
}
