//! A data set in memory.

use std::path::Path;

use syncline_scheduler::spec::{DataSpec, Source, Split};

use super::batch::Batch;
use super::error::DataError;
use super::{csv, file, idx};

/// What the labels are for: the loss decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Classes 0 to `count - 1`, one per sample.
    Classes { count: usize },
    /// Float targets of this shape per sample (without the batch dimension).
    Values { shape: Vec<usize> },
}

/// The labels of all samples, in row order.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    Classes(Vec<i64>),
    /// As many numbers per sample as `shape` says.
    Values {
        shape: Vec<usize>,
        data: Vec<f32>,
    },
}

/// Features and labels of every sample. All features are finite, all classes in range.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    sample_shape: Vec<usize>,
    features: Vec<f32>,
    labels: Labels,
    rows: usize,
}

/// What a reader found: features still unscaled, and labels.
pub(super) struct Raw {
    pub(super) features: Vec<f32>,
    /// Shape of one sample in the file.
    pub(super) shape: Vec<usize>,
    pub(super) labels: Labels,
    pub(super) rows: usize,
}

impl Dataset {
    /// Reads and checks the data set that `spec` names. If the spec has a digest, other bytes are refused.
    pub fn open(spec: &DataSpec, target: &Target) -> Result<Self, DataError> {
        let mut hasher = blake3::Hasher::new();
        let files = file::files(&spec.source);
        let contents: Vec<Vec<u8>> =
            files.iter().map(|path| file::read(path, &mut hasher)).collect::<Result<_, _>>()?;
        let found = hasher.finalize().to_hex();
        if let Some(expected) = spec.digest.as_ref().filter(|expected| expected.as_str() != found.as_str()) {
            return Err(DataError::Digest { expected: expected.clone(), found: found.to_string() });
        }
        let mut raw = match (&spec.source, contents.as_slice()) {
            (Source::Csv { label_columns, skip_lines, .. }, [table]) => {
                csv::read(files[0], table, *label_columns, *skip_lines, target)?
            }
            (Source::Idx { .. }, [images, labels]) => {
                idx::read((files[0], images), (files[1], labels), target)?
            }
            _ => unreachable!("a source has as many contents as files"),
        };
        scale(files[0], &mut raw, spec.scale)?;
        let sample_shape = sample_shape(&spec.sample_shape, &raw.shape)?;
        Ok(Self { sample_shape, features: raw.features, labels: raw.labels, rows: raw.rows })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Shape of one sample.
    pub fn sample_shape(&self) -> &[usize] {
        &self.sample_shape
    }

    /// All labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The features of one sample; empty if there is no such row.
    pub fn sample(&self, row: usize) -> &[f32] {
        let width = self.sample_len();
        self.features.get(row * width..(row + 1) * width).unwrap_or_default()
    }

    /// Rows that train and rows that test, each ascending.
    pub fn split(&self, split: Split) -> (Vec<u32>, Vec<u32>) {
        (0..self.rows as u32).partition(|&row| !split.is_test(u64::from(row)))
    }

    /// An empty batch of this data set's shapes, to be filled by [`gather`](Self::gather).
    pub fn batch(&self) -> Batch {
        Batch::like(&self.sample_shape, &self.labels)
    }

    /// Copies rows into `batch`, in the given order, replacing what it held. Allocates only while the batch grows.
    pub fn gather(&self, rows: &[u32], batch: &mut Batch) -> Result<(), DataError> {
        if let Some(&index) = rows.iter().find(|&&row| row as usize >= self.rows) {
            return Err(DataError::NoSuchRow { index, rows: self.rows });
        }
        batch.fill(rows, &self.features, self.sample_len(), &self.labels);
        Ok(())
    }

    fn sample_len(&self) -> usize {
        self.sample_shape.iter().product()
    }
}

/// The shape the spec asks for, if the file has as many numbers per sample; else a flat vector of them.
fn sample_shape(asked: &[u32], found: &[usize]) -> Result<Vec<usize>, DataError> {
    let width: usize = found.iter().product();
    if asked.is_empty() {
        return Ok(vec![width]);
    }
    let shape: Vec<usize> = asked.iter().map(|&size| size as usize).collect();
    match shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size)) {
        Some(count) if count == width => Ok(shape),
        _ => Err(DataError::Shape {
            reason: format!("sample shape {shape:?} does not hold the {width} numbers of a sample"),
        }),
    }
}

fn scale(path: &Path, raw: &mut Raw, factor: f32) -> Result<(), DataError> {
    let width: usize = raw.shape.iter().product();
    for (index, value) in raw.features.iter_mut().enumerate() {
        *value *= factor;
        if !value.is_finite() {
            let (row, column) = (index / width + 1, index % width + 1);
            return Err(DataError::NotFinite { path: path.to_owned(), row, column, value: *value });
        }
    }
    Ok(())
}

/// A class from a number in a file. `row` counts from 0.
pub(super) fn class(path: &Path, row: usize, number: f64, classes: usize) -> Result<i64, DataError> {
    if number.fract() == 0.0 && number >= 0.0 && number < classes as f64 {
        return Ok(number as i64);
    }
    Err(DataError::Label { path: path.to_owned(), row: row + 1, found: number.to_string(), classes })
}

/// Refuses targets whose shape does not hold `columns` numbers.
pub(super) fn check_target(target: &Target, columns: usize) -> Result<(), DataError> {
    let (needed, what) = match target {
        Target::Classes { .. } => (1, "a class".to_owned()),
        Target::Values { shape } => (shape.iter().product(), format!("a target of shape {shape:?}")),
    };
    if needed == columns {
        return Ok(());
    }
    Err(DataError::Shape { reason: format!("{what} needs {needed} label columns, the data has {columns}") })
}
