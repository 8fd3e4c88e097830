//! What readers find: arrays of numbers as they lie in the files.

use std::path::{Path, PathBuf};

use super::csv::TableNames;

/// Numbers in the type that the file has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers {
    U8(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// One array: the same numbers of every sample.
#[derive(Debug, Clone)]
pub(super) struct Array {
    /// The file, for messages.
    pub(super) path: PathBuf,
    pub(super) numbers: Numbers,
    /// Shape of one sample.
    pub(super) shape: Vec<usize>,
    pub(super) rows: usize,
    /// Where the first sample begins, and how far the next one is from it. Samples may overlap.
    pub(super) offset: usize,
    pub(super) stride: usize,
    /// The column of the file, from 0, that each number of a sample comes from; empty: from the column of its index.
    columns: Vec<usize>,
}

/// Everything that a model wants of one source; as many arrays as the model has inputs.
pub(super) struct SourceArrays {
    pub(super) inputs: Vec<Array>,
    pub(super) label: Option<Array>,
    pub(super) rows: usize,
    /// The names of a table's columns and classes, by which those of a test or validation file are found.
    pub(super) names: TableNames,
}

impl Array {
    /// Samples side by side.
    pub(super) fn new(path: &Path, numbers: Numbers, shape: Vec<usize>, rows: usize) -> Self {
        let stride = shape.iter().product();
        Self::overlapping(path, numbers, shape, rows, (0, stride))
    }

    /// Samples that may overlap: where the first one begins, and how far the next one is from it.
    pub(super) fn overlapping(
        path: &Path,
        numbers: Numbers,
        shape: Vec<usize>,
        rows: usize,
        (offset, stride): (usize, usize),
    ) -> Self {
        Self { path: path.to_owned(), numbers, shape, rows, offset, stride, columns: Vec::new() }
    }

    /// The same, read from these columns of the file, as many as a sample has numbers.
    pub(super) fn with_columns(self, columns: Vec<usize>) -> Self {
        Self { columns, ..self }
    }

    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether each sample begins where the one before it ends, as where nothing was said of it.
    pub(super) fn is_side_by_side(&self) -> bool {
        self.offset == 0 && self.stride == self.width()
    }

    /// Row and column in the file, both from 1, of the number at `index`.
    pub(super) fn coordinates(&self, index: usize) -> (usize, usize) {
        let (row, index) = (index / self.stride.max(1), index % self.stride.max(1));
        (row + 1, self.columns.get(index).copied().unwrap_or(index) + 1)
    }

    /// The column of a table, from 1, of the number at `index`; `None` for what is no table.
    pub(super) fn table_column(&self, index: usize) -> Option<usize> {
        (!self.columns.is_empty()).then(|| self.coordinates(index).1)
    }
}

impl Array {
    /// Samples of height, width and channels as samples of channels, height and width; `None` for other shapes.
    pub(super) fn channels_first(mut self) -> Option<Self> {
        let &[height, width, channels] = self.shape.as_slice() else { return None };
        if !self.is_side_by_side() {
            return None;
        }
        let area = height * width;
        let columns = match self.columns.is_empty() {
            true => (0..self.stride).collect(),
            false => self.columns,
        };
        self.columns = transposed(&columns, area, channels);
        self.numbers = match self.numbers {
            Numbers::U8(all) => Numbers::U8(transposed(&all, area, channels)),
            Numbers::I32(all) => Numbers::I32(transposed(&all, area, channels)),
            Numbers::I64(all) => Numbers::I64(transposed(&all, area, channels)),
            Numbers::F32(all) => Numbers::F32(transposed(&all, area, channels)),
            Numbers::F64(all) => Numbers::F64(transposed(&all, area, channels)),
        };
        self.shape = vec![channels, height, width];
        Some(self)
    }
}

/// Each `[area, channels]` of the numbers as `[channels, area]`.
fn transposed<T: Copy>(numbers: &[T], area: usize, channels: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(numbers.len());
    for sample in numbers.chunks_exact((area * channels).max(1)) {
        for channel in 0..channels {
            all.extend(sample.iter().skip(channel).step_by(channels));
        }
    }
    all
}

impl Numbers {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::U8(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// The number at `index` if it is whole, else as it is. Floats count as whole below 2^24: beyond, float32 does not
    /// hold every integer.
    pub(super) fn whole(&self, index: usize) -> Result<i64, f64> {
        const EXACT: f64 = (1 << 24) as f64;
        let float = |number: f64| match number.fract() == 0.0 && number.abs() < EXACT {
            true => Ok(number as i64),
            false => Err(number),
        };
        match self {
            Self::U8(all) => Ok(i64::from(all[index])),
            Self::I32(all) => Ok(i64::from(all[index])),
            Self::I64(all) => Ok(all[index]),
            Self::F32(all) => float(f64::from(all[index])),
            Self::F64(all) => float(all[index]),
        }
    }

    /// All numbers as float32.
    pub(super) fn into_f32(self) -> Vec<f32> {
        match self {
            Self::U8(all) => all.into_iter().map(f32::from).collect(),
            Self::I32(all) => all.into_iter().map(|number| number as f32).collect(),
            Self::I64(all) => all.into_iter().map(|number| number as f32).collect(),
            Self::F32(all) => all,
            Self::F64(all) => all.into_iter().map(|number| number as f32).collect(),
        }
    }
}
