//! Files that end with the BLAKE3 of everything before. One is complete or absent: it is written under a
//! temporary name, synced, and renamed.

use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::Path,
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::ShardFault;

use super::blobs::{PendingFile, disk_fault};
use crate::content::digest_from;

pub(super) const DIGEST_BYTES: u64 = blake3::OUT_LEN as u64;

/// Completes `file` as `path` with what `write` gives; returns the digest of all of it, and its bytes.
pub(super) fn write_checked(
    mut file: PendingFile,
    path: &Path,
    write: impl FnOnce(&mut PendingFileWriter<'_>) -> io::Result<()>,
) -> Result<(ContentDigest, u64), ShardFault> {
    write(&mut PendingFileWriter(&mut file)).map_err(|e| disk_fault("write", path, &e))?;
    let (digest, _) = file.digest();
    file.write(digest.as_bytes())?;
    let whole = file.digest();
    file.finish(path)?;
    Ok(whole)
}

/// Reads what [`write_checked`] wrote. Bytes that are left over, or another digest, are invalid data.
pub(crate) fn read_checked<T>(
    path: &Path,
    read: impl FnOnce(&mut CheckedReader) -> io::Result<T>,
) -> io::Result<T> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len().saturating_sub(DIGEST_BYTES);
    let from = BufReader::with_capacity(1 << 20, file).take(bytes);
    let mut checked = CheckedReader { from, hasher: blake3::Hasher::new() };
    let value = read(&mut checked)?;
    let (left, hash) = (checked.from.limit(), checked.hasher.finalize());
    let mut digest = [0; blake3::OUT_LEN];
    checked.from.into_inner().read_exact(&mut digest)?;
    if left > 0 || hash != blake3::Hash::from_bytes(digest) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its digest is another"));
    }
    Ok(value)
}

/// The digest of a whole file that [`write_checked`] wrote, its own one included.
pub(super) fn whole_digest(path: &Path) -> io::Result<ContentDigest> {
    let mut hasher = read_checked(path, |from| {
        io::copy(from, &mut io::sink())?;
        Ok(from.hasher.clone())
    })?;
    let inner = hasher.finalize();
    Ok(digest_from(hasher.update(inner.as_bytes()).finalize()))
}

/// Whether a file is there and does not hold what it should, as opposed to a disk that cannot be read now.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// An unfinished file as a writer.
pub(super) struct PendingFileWriter<'a>(&'a mut PendingFile);

impl Write for PendingFileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads and hashes what was read.
pub(crate) struct CheckedReader {
    from: io::Take<BufReader<File>>,
    hasher: blake3::Hasher,
}

impl Read for CheckedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}
