//! An array that stays in its file: its samples are read when a batch wants them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::array::Array;
use super::contents::{DiskFile, room};
use super::elements::{Described, Element};
use super::error::{DataError, FileError, FormatError};
use super::file::{MAX_ELEMENTS, STEP_BYTES, Step, too_large};
use super::idx::{Idx, Number};

/// Where the numbers of an array lie, sample behind sample.
#[derive(Debug, Clone)]
pub(super) struct DiskArray {
    file: Arc<DiskFile>,
    /// Of the first number, in bytes from the start of the file.
    start: u64,
    encoding: Encoding,
    /// Numbers of a sample in the file, and which of them these are; the others are another input's.
    width_in_file: usize,
    part: Range<usize>,
    /// Of one sample.
    pub(super) shape: Vec<usize>,
    pub(super) rows: usize,
    /// What messages call it.
    path: PathBuf,
    /// The column of a table, from 0, that each number of a sample comes from; empty for what is no table.
    columns: Vec<usize>,
    /// The names of all columns of that table.
    column_names: Option<Arc<[String]>>,
}

/// How a number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    LittleEndian(Element),
    /// Big-endian.
    Idx(Number),
}

impl Encoding {
    fn bytes(self) -> u64 {
        match self {
            Self::LittleEndian(element) => element.bytes(),
            Self::Idx(number) => number.bytes(),
        }
    }

    /// What its numbers are in memory.
    fn kept_as(self) -> &'static str {
        match self {
            Self::LittleEndian(element) => match element {
                Element::Bool | Element::U8 => "uint8",
                Element::I8 | Element::U16 | Element::I16 | Element::I32 => "int32",
                Element::U32 | Element::U64 | Element::I64 => "int64",
                Element::F16 | Element::BF16 | Element::F32 => "float32",
                Element::F64 => "float64",
            },
            Self::Idx(number) => match number {
                Number::U8 => "uint8",
                Number::I8 | Number::I16 | Number::I32 => "int32",
                Number::F32 => "float32",
                Number::F64 => "float64",
            },
        }
    }
}

impl DiskArray {
    /// An array of these sizes, the first of which counts the samples, if it fits into the file.
    pub(super) fn new(
        file: &Arc<DiskFile>,
        start: u64,
        encoding: Encoding,
        sizes: &[usize],
    ) -> Result<Self, DataError> {
        let (&rows, shape) = sizes.split_first().unwrap_or((&0, &[]));
        let width = bounded(shape, MAX_ELEMENTS)
            .ok_or_else(|| too_large(file.path(), MAX_ELEMENTS, "numbers in one sample"))?;
        if u32::try_from(rows).is_err() {
            return Err(too_large(file.path(), u32::MAX.into(), "samples"));
        }
        // Below 2^31 times 8 times 2^32.
        let needed = u128::from(width * encoding.bytes()) * rows as u128;
        if rows == 0 || width == 0 || u128::from(start) + needed > u128::from(file.bytes()) {
            let reason = format!("an array of shape {sizes:?} does not fit into it");
            return Err(FormatError::Malformed { path: file.path().to_owned(), reason }.into());
        }
        let width_in_file = width as usize;
        Ok(Self {
            file: file.clone(),
            start,
            encoding,
            width_in_file,
            part: 0..width_in_file,
            shape: shape.to_vec(),
            rows,
            path: file.path().to_owned(),
            columns: Vec::new(),
            column_names: None,
        })
    }

    /// These numbers of each sample, which is read as a whole all the same.
    pub(super) fn part(self, part: Range<usize>) -> Self {
        Self { shape: vec![part.len()], part, ..self }
    }

