//! Reading files: bounded, hashed, unpacked.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use syncline_rpc::input;

use super::error::DataError;
use super::remote;

/// Largest file that is read, and the most that a packed file may unpack to.
pub const MAX_FILE_BYTES: u64 = 4 << 30;
/// Most numbers in one array of a data set.
pub const MAX_ELEMENTS: u64 = 1 << 31;

/// A file in memory, unpacked if its name ends in `.gz`. Its bytes on the disk go into `hasher`.
pub(super) fn read(path: &Path, hasher: &mut blake3::Hasher) -> Result<Vec<u8>, DataError> {
    let failed = |source| DataError::Io { path: path.to_owned(), source };
    if let Some(url) = path.to_str().filter(|path| remote::is_url(path)) {
        return Err(DataError::Remote { url: url.to_owned() });
    }
    let file = input::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > MAX_FILE_BYTES {
        return Err(too_large(path, MAX_FILE_BYTES, "bytes"));
    }
    let bytes = read_bounded(file, length, path)?;
    hasher.update(&bytes);
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("gz")) {
        return Ok(bytes);
    }
    read_bounded(MultiGzDecoder::new(bytes.as_slice()), 0, path)
}

/// Reads to the end; `expected` bytes are there, as far as is known.
fn read_bounded(reader: impl Read, expected: u64, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> DataError {
        read(path, &mut blake3::Hasher::new()).unwrap_err()
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_by_its_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // A hole: takes no room, and would take this machine's memory if it were read.
        file.as_file().set_len(MAX_FILE_BYTES * 64).unwrap();
        assert_eq!(refused(file.path()).code(), "E332");
    }

    #[test]
    fn an_address_is_called_one() {
        let error = refused(Path::new("s3://bucket/train.csv"));
        assert!(error.code() == "E487" && error.to_string().contains("s3://bucket/train.csv"), "{error}");
    }
}
