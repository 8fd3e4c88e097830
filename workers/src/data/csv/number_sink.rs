//! Where the numbers of a table go as they are read.

use std::path::Path;

use super::super::error::DataError;
use super::super::file::reserve;

/// Keeps numbers in the order in which they come.
pub(super) trait NumberSink {
    /// Most numbers that a table may have.
    const MOST: u64;

    /// `share_read`: which part of the table has been read with these, above 0 and 1 at most.
    fn append(&mut self, numbers: &[f64], share_read: f64) -> Result<(), DataError>;

    /// Puts in place of each number, which is an index into these, the one that stands there.
    fn replace(&mut self, by: &[u32]) -> Result<(), DataError>;
}

/// Keeps them in memory.
pub(super) struct NumbersInMemory<'a> {
    /// The first file of the table.
    pub(super) table: &'a Path,
    pub(super) numbers: Vec<f64>,
}

impl NumberSink for NumbersInMemory<'_> {
    const MOST: u64 = super::super::file::MAX_ELEMENTS;

    fn append(&mut self, numbers: &[f64], _: f64) -> Result<(), DataError> {
        reserve(&mut self.numbers, numbers.len(), self.table)?;
        self.numbers.extend_from_slice(numbers);
        Ok(())
    }

    fn replace(&mut self, by: &[u32]) -> Result<(), DataError> {
        self.numbers.iter_mut().for_each(|number| *number = by[*number as usize].into());
        Ok(())
    }
}
