//! Inputs of a run, borrowed.

use ort::session::SessionInputValue;
use ort::value::TensorRef;
use syncline_onnx::ElementType;

use crate::error::BackendError;

/// A tensor that the caller owns, in row-major order. Running a model reads it in place.
#[derive(Debug, Clone, Copy)]
pub enum TensorView<'a> {
    F32 { shape: &'a [usize], data: &'a [f32] },
    F64 { shape: &'a [usize], data: &'a [f64] },
    I32 { shape: &'a [usize], data: &'a [i32] },
    I64 { shape: &'a [usize], data: &'a [i64] },
}

impl<'a> TensorView<'a> {
    /// Element type.
    pub fn element(&self) -> ElementType {
        match self {
            Self::F32 { .. } => ElementType::F32,
            Self::F64 { .. } => ElementType::F64,
            Self::I32 { .. } => ElementType::I32,
            Self::I64 { .. } => ElementType::I64,
        }
    }

    /// Shape.
    pub fn shape(&self) -> &'a [usize] {
        match *self {
            Self::F32 { shape, .. }
            | Self::F64 { shape, .. }
            | Self::I32 { shape, .. }
            | Self::I64 { shape, .. } => shape,
        }
    }

    /// The part of this tensor that has `shape`, from the row `start` on: rows go along the first axis. Has no numbers
    /// if there is no such part.
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
        }
    }

    /// Number of elements in the data.
    fn len(&self) -> usize {
        match self {
            Self::F32 { data, .. } => data.len(),
            Self::F64 { data, .. } => data.len(),
            Self::I32 { data, .. } => data.len(),
            Self::I64 { data, .. } => data.len(),
        }
    }

    /// Whether there are as many numbers as the shape says.
    pub(super) fn check_size(&self, name: &str) -> Result<(), BackendError> {
        let elements = self.shape().iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        if elements == Some(self.len()) {
            return Ok(());
        }
        let (shape, found) = (self.shape().to_vec(), self.len());
        Err(BackendError::InputSize { name: name.to_owned(), shape, found })
    }

    /// The view as ONNX Runtime wants it; no copy.
    pub(super) fn bind(self, name: &str) -> Result<SessionInputValue<'a>, BackendError> {
        self.check_size(name)?;
        let bound = match self {
            Self::F32 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
            Self::F64 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
            Self::I32 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
            Self::I64 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        };
        bound.map_err(|source| BackendError::Run { reason: source.to_string() })
    }
}
