//! Inputs of a run, borrowed.

use ort::session::SessionInputValue;
use ort::value::TensorRef;
use syncline_onnx::TensorView;

use crate::error::BackendError;

/// Whether there are as many numbers as the shape says.
pub(super) fn check_size(view: &TensorView<'_>, name: &str) -> Result<(), BackendError> {
    let elements = view.shape().iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    if elements == Some(view.len()) {
        return Ok(());
    }
    let (shape, found) = (view.shape().to_vec(), view.len());
    Err(BackendError::InputSize { name: name.to_owned(), shape, found })
}

/// The view as ONNX Runtime wants it; no copy.
pub(super) fn bind<'a>(view: TensorView<'a>, name: &str) -> Result<SessionInputValue<'a>, BackendError> {
    check_size(&view, name)?;
    let bound = match view {
        TensorView::F32 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        TensorView::F64 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        TensorView::I32 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        TensorView::I64 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        TensorView::U8 { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
        TensorView::Bool { shape, data } => TensorRef::from_array_view((shape, data)).map(Into::into),
    };
    bound.map_err(|source| BackendError::Run { reason: source.to_string() })
}
