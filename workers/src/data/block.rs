//! Numbers of samples for one input in memory, checked, and how a batch of them is copied out.
//!
//! Bytes stay bytes, a quarter of the memory of floats, and are scaled on their way into a batch.

use syncline_onnx::TensorView;
use syncline_scheduler::spec::DataElement;

use super::augment::{Augmentation, Pass};

/// How the numbers of a channel are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ChannelNormalization {
    pub(super) factor: f32,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// One input, or the label, of samples that are in memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) element: DataElement,
    /// Shape of one sample.
    pub(super) shape: Vec<usize>,
    /// Where the first sample begins, and how far the next one is from it.
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) store: BlockData,
}

/// Numbers as they are kept. Integers are kept as narrow as they came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BlockData {
    F32(Vec<f32>),
    /// Float64 or integers for a float input, as long as it is not known how they are to be standardized:
    /// float32 may round what tells them apart.
    F64(Vec<f64>),
    /// Bytes for a float input, and the normalization of each channel, or one for all.
    Bytes(Vec<u8>, Vec<ChannelNormalization>),
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

impl Block {
    /// Numbers of one sample.
    pub(super) fn width(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number type and shape of a sample, such as `uint8 [28, 28]`.
    pub(super) fn kind(&self) -> String {
        let numbers = match &self.store {
            BlockData::F32(_) => "float32",
            BlockData::F64(_) => "float64",
            BlockData::Bytes(..) | BlockData::U8(_) => "uint8",
            BlockData::I32(_) => "int32",
            BlockData::I64(_) => "int64",
        };
        format!("{numbers} {:?}", self.shape)
    }

    /// Whether these numbers and those of `other` are floats of the same shape, however many bits each has.
    pub(super) fn is_of_floats_like(&self, other: &Self) -> bool {
        let is_of_floats = |block: &Self| matches!(block.store, BlockData::F32(_) | BlockData::F64(_));
        is_of_floats(self) && is_of_floats(other) && self.shape == other.shape
    }

    /// Puts the samples of a test set, which are of the same kind, after these.
    pub(super) fn append(&mut self, other: Self) {
        match (&mut self.store, other.store) {
            (BlockData::F32(all), BlockData::F32(more)) => all.extend(more),
            (BlockData::F64(all), BlockData::F64(more)) => all.extend(more),
            (BlockData::Bytes(all, _), BlockData::Bytes(more, _))
            | (BlockData::U8(all), BlockData::U8(more)) => all.extend(more),
            (BlockData::I32(all), BlockData::I32(more)) => all.extend(more),
            (BlockData::I64(all), BlockData::I64(more)) => all.extend(more),
            _ => unreachable!("blocks of one kind have numbers of one type"),
        }
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

    /// Puts these rows, which exist, behind what `batch` holds, which was made for such numbers.
    pub(super) fn gather(&self, rows: &[u32], batch: &mut BatchTensor) {
        match (&self.store, &mut batch.data) {
            (BlockData::F32(all), Buffer::F32(batch)) => self.copy(rows, all, batch, |number| number),
            (BlockData::F64(all), Buffer::F32(batch)) => self.copy(rows, all, batch, |number| number as f32),
            (BlockData::Bytes(all, normalizations), Buffer::F32(batch)) => {
                self.scale(rows, all, normalizations, batch)
            }
            (BlockData::U8(all), Buffer::Bool(batch)) => self.copy(rows, all, batch, |number| number != 0),
            (BlockData::U8(all), Buffer::I32(batch)) => self.copy(rows, all, batch, i32::from),
            (BlockData::I32(all), Buffer::I32(batch)) => self.copy(rows, all, batch, |number| number),
            (BlockData::U8(all), Buffer::I64(batch)) => self.copy(rows, all, batch, i64::from),
            (BlockData::I32(all), Buffer::I64(batch)) => self.copy(rows, all, batch, i64::from),
            (BlockData::I64(all), Buffer::I64(batch)) => self.copy(rows, all, batch, |number| number),
            _ => unreachable!(
                "a batch is filled by the column that made it, which keeps what fits its element"
            ),
        }
    }

    /// The same with an image that changes in this pass: of a float input of three axes. `place`: its row
    /// here, and that of the data set, by which it changes.
    pub(super) fn gather_augmented(
        &self,
        (row, row_of_set): (u32, u32),
        augmentation: &Augmentation,
        pass: Pass,
        batch: &mut BatchTensor,
    ) {
        let Buffer::F32(batch) = &mut batch.data else { unreachable!("images are floats") };
        match &self.store {
            BlockData::F32(all) => augmentation.show(self.sample(row, all), (pass, row_of_set), batch),
            BlockData::Bytes(all, _) => augmentation.show(self.sample(row, all), (pass, row_of_set), batch),
            _ => unreachable!("a float input is kept as floats or bytes"),
        }
    }

    /// Whether its numbers are kept as they came, and are scaled on their way into a batch.
    pub(super) fn is_scaled_in_a_batch(&self) -> bool {
        matches!(self.store, BlockData::Bytes(..))
    }

    /// The numbers of one sample.
    pub(super) fn sample<'a, T>(&self, row: u32, all: &'a [T]) -> &'a [T] {
        let start = self.offset + row as usize * self.stride;
        &all[start..start + self.width()]
    }

    fn copy<S: Copy, T>(&self, rows: &[u32], all: &[S], batch: &mut Vec<T>, convert: impl Fn(S) -> T) {
        for &row in rows {
            batch.extend(self.sample(row, all).iter().map(|&number| convert(number)));
        }
    }

    fn scale(&self, rows: &[u32], all: &[u8], normalizations: &[ChannelNormalization], batch: &mut Vec<f32>) {
        let plane = (self.width() / normalizations.len()).max(1);
        for &row in rows {
            for (plane, normalization) in self.sample(row, all).chunks_exact(plane).zip(normalizations) {
                batch.extend(plane.iter().map(|&byte| normalization.apply(f32::from(byte))));
            }
        }
    }
}

impl ChannelNormalization {
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
    /// Makes room for so many samples, in place of what is there.
    pub(super) fn begin(&mut self, rows: usize) {
        self.shape[0] = rows;
        let numbers = self.shape.iter().product();
        fn cleared<T>(data: &mut Vec<T>, numbers: usize) {
            data.clear();
            data.reserve(numbers);
        }
        match &mut self.data {
            Buffer::F32(data) => cleared(data, numbers),
            Buffer::I32(data) => cleared(data, numbers),
            Buffer::I64(data) => cleared(data, numbers),
            Buffer::Bool(data) => cleared(data, numbers),
        }
    }

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
