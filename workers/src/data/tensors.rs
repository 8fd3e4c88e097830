//! Named arrays in a safetensors file: for each input of the model, and for the label, the one of its name.
//!
//! Format: an 8-byte length, a JSON header with type, shape and offset of each tensor, the numbers little-endian. The
//! first axis counts the samples. Source: huggingface.co/docs/safetensors.

use std::path::Path;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::array::{Array, Numbers, SourceArrays};
use super::error::DataError;
use super::file::{MAX_ELEMENTS, too_large};
use super::signature::ModelSignature;

/// Reads what the model wants; other arrays are not looked at.
pub(super) fn read(
    (path, bytes): (&Path, &[u8]),
    wanted: &ModelSignature,
) -> Result<SourceArrays, DataError> {
    let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
    let file = SafeTensors::deserialize(bytes).map_err(|error| format(format!("safetensors: {error}")))?;
    let array = |name: &str| -> Result<Array, DataError> {
        let view = file.tensor(name).map_err(|_| {
            let mut known: Vec<&str> = file.names();
            known.sort_unstable();
            DataError::MissingTensor { path: path.to_owned(), name: name.to_owned(), known: known.join(", ") }
        })?;
        array(path, name, &view)
    };
    let inputs: Vec<Array> =
        wanted.inputs.iter().map(|input| array(&input.name)).collect::<Result<_, _>>()?;
    let label = wanted.label.as_ref().map(|label| array(&label.name)).transpose()?;
    let names = wanted.inputs.iter().map(|input| &input.name).chain(wanted.label.iter().map(|l| &l.name));
    let mut counts = names.zip(inputs.iter().chain(&label).map(|array| array.rows));
    let (first, rows) = counts.next().ok_or_else(|| format("the model wants nothing of it".to_owned()))?;
    if let Some((name, other)) = counts.find(|(_, other)| *other != rows) {
        return Err(format(format!("`{first}` has {rows} samples, `{name}` has {other}")));
    }
    Ok(SourceArrays { inputs, label, rows, header: None })
}

fn array(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Array, DataError> {
    let Some((&rows, shape)) = view.shape().split_first().filter(|_| !view.shape().contains(&0)) else {
        let reason = format!("tensor `{name}` of shape {:?} has no samples", view.shape());
        return Err(DataError::Format { path: path.to_owned(), reason });
    };
    // The bytes are there, so that the product of the shape does not overflow.
    if view.shape().iter().product::<usize>() as u64 > MAX_ELEMENTS {
        return Err(too_large(path, MAX_ELEMENTS, "numbers in one tensor"));
    }
    let data = view.data();
    let numbers = match view.dtype() {
        Dtype::U8 => Numbers::U8(data.to_vec()),
        Dtype::I32 => Numbers::I32(data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()),
        Dtype::I64 => Numbers::I64(data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
        Dtype::F32 => Numbers::F32(data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        Dtype::F64 => Numbers::F64(data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()),
        other => {
            let (path, name, found) = (path.to_owned(), name.to_owned(), format!("{other:?}"));
            return Err(DataError::UnsupportedElement { path, name, found });
        }
    };
    Ok(Array::new(path, numbers, shape.to_vec(), rows))
}
