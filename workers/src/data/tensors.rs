//! Named arrays in a safetensors file.
//!
//! Format: an 8-byte length, a JSON header with type, shape and offset of each tensor, the numbers little-endian. Source:
//! huggingface.co/docs/safetensors.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use super::array::SourceArrays;
use super::elements::{Described, Element};
use super::error::DataError;
use super::file::Step;
use super::named;
use super::signature::ModelSignature;

/// Reads what the model wants; other arrays are not looked at.
pub(super) fn read(
    (path, bytes): (&Path, &[u8]),
    wanted: &ModelSignature,
    step: &mut Step<'_>,
) -> Result<SourceArrays, DataError> {
    let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
    let file = SafeTensors::deserialize(bytes).map_err(|error| format(format!("safetensors: {error}")))?;
    named::pick(path, wanted, |name| {
        let view = file.tensor(name).map_err(|_| named::missing(path, name, file.names()))?;
        let element = element(view.dtype()).ok_or_else(|| DataError::UnsupportedElement {
            path: path.to_owned(),
            name: name.to_owned(),
            found: format!("{:?}", view.dtype()),
            remedy: "save the array in another type, such as float32",
        })?;
        let described = Described { path, name, sizes: view.shape(), element, is_fortran_order: false };
        // Its bytes are there.
        described.read(view.data(), described.numbers()?, step)
    })
}

/// `None` for what is not read.
fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::BOOL => Element::Bool,
        Dtype::U8 => Element::U8,
        Dtype::I8 => Element::I8,
        Dtype::U16 => Element::U16,
        Dtype::I16 => Element::I16,
        Dtype::U32 => Element::U32,
        Dtype::I32 => Element::I32,
        Dtype::U64 => Element::U64,
        Dtype::I64 => Element::I64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::BF16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        _ => return None,
    })
}
