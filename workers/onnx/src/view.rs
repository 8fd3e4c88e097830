//! Tensors that somebody else owns.

use crate::element::ElementType;

/// A tensor that the caller owns, in row-major order. Running a model reads it in place.
#[derive(Debug, Clone, Copy)]
pub enum TensorView<'a> {
    /// float32: parameters, gradients and most data.
    F32 {
        /// Sizes of the axes; empty for a single number.
        shape: &'a [usize],
        /// Numbers, the last axis fastest; whoever runs a model checks their count.
        data: &'a [f32],
    },
    /// float64, in which gradients are checked.
    F64 {
        /// Sizes of the axes; empty for a single number.
        shape: &'a [usize],
        /// Numbers, the last axis fastest; whoever runs a model checks their count.
        data: &'a [f64],
    },
    /// int32.
    I32 {
        /// Sizes of the axes; empty for a single number.
        shape: &'a [usize],
        /// Numbers, the last axis fastest; whoever runs a model checks their count.
        data: &'a [i32],
    },
    /// int64: ids and class labels.
    I64 {
        /// Sizes of the axes; empty for a single number.
        shape: &'a [usize],
        /// Numbers, the last axis fastest; whoever runs a model checks their count.
        data: &'a [i64],
    },
    /// uint8.
    U8 {
        /// Sizes of the axes; empty for a single number.
        shape: &'a [usize],
        /// Numbers, the last axis fastest; whoever runs a model checks their count.
        data: &'a [u8],
    },
    /// Truth values of one byte each.
    Bool {
        /// Sizes of the axes; empty for a single value.
        shape: &'a [usize],
        /// Truth values, the last axis fastest; whoever runs a model checks their count.
        data: &'a [bool],
    },
}

impl<'a> TensorView<'a> {
    /// Element type.
    pub fn element(&self) -> ElementType {
        match self {
            Self::F32 { .. } => ElementType::F32,
            Self::F64 { .. } => ElementType::F64,
            Self::I32 { .. } => ElementType::I32,
            Self::I64 { .. } => ElementType::I64,
            Self::U8 { .. } => ElementType::U8,
            Self::Bool { .. } => ElementType::Bool,
        }
    }

    /// Shape.
    pub fn shape(&self) -> &'a [usize] {
        match *self {
            Self::F32 { shape, .. }
            | Self::F64 { shape, .. }
            | Self::I32 { shape, .. }
            | Self::I64 { shape, .. }
            | Self::U8 { shape, .. }
            | Self::Bool { shape, .. } => shape,
        }
    }

    /// The part of this tensor that has `shape`, from the row `start` on: rows go along the first axis. Has
    /// no numbers if there is no such part.
    pub fn rows<'s>(self, start: usize, shape: &'s [usize]) -> TensorView<'s>
    where
        'a: 's,
    {
        let width: usize = shape.iter().skip(1).product();
        let range = start * width..start * width + shape.iter().product::<usize>();
        match self {
            Self::F32 { data, .. } => TensorView::F32 { shape, data: data.get(range).unwrap_or_default() },
            Self::F64 { data, .. } => TensorView::F64 { shape, data: data.get(range).unwrap_or_default() },
            Self::I32 { data, .. } => TensorView::I32 { shape, data: data.get(range).unwrap_or_default() },
            Self::I64 { data, .. } => TensorView::I64 { shape, data: data.get(range).unwrap_or_default() },
            Self::U8 { data, .. } => TensorView::U8 { shape, data: data.get(range).unwrap_or_default() },
            Self::Bool { data, .. } => TensorView::Bool { shape, data: data.get(range).unwrap_or_default() },
        }
    }

    /// Whether the data has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of elements in the data, whatever the shape says.
    pub fn len(&self) -> usize {
        match self {
            Self::F32 { data, .. } => data.len(),
            Self::F64 { data, .. } => data.len(),
            Self::I32 { data, .. } => data.len(),
            Self::I64 { data, .. } => data.len(),
            Self::U8 { data, .. } => data.len(),
            Self::Bool { data, .. } => data.len(),
        }
    }
}
