//! What readers find: arrays of numbers as they lie in the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::array_parts::ArrayParts;
use super::csv::TableNames;
use super::error::DataError;
use super::file::too_large;
use super::signature::ModelSignature;

/// Below it float32 holds every integer.
pub(super) const EXACT_INTEGERS: f64 = (1 << 24) as f64;

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
    pub(super) numbers: Numbers,
    /// Shape of one sample.
    pub(super) shape: Vec<usize>,
    pub(super) rows: usize,
    /// Where the first sample begins, and how far the next one is from it. Samples may overlap.
    pub(super) offset: usize,
    pub(super) stride: usize,
    /// The files, for messages; one or more, in the order of their samples.
    origins: Vec<Origin>,
}

/// A file that samples come from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) path: PathBuf,
    /// The first sample that does.
    pub(super) first_row: usize,
    /// Samples of the file in front of that one, which are not here.
    pub(super) skipped_rows: usize,
    /// The column of the file, from 0, that each number of a sample comes from; empty: from the column of
    /// its index.
    pub(super) columns: Vec<usize>,
    /// Names of all columns of a table, as they stand in the file; empty where it has no header. `None` for
    /// what is no table.
    pub(super) column_names: Option<Arc<[String]>>,
}

impl Origin {
    /// A file of which everything is there, from this sample on.
    pub(super) fn of(path: &Path, first_row: usize) -> Self {
        Self { path: path.to_owned(), first_row, skipped_rows: 0, columns: Vec::new(), column_names: None }
    }
}

/// Where a number stands.
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Both from 1.
    pub(super) row: usize,
    pub(super) column: usize,
    /// That of its column of a table, empty without a header; `None` for what is no table.
    pub(super) column_name: Option<String>,
}

/// Everything that a model wants of one source; as many arrays as the model has inputs.
pub(super) struct SourceArrays {
    pub(super) inputs: Vec<ArrayParts>,
    pub(super) label: Option<ArrayParts>,
    pub(super) rows: usize,
    /// The names of a table's columns and classes, by which those of a test or validation file are found.
    pub(super) names: TableNames,
}