    /// The same as numbers of this table. `columns`: the one of its file, from 0, that each number of a
    /// sample comes from.
    pub(super) fn of_table(self, path: &Path, columns: Vec<usize>, names: &Arc<[String]>) -> Self {
        Self { path: path.to_owned(), columns, column_names: Some(names.clone()), ..self }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The column of a table, from 1, of the number at `index`; `None` for what is no table.
    pub(super) fn table_column(&self, index: usize) -> Option<usize> {
        self.columns.get(index).map(|column| column + 1)
    }

    /// Type of numbers and shape of a sample, as [`Array::kind`] says it of what is read of it.
    pub(super) fn kind(&self) -> String {
        format!("{} {:?}", self.encoding.kept_as(), self.shape)
    }

    /// In the file.
    pub(super) fn bytes(&self) -> u64 {
        self.sample_bytes() as u64 * self.rows as u64
    }

    fn sample_bytes(&self) -> usize {
        self.width_in_file * self.encoding.bytes() as usize
    }

    /// What these numbers are of samples as they lie in the file.
    fn own(&self, samples: Vec<u8>) -> Vec<u8> {
        if self.part.len() == self.width_in_file {
            return samples;
        }
        let number = self.encoding.bytes() as usize;
        let own = self.part.start * number..self.part.end * number;
        samples.chunks_exact(self.sample_bytes()).flat_map(|sample| &sample[own.clone()]).copied().collect()
    }

    /// How many samples are read at a time.
    pub(super) fn rows_at_once(&self) -> usize {
        (STEP_BYTES / self.sample_bytes()).max(1)
    }

    /// Reads these samples, which exist. Cost: a call of the system for each run of neighbors.
    pub(super) fn read(&self, rows: &[u32]) -> Result<Array, DataError> {
        let sample = self.sample_bytes();
        let mut bytes = room(rows.len() * sample, &self.path)?;
        let mut rest = bytes.as_mut_slice();
        for run in runs(rows) {
            let (piece, behind) = rest.split_at_mut(run.len() * sample);
            self.file.read_exact_at(piece, self.start + u64::from(run[0]) * sample as u64)?;
            rest = behind;
        }
        self.file.check_unchanged()?;
        let bytes = self.own(bytes);
        let first = rows.first().map_or(0, |&row| row as usize);
        let sizes = [&[rows.len()], self.shape.as_slice()].concat();
        let array = match self.encoding {
            Encoding::LittleEndian(element) => {
                let (path, name, sizes, is_fortran_order) = (self.path(), "", sizes.as_slice(), false);
                let about = Described { path, name, sizes, element, is_fortran_order, skipped_rows: first };
                about.read(bytes.as_slice(), bytes.len(), &mut || Ok(()))?
            }
            Encoding::Idx(number) => {
                Idx { dims: sizes, number, data: &bytes }.array(self.path()).behind(first)
            }
        };
        Ok(array.into_columns_of(&self.columns, self.column_names.as_ref()))
    }

    /// Asks the system to fetch these samples meanwhile.
    pub(super) fn read_ahead(&self, rows: &[u32]) {
        let sample = self.sample_bytes() as u64;
        for run in runs(rows) {
            self.file.read_ahead(self.start + u64::from(run[0]) * sample, run.len() as u64 * sample);
        }
    }

    /// Reads all samples, so many at a time.
    pub(super) fn each_piece(
        &self,
        step: &mut Step<'_>,
        mut each: impl FnMut(Array) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let at_once = self.rows_at_once();
        for first in (0..self.rows).step_by(at_once) {
            let rows: Vec<u32> = (first..self.rows.min(first + at_once)).map(|row| row as u32).collect();
            each(self.read(&rows)?)?;
            step().map_err(|source| FileError::Io { path: self.path().to_owned(), source })?;
        }
        Ok(())
    }
}

/// Samples that lie one behind the other.
fn runs(rows: &[u32]) -> impl Iterator<Item = &[u32]> {
    rows.chunk_by(|row, next| row.checked_add(1) == Some(*next))
}

/// The product, if it is no more than that.
pub(super) fn bounded(sizes: &[usize], most: u64) -> Option<u64> {
    sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size as u64).filter(|&all| all <= most))
}
