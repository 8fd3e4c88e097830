//! What a run produced, lent to the caller.

use ort::session::SessionOutputs;
use ort::value::{DynValue, PrimitiveTensorElementType, TensorElementType as T};
use syncline_onnx::{ElementType, TensorView};

use crate::error::BackendError;

/// The outputs of one run; their memory goes back to ONNX Runtime when this is dropped.
#[derive(Debug)]
pub struct Outputs<'s> {
    values: SessionOutputs<'s>,
}

impl<'s> Outputs<'s> {
    pub(super) fn new(values: SessionOutputs<'s>) -> Self {
        Self { values }
    }

    /// A float32 output, in row-major order.
    pub fn f32(&self, name: &str) -> Result<&[f32], BackendError> {
        slice(self.find(name)?, name, ElementType::F32)
    }

    /// A float64 output, in row-major order.
    pub fn f64(&self, name: &str) -> Result<&[f64], BackendError> {
        slice(self.find(name)?, name, ElementType::F64)
    }

    /// An int64 output, in row-major order.
    pub fn i64(&self, name: &str) -> Result<&[i64], BackendError> {
        slice(self.find(name)?, name, ElementType::I64)
    }

    /// A float32 output that is one number, such as `loss`.
    pub fn scalar(&self, name: &str) -> Result<f32, BackendError> {
        match self.f32(name)? {
            [number] => Ok(*number),
            many => {
                let found = format!("{} numbers", many.len());
                Err(BackendError::OutputType { name: name.to_owned(), expected: ElementType::F32, found })
            }
        }
    }

    /// The float32 output at a position of [`super::Executable::output_names`]: no search by name.
    pub fn f32_at(&self, index: usize) -> Result<&[f32], BackendError> {
        if index >= self.values.len() {
            return Err(BackendError::UnknownOutput { name: format!("#{index}") });
        }
        slice(&self.values[index], "", ElementType::F32)
    }

    /// The same, to be changed where it lies: with it what
    /// [`Executable::place_outputs`](super::Executable::place_outputs) has it written to.
    pub fn f32_at_mut(&mut self, index: usize) -> Result<&mut [f32], BackendError> {
        if index >= self.values.len() {
            return Err(BackendError::UnknownOutput { name: format!("#{index}") });
        }
        let value = &mut self.values[index];
        let found = value.dtype().to_string();
        value.try_extract_tensor_mut::<f32>().map(|(_, data)| data).map_err(|_| BackendError::OutputType {
            name: String::new(),
            expected: ElementType::F32,
            found,
        })
    }

    /// The shape of an output.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, BackendError> {
        Ok(shape(self.find(name)?))
    }

    /// The output at a position, of whatever type a view has. Its shape is written to `dims`.
    ///
    /// # Errors
    /// E449 for an output that is no tensor, or one of another type.
    pub fn view_at<'a>(
        &'a self,
        index: usize,
        dims: &'a mut Vec<usize>,
    ) -> Result<TensorView<'a>, BackendError> {
        let unknown = || BackendError::UnknownOutput { name: format!("#{index}") };
        let (name, _) = self.values.iter().nth(index).ok_or_else(unknown)?;
        let value = &self.values[index];
        *dims = shape(value);
        let shape = &dims[..];
        Ok(match value.dtype().tensor_type() {
            Some(T::Float32) => TensorView::F32 { shape, data: slice(value, name, ElementType::F32)? },
            Some(T::Float64) => TensorView::F64 { shape, data: slice(value, name, ElementType::F64)? },
            Some(T::Int32) => TensorView::I32 { shape, data: slice(value, name, ElementType::I32)? },
            Some(T::Int64) => TensorView::I64 { shape, data: slice(value, name, ElementType::I64)? },
            Some(T::Uint8) => TensorView::U8 { shape, data: slice(value, name, ElementType::U8)? },
            Some(T::Bool) => TensorView::Bool { shape, data: slice(value, name, ElementType::Bool)? },
            _ => {
                let found = value.dtype().to_string();
                return Err(BackendError::UnreadableOutput { name: name.to_owned(), found });
            }
        })
    }

    fn find(&self, name: &str) -> Result<&DynValue, BackendError> {
        let unknown = || BackendError::UnknownOutput { name: name.to_owned() };
        // `ort` panics on an empty name.
        if name.is_empty() {
            return Err(unknown());
        }
        self.values.get(name).ok_or_else(unknown)
    }
}

fn shape(value: &DynValue) -> Vec<usize> {
    let dims = value.dtype().tensor_shape().into_iter().flat_map(|dims| dims.iter());
    dims.map(|&dim| usize::try_from(dim).unwrap_or(0)).collect()
}

fn slice<'v, T: PrimitiveTensorElementType>(
    value: &'v DynValue,
    name: &str,
    expected: ElementType,
) -> Result<&'v [T], BackendError> {
    value.try_extract_tensor::<T>().map(|(_, data)| data).map_err(|_| BackendError::OutputType {
        name: name.to_owned(),
        expected,
        found: value.dtype().to_string(),
    })
}