impl SourceArrays {
    /// Puts what was found in the next file behind this.
    pub(super) fn append(&mut self, other: Self, wanted: &ModelSignature) -> Result<(), DataError> {
        if u32::try_from(self.rows + other.rows).is_err() {
            let part = other.inputs.first().or(other.label.as_ref());
            let path = part.map(|part| part.first.path().to_owned()).unwrap_or_default();
            return Err(too_large(&path, u32::MAX.into(), "samples, with those of the files before it"));
        }
        let names = wanted.inputs.iter().map(|input| &input.name).chain(wanted.label.iter().map(|l| &l.name));
        let arrays = self.inputs.iter_mut().chain(&mut self.label);
        for ((array, more), name) in arrays.zip(other.inputs.into_iter().chain(other.label)).zip(names) {
            array.append(more, name)?;
        }
        self.rows += other.rows;
        Ok(())
    }
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
        let origins = vec![Origin::of(path, 0)];
        Self { numbers, shape, rows, offset, stride, origins }
    }

    /// The same, read from these files, one or more.
    pub(super) fn with_origins(self, origins: Vec<Origin>) -> Self {
        Self { origins, ..self }
    }

    /// The same, of a file that has so many samples in front of these.
    pub(super) fn behind(mut self, rows: usize) -> Self {
        self.origins.iter_mut().for_each(|origin| origin.skipped_rows = rows);
        self
    }

    /// The same of a table, whose numbers come from these columns, which have such names; none for what is no
    /// table.
    pub(super) fn into_columns_of(mut self, columns: &[usize], names: Option<&Arc<[String]>>) -> Self {
        for origin in &mut self.origins {
            (origin.columns, origin.column_names) = (columns.to_vec(), names.cloned());
        }
        self
    }

    /// Puts samples of further files behind these, which are of the same kind.
    pub(super) fn append(&mut self, other: Self) {
        match (&mut self.numbers, other.numbers) {
            (Numbers::U8(all), Numbers::U8(more)) => all.extend(more),
            (Numbers::I32(all), Numbers::I32(more)) => all.extend(more),
            (Numbers::I64(all), Numbers::I64(more)) => all.extend(more),
            (Numbers::F32(all), Numbers::F32(more)) => all.extend(more),
            (Numbers::F64(all), Numbers::F64(more)) => all.extend(more),
            _ => unreachable!("arrays of one kind have numbers of one type"),
        }
        let first_row = |origin: Origin| Origin { first_row: self.rows + origin.first_row, ..origin };
        self.origins.extend(other.origins.into_iter().map(first_row));
        self.rows += other.rows;
    }

    /// Type of numbers and shape of a sample, such as `uint8 [28, 28]`.
    pub(super) fn kind(&self) -> String {
        let numbers = match self.numbers {
            Numbers::U8(_) => "uint8",
            Numbers::I32(_) => "int32",
            Numbers::I64(_) => "int64",
            Numbers::F32(_) => "float32",
            Numbers::F64(_) => "float64",
        };
        format!("{numbers} {:?}", self.shape)
    }

    /// The first of its files.
    pub(super) fn path(&self) -> &Path {
        self.origins.first().map_or(Path::new(""), |origin| &origin.path)
    }

    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether each sample begins where the one before it ends, as where nothing was said of it.
    pub(super) fn is_side_by_side(&self) -> bool {
        self.offset == 0 && self.stride == self.width()
    }

    /// Where the number at `index` stands.
    pub(super) fn place(&self, index: usize) -> Place {
        let (row, index) = (index / self.stride.max(1), index % self.stride.max(1));
        let behind = self.origins.partition_point(|origin| origin.first_row <= row);
        let origin = self.origins.get(behind.saturating_sub(1));
        let column = origin.and_then(|origin| origin.columns.get(index)).copied().unwrap_or(index);
        let names = origin.and_then(|origin| origin.column_names.as_deref());
        let column_name = names.map(|names| names.get(column).cloned().unwrap_or_default());
        let (first_row, skipped) = origin.map_or((0, 0), |origin| (origin.first_row, origin.skipped_rows));
        let path = origin.map(|origin| origin.path.clone()).unwrap_or_default();
        Place { path, row: row - first_row + skipped + 1, column: column + 1, column_name }
    }

    /// The column of a table, from 1, of the number at `index`; `None` for what is no table.
    pub(super) fn table_column(&self, index: usize) -> Option<usize> {
        let is_table = self.origins.first().is_some_and(|origin| !origin.columns.is_empty());
        is_table.then(|| self.place(index).column)
    }
}

impl Array {
    /// Samples of height, width and channels as samples of channels, height and width; `None` for other
    /// shapes.
    pub(super) fn channels_first(mut self) -> Option<Self> {
        let &[height, width, channels] = self.shape.as_slice() else { return None };
        if !self.is_side_by_side() {
            return None;
        }
        let area = height * width;
        for origin in &mut self.origins {
            if origin.columns.is_empty() {
                origin.columns = (0..self.stride).collect();
            }
            origin.columns = transposed(&origin.columns, area, channels);
        }
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

    /// The number at `index` if it is whole, else as it is. Floats count as whole below 2^24: beyond, float32
    /// does not hold every integer.
    pub(super) fn whole(&self, index: usize) -> Result<i64, f64> {
        let float = |number: f64| match number.fract() == 0.0 && number.abs() < EXACT_INTEGERS {
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

    /// All numbers as float64.
    pub(super) fn into_f64(self) -> Vec<f64> {
        match self {
            Self::U8(all) => all.into_iter().map(f64::from).collect(),
            Self::I32(all) => all.into_iter().map(f64::from).collect(),
            Self::I64(all) => all.into_iter().map(|number| number as f64).collect(),
            Self::F32(all) => all.into_iter().map(f64::from).collect(),
            Self::F64(all) => all,
        }
    }
}
