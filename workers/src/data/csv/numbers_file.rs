//! Numbers that are written to a file one after the other, in as few bytes as all of them fit into.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::super::elements::Element;
use super::super::error::DataError;
use super::super::file::STEP_BYTES;
use super::number_sink::NumberSink;
use super::table_cache::TableCache;

/// Numbers that are in memory while they are written anew.
const PIECE_NUMBERS: u64 = (STEP_BYTES / 8) as u64;

/// What integers of 16 bits are written as.
pub(super) const SHORT: Element = Element::I16;

/// A file of numbers, little-endian.
pub(super) struct NumbersFile<'a> {
    file: File,
    path: PathBuf,
    /// What they are written as: [`SHORT`] as long as all of them are such, else float64.
    element: Element,
    count: u64,
    cache: &'a TableCache,
    /// The first file of the table that they are of.
    table: &'a Path,
}

impl<'a> NumbersFile<'a> {
    /// An empty one, in place of what is there.
    pub(super) fn create(path: PathBuf, cache: &'a TableCache, table: &'a Path) -> Result<Self, DataError> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = options.map_err(|source| cache.failed(table, &path, 0, source))?;
        Ok(Self { file, path, element: SHORT, count: 0, cache, table })
    }

    /// Writes what is still in memory to the disk.
    pub(super) fn sync(&self) -> Result<(), DataError> {
        self.file.sync_all().map_err(|error| self.failed(error, self.bytes()))
    }

    pub(super) fn is_short(&self) -> bool {
        self.element == SHORT
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count * self.element.bytes()
    }

    fn write(&self, first: u64, numbers: &[f64], element: Element) -> Result<(), DataError> {
        let bytes: Vec<u8> = match element {
            SHORT => numbers.iter().flat_map(|number| (*number as i16).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        };
        let written = self.file.write_all_at(&bytes, first * element.bytes());
        written.map_err(|error| self.failed(error, self.bytes() + bytes.len() as u64))
    }

    fn read(&self, first: u64, count: u64) -> Result<Vec<f64>, DataError> {
        let mut bytes = vec![0; (count * self.element.bytes()) as usize];
        let read = self.file.read_exact_at(&mut bytes, first * self.element.bytes());
        read.map_err(|error| self.failed(error, self.bytes()))?;
        Ok(match self.element {
            SHORT => bytes.as_chunks().0.iter().map(|bytes| i16::from_le_bytes(*bytes).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
        })
    }

    /// Writes all numbers anew. It begins with the last ones, which may take more room than they have.
    fn rewrite(&mut self, element: Element, number: impl Fn(f64) -> f64) -> Result<(), DataError> {
        for piece in (0..self.count.div_ceil(PIECE_NUMBERS)).rev() {
            let first = piece * PIECE_NUMBERS;
            let mut numbers = self.read(first, PIECE_NUMBERS.min(self.count - first))?;
            numbers.iter_mut().for_each(|at| *at = number(*at));
            self.write(first, &numbers, element)?;
        }
        self.element = element;
        Ok(())
    }

    /// `needed_bytes`: of the whole file, as far as is known.
    fn failed(&self, source: io::Error, needed_bytes: u64) -> DataError {
        self.cache.failed(self.table, &self.path, needed_bytes, source)
    }
}

/// Whether an integer of 16 bits is this number, and its sign.
fn is_short(number: f64) -> bool {
    f64::from(number as i16).to_bits() == number.to_bits()
}

impl NumberSink for NumbersFile<'_> {
    const MOST: u64 = u64::MAX;

    fn append(&mut self, numbers: &[f64], share_read: f64) -> Result<(), DataError> {
        let is_wide = self.element != SHORT || !numbers.iter().copied().all(is_short);
        let element = if is_wide { Element::F64 } else { SHORT };
        let there = (self.count + numbers.len() as u64) * element.bytes();
        let needed_bytes = (there as f64 / share_read) as u64;
        self.cache.make_room(self.table, needed_bytes, needed_bytes.saturating_sub(self.bytes()))?;
        if element != self.element {
            self.rewrite(element, |number| number)?;
        }
        self.write(self.count, numbers, self.element)?;
        self.count += numbers.len() as u64;
        Ok(())
    }

    fn replace(&mut self, by: &[u32]) -> Result<(), DataError> {
        self.rewrite(self.element, |number| by[number as usize].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_two_bytes_as_long_as_all_are_short_integers_and_none_is_changed_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let short: Vec<f64> = (0..700_000_i32).map(|n| f64::from(n % 65_536 - 32_768)).collect();
        for (more, element) in [
            (&[][..], SHORT),
            (&[7.0], SHORT),
            (&[-0.0], Element::F64),
            (&[0.1], Element::F64),
            (&[32_768.0], Element::F64),
            (&[f64::INFINITY], Element::F64),
        ] {
            let path = folder.path().join("numbers");
            let mut file = NumbersFile::create(path, &cache, Path::new("all.csv")).unwrap();
            file.append(&short, 0.5).unwrap();
            file.append(more, 1.0).unwrap();
            assert_eq!(file.element, element, "{more:?}");
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            let found = file.read(0, file.count).unwrap();
            assert!(bits(&found) == bits(&[&short, more].concat()), "{more:?}");
        }
    }

    #[test]
    fn numbers_are_replaced_where_they_stand() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let path = folder.path().join("numbers");
        let mut file = NumbersFile::create(path, &cache, Path::new("all.csv")).unwrap();
        file.append(&[0.0, 2.0, 1.0, 0.0], 1.0).unwrap();
        file.replace(&[5, 9, 4]).unwrap();
        assert_eq!(file.read(0, 4).unwrap(), [5.0, 4.0, 9.0, 5.0]);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_one_of_the_cache_and_not_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let path = folder.path().join("nowhere").join("numbers");
        let refused = NumbersFile::create(path, &cache, Path::new("all.csv")).map(|_| ()).unwrap_err();
        assert_eq!(refused.code(), "E630");
    }
}
