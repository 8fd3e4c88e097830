//! The numbers of all samples for one input, checked, and how a batch of them is copied out.
//!
//! Bytes stay bytes, a quarter of the memory of floats, and are scaled on their way into a batch.

use syncline_onnx::TensorView;
use syncline_scheduler::spec::DataElement;

use super::augment::{Augmentation, Pass};

/// How the numbers of a channel are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Normalization {
    pub(super) factor: f32,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// One input, or the label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) element: DataElement,
    /// Shape of one sample.
    pub(super) shape: Vec<usize>,
    /// Where the first sample begins, and how far the next one is from it.
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) store: ColumnData,
}

/// Numbers as they are kept. Integers are kept as narrow as they came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ColumnData {
    F32(Vec<f32>),
    /// Float64 or integers for a float input, as long as it is not known how they are to be standardized: float32 may round what tells
    /// them apart.
    F64(Vec<f64>),
    /// Bytes for a float input, and the normalization of each channel, or one for all.
    Bytes(Vec<u8>, Vec<Normalization>),
    U8(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

/// One input of a batch, in memory that is used again.
#[derive(Debug, Clone)]
pub(super) struct BatchTensor {
    shape: Vec<usize>,
    data: Buffer,
}

#[derive(Debug, Clone)]
enum Buffer {
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

impl Column {
    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number type and shape of a sample, such as `uint8 [28, 28]`.
    pub(super) fn kind(&self) -> String {
        let numbers = match &self.store {
            ColumnData::F32(_) => "float32",
            ColumnData::F64(_) => "float64",
            ColumnData::Bytes(..) | ColumnData::U8(_) => "uint8",
            ColumnData::I32(_) => "int32",
            ColumnData::I64(_) => "int64",
        };
        format!("{numbers} {:?}", self.shape)
    }

    /// Puts the samples of a test set after these; `false` if they are of another shape or kept in another type.
    pub(super) fn append(&mut self, other: Self) -> bool {
        match (&mut self.store, other.store) {
            _ if self.shape != other.shape => return false,
            (ColumnData::F32(all), ColumnData::F32(more)) => all.extend(more),
            (ColumnData::F64(all), ColumnData::F64(more)) => all.extend(more),
            (ColumnData::Bytes(all, _), ColumnData::Bytes(more, _))
            | (ColumnData::U8(all), ColumnData::U8(more)) => all.extend(more),
            (ColumnData::I32(all), ColumnData::I32(more)) => all.extend(more),
            (ColumnData::I64(all), ColumnData::I64(more)) => all.extend(more),
            _ => return false,
        }
        true
    }

    /// An input without samples.
    pub(super) fn batch(&self) -> BatchTensor {
        let data = match self.element {
            DataElement::F32 => Buffer::F32(Vec::new()),
            DataElement::I32 => Buffer::I32(Vec::new()),
            DataElement::I64 => Buffer::I64(Vec::new()),
            DataElement::Bool => Buffer::Bool(Vec::new()),
        };
        BatchTensor { shape: [&[0], self.shape.as_slice()].concat(), data }
    }

    /// Replaces what `batch` holds by these rows, which exist. The batch was made by this column.
    pub(super) fn gather(&self, rows: &[u32], batch: &mut BatchTensor) {
        batch.shape[0] = rows.len();
        match (&self.store, &mut batch.data) {
            (ColumnData::F32(all), Buffer::F32(batch)) => self.copy(rows, all, batch, |number| number),
            (ColumnData::F64(all), Buffer::F32(batch)) => self.copy(rows, all, batch, |number| number as f32),
            (ColumnData::Bytes(all, normalizations), Buffer::F32(batch)) => {
                self.scale(rows, all, normalizations, batch)
            }
            (ColumnData::U8(all), Buffer::Bool(batch)) => self.copy(rows, all, batch, |number| number != 0),
            (ColumnData::U8(all), Buffer::I32(batch)) => self.copy(rows, all, batch, i32::from),
            (ColumnData::I32(all), Buffer::I32(batch)) => self.copy(rows, all, batch, |number| number),
            (ColumnData::U8(all), Buffer::I64(batch)) => self.copy(rows, all, batch, i64::from),
            (ColumnData::I32(all), Buffer::I64(batch)) => self.copy(rows, all, batch, i64::from),
            (ColumnData::I64(all), Buffer::I64(batch)) => self.copy(rows, all, batch, |number| number),
            _ => unreachable!(
                "a batch is filled by the column that made it, which keeps what fits its element"
            ),
        }
    }

    /// The same with images that change in this pass: of a float input of three axes.
    pub(super) fn gather_augmented(
        &self,
        rows: &[u32],
        augmentation: &Augmentation,
        pass: Pass,
        batch: &mut BatchTensor,
    ) {
        batch.shape[0] = rows.len();
        let Buffer::F32(batch) = &mut batch.data else { unreachable!("images are floats") };
        batch.clear();
        batch.reserve(rows.len() * self.width());
        for &row in rows {
            match &self.store {
                ColumnData::F32(all) => augmentation.show(self.sample(row, all), (pass, row), batch),
                ColumnData::Bytes(all, _) => augmentation.show(self.sample(row, all), (pass, row), batch),
                _ => unreachable!("a float input is kept as floats or bytes"),
            }
        }
    }

    /// Whether its numbers are kept as they came, and are scaled on their way into a batch.
    pub(super) fn is_scaled_in_a_batch(&self) -> bool {
        matches!(self.store, ColumnData::Bytes(..))
    }

    /// Whether every number of these rows, which exist, is this integer.
    pub(super) fn is_only(&self, number: i64, rows: &[u32]) -> bool {
        let mut rows = rows.iter();
        match &self.store {
            ColumnData::I64(all) => {
                rows.all(|&row| self.sample(row, all).iter().all(|&found| found == number))
            }
            ColumnData::I32(all) => {
                rows.all(|&row| self.sample(row, all).iter().all(|&found| i64::from(found) == number))
            }
            ColumnData::U8(all) => {
                rows.all(|&row| self.sample(row, all).iter().all(|&found| i64::from(found) == number))
            }
            ColumnData::F32(_) | ColumnData::F64(_) | ColumnData::Bytes(..) => false,
        }
    }

    /// The numbers of one sample.
    pub(super) fn sample<'a, T>(&self, row: u32, all: &'a [T]) -> &'a [T] {
        let start = self.offset + row as usize * self.stride;
        &all[start..start + self.width()]
    }

    fn copy<S: Copy, T>(&self, rows: &[u32], all: &[S], batch: &mut Vec<T>, convert: impl Fn(S) -> T) {
        batch.clear();
        batch.reserve(rows.len() * self.width());
        for &row in rows {
            batch.extend(self.sample(row, all).iter().map(|&number| convert(number)));
        }
    }

    fn scale(&self, rows: &[u32], all: &[u8], normalizations: &[Normalization], batch: &mut Vec<f32>) {
        let plane = (self.width() / normalizations.len()).max(1);
        batch.clear();
        batch.reserve(rows.len() * self.width());
        for &row in rows {
            for (plane, normalization) in self.sample(row, all).chunks_exact(plane).zip(normalizations) {
                batch.extend(plane.iter().map(|&byte| normalization.apply(f32::from(byte))));
            }
        }
    }
}

impl Normalization {
    /// Nothing changes.
    pub(super) const NONE: Self = Self { factor: 1.0, mean: 0.0, deviation: 1.0 };

    pub(super) fn apply(self, number: f32) -> f32 {
        (number * self.factor - self.mean as f32) / self.deviation as f32
    }

    /// The same before anything is rounded to float32.
    pub(super) fn apply_wide(self, number: f64) -> f32 {
        ((number * f64::from(self.factor) - self.mean) / self.deviation) as f32
    }
}

impl BatchTensor {
    /// `[batch, sample shape ...]`.
    pub(super) fn view(&self) -> TensorView<'_> {
        let shape = self.shape.as_slice();
        match &self.data {
            Buffer::F32(data) => TensorView::F32 { shape, data },
            Buffer::I32(data) => TensorView::I32 { shape, data },
            Buffer::I64(data) => TensorView::I64 { shape, data },
            Buffer::Bool(data) => TensorView::Bool { shape, data },
        }
    }
}
