//! The same numbers of every sample, from one file or several: in memory, or on the disk.

use std::path::Path;

use super::array::Array;
use super::disk_array::DiskArray;
use super::error::{DataError, FormatError};
use super::file::{MAX_ELEMENTS, too_large};

/// Samples of one file, or of several that are in memory.
#[derive(Debug, Clone)]
pub(super) enum ArrayPart {
    InMemory(Array),
    OnDisk(DiskArray),
}

/// Samples of all files, one part or more.
#[derive(Debug, Clone)]
pub(super) struct ArrayParts {
    pub(super) first: ArrayPart,
    pub(super) others: Vec<ArrayPart>,
}

impl From<Array> for ArrayPart {
    fn from(array: Array) -> Self {
        Self::InMemory(array)
    }
}

impl From<DiskArray> for ArrayPart {
    fn from(array: DiskArray) -> Self {
        Self::OnDisk(array)
    }
}

impl ArrayPart {
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::InMemory(array) => array.rows,
            Self::OnDisk(array) => array.rows,
        }
    }

    /// Of one sample.
    fn shape(&self) -> &[usize] {
        match self {
            Self::InMemory(array) => &array.shape,
            Self::OnDisk(array) => &array.shape,
        }
    }

    /// The first of its files.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::InMemory(array) => array.path(),
            Self::OnDisk(array) => array.path(),
        }
    }

    /// Type of numbers and shape of a sample, such as `uint8 [28, 28]`.
    fn kind(&self) -> String {
        match self {
            Self::InMemory(array) => array.kind(),
            Self::OnDisk(array) => array.kind(),
        }
    }

    /// The column of a table, from 1, of a number of the first sample; `None` for what is no table.
    pub(super) fn table_column(&self, index: usize) -> Option<usize> {
        match self {
            Self::InMemory(array) => array.table_column(index),
            Self::OnDisk(array) => array.table_column(index),
        }
    }

    fn is_side_by_side(&self) -> bool {
        match self {
            Self::InMemory(array) => array.is_side_by_side(),
            Self::OnDisk(_) => true,
        }
    }
}

impl ArrayParts {
    /// Those of one file.
    pub(super) fn of(first: impl Into<ArrayPart>) -> Self {
        Self { first: first.into(), others: Vec::new() }
    }

    pub(super) fn rows(&self) -> usize {
        self.first.rows() + self.others.iter().map(ArrayPart::rows).sum::<usize>()
    }

    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.first.shape().iter().product()
    }

    /// Puts samples of further files behind these, if they are kept alike. `name`: what the model calls them.
    pub(super) fn append(&mut self, other: Self, name: &str) -> Result<(), DataError> {
        for part in std::iter::once(other.first).chain(other.others) {
            self.append_part(part, name)?;
        }
        Ok(())
    }

    fn append_part(&mut self, part: ArrayPart, name: &str) -> Result<(), DataError> {
        let last = self.others.last_mut().unwrap_or(&mut self.first);
        let [there, here] = [last.kind(), part.kind()];
        if there != here || !last.is_side_by_side() || !part.is_side_by_side() {
            let (path, first) = (part.path().to_owned(), self.first.path().to_owned());
            let what = format!("`{name}` is {here} a sample, and {there} there");
            return Err(FormatError::UnlikeFiles { path, first, what }.into());
        }
        match (last, part) {
            (ArrayPart::InMemory(last), ArrayPart::InMemory(more)) => {
                if (last.numbers.len() + more.numbers.len()) as u64 > MAX_ELEMENTS {
                    let unit = "numbers, with those of the files before it";
                    return Err(too_large(more.path(), MAX_ELEMENTS, unit));
                }
                last.append(more);
            }
            (_, part) => self.others.push(part),
        }
        Ok(())
    }
}
