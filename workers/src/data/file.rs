//! Reading files: bounded, hashed, unpacked.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use syncline_engine::input;

use super::error::DataError;

/// Largest file that is read, and the most that a packed file may unpack to.
pub const MAX_FILE_BYTES: u64 = 4 << 30;
/// Most numbers in one array of a data set.
pub const MAX_ELEMENTS: u64 = 1 << 31;

/// A file in memory, unpacked if its name ends in `.gz`. Its bytes on the disk go into `hasher`.
pub(super) fn read(path: &Path, hasher: &mut blake3::Hasher) -> Result<Vec<u8>, DataError> {
    let failed = |source| DataError::Io { path: path.to_owned(), source };
    let file = input::open(path).map_err(failed)?;
    let bytes = read_bounded(file, path)?;
    hasher.update(&bytes);
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("gz")) {
        return Ok(bytes);
    }
    read_bounded(MultiGzDecoder::new(bytes.as_slice()), path)
}

fn read_bounded(reader: impl Read, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(path, MAX_FILE_BYTES, "bytes"));
    }
    Ok(bytes)
}

pub(super) fn too_large(path: &Path, limit: u64, unit: &'static str) -> DataError {
    DataError::TooLarge { path: PathBuf::from(path), limit, unit }
}
