//! Named arrays in a file of `numpy.savez` or `numpy.savez_compressed`: a zip archive with a file `NAME.npy`
//! for each.
//!
//! What the archive says of sizes is not believed: room is made for what comes, up to what the array's own
//! header says, and that is bounded.

use std::collections::HashMap;
use std::io::BufReader;

use zip::{CompressionMethod, ZipReadOptions, read::Config, unstable::read::ZipIterable};

use super::array::SourceArrays;
use super::contents::DataFile;
use super::error::{DataError, FormatError};
use super::file::{MAX_FILE_BYTES, Step, ZIP_MARK};
use super::named;
use super::npy::{self, Input, Stored};
use super::signature::ModelSignature;

/// Most files in an archive; each takes memory as soon as it is listed.
const MAX_ENTRIES: usize = 65_536;
/// As much does a packed byte unpack to, at most.
const MOST_UNPACKED: u64 = 1_032;
/// How numpy calls the file of an array, behind its name.
const SUFFIX: &str = ".npy";

/// Reads what the model wants; other arrays are not looked at.
pub(super) fn read(
    DataFile { path, contents }: DataFile<'_>,
    wanted: &ModelSignature,
    step: &mut Step<'_>,
) -> Result<SourceArrays, DataError> {
    let format = |reason: String| DataError::from(FormatError::Malformed { path: path.to_owned(), reason });
    let damaged = |error: zip::result::ZipError| format(format!("zip: {error}"));
    if !contents.starts_with(ZIP_MARK) {
        return Err(format("it does not begin as numpy.savez writes it; pickles are not read".to_owned()));
    }
    let mut archive =
        ZipIterable::try_new(BufReader::new(contents.reader(0)), Config::default()).map_err(damaged)?;
    if archive.len() > MAX_ENTRIES {
        return Err(format(format!("it has {} arrays, {MAX_ENTRIES} are read", archive.len())));
    }
    let mut entries = HashMap::new();
    for entry in archive.files().map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        let name = entry.name().map_err(damaged)?;
        if let Some(name) = name.strip_suffix(SUFFIX).map(str::to_owned) {
            entries.insert(name, Some(entry));
        }
    }
    if entries.is_empty() {
        let what = "it has no array of numpy; arrays of another archive, such as .pt or .xlsx, are saved with numpy.savez";
        return Err(format(what.to_owned()));
    }
    let mut left = MAX_FILE_BYTES;
    named::pick(path, wanted, |name| {
        // A graph has each name once.
        let Some(entry) = entries.get_mut(name).and_then(Option::take) else {
            return Err(named::missing(path, name, entries.keys().map(String::as_str)));
        };
        let mut reader = contents.reader(0);
        let sure = entry.compressed_size().min(contents.bytes()).saturating_mul(MOST_UNPACKED);
        let from = entry.with_reader(&mut reader, ZipReadOptions::new()).map_err(damaged)?;
        let is_stored = from.compression() == CompressionMethod::Stored;
        let lies = contents.on_disk().zip(from.data_start()).filter(|_| is_stored);
        let stored = lies.map(|(file, start)| Stored { file, start, bytes: from.size() });
        let mut input = Input { from, left, sure, stored };
        let array = npy::read(path, name, &mut input, step)?;
        left = input.left;
        Ok(array)
    })
}
