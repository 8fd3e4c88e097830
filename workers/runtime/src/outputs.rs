//! What a run produced, lent to the caller.

use ort::session::SessionOutputs;
use ort::value::{DynValue, PrimitiveTensorElementType};
use syncline_onnx::ElementType;

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

    /// The shape of an output.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, BackendError> {
        let shape = self.find(name)?.dtype().tensor_shape();
        Ok(shape
            .into_iter()
            .flat_map(|dims| dims.iter())
            .map(|&dim| usize::try_from(dim).unwrap_or(0))
            .collect())
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
