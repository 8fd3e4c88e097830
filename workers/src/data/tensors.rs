//! Named arrays in a safetensors file.
//!
//! Format: an 8-byte length, a JSON header with type, shape and offset of each tensor, the numbers
//! little-endian. Source: huggingface.co/docs/safetensors.

use std::io::Read;

use safetensors::{Dtype, tensor::Metadata};

use super::array::SourceArrays;
use super::array_parts::ArrayPart;
use super::contents::{DataFile, room};
use super::elements::{Described, Element};
use super::error::{DataError, FormatError};
use super::file::Step;
use super::named;
use super::signature::ModelSignature;

/// Longest header that is read, as long as that of the crate that writes them.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Reads what the model wants; other arrays are not looked at.
pub(super) fn read(
    file: DataFile<'_>,
    wanted: &ModelSignature,
    step: &mut Step<'_>,
) -> Result<SourceArrays, DataError> {
    let DataFile { path, contents } = file;
    let (header, start) = header(file)?;
    named::pick(path, wanted, |name| {
        let missing = || named::missing(path, name, header.tensors().keys().map(String::as_str));
        let info = header.info(name).ok_or_else(missing)?;
        let element = element(info.dtype).ok_or_else(|| FormatError::UnsupportedElement {
            path: path.to_owned(),
            name: name.to_owned(),
            found: format!("{:?}", info.dtype),
            remedy: "save the array in another type, such as float32",
        })?;
        let sizes = &info.shape;
        let described = Described { path, name, sizes, element, is_fortran_order: false, skipped_rows: 0 };
        let numbers = start + info.data_offsets.0 as u64;
        if let Some(file) = contents.on_disk()
            && let Some(array) = described.on_disk(file, numbers)?
        {
            return Ok(ArrayPart::OnDisk(array));
        }
        // Its bytes are there.
        described.read(contents.reader(numbers), described.numbers()?, step).map(ArrayPart::InMemory)
    })
}

/// What the arrays are and where, counted from the place behind it: all lie in the file, side by side, to its
/// end.
fn header(DataFile { path, contents }: DataFile<'_>) -> Result<(Metadata, u64), DataError> {
    let format = |reason: String| {
        DataError::from(FormatError::Malformed {
            path: path.to_owned(),
            reason: format!("safetensors: {reason}"),
        })
    };
    let mut from = contents.reader(0);
    let mut length = [0; 8];
    from.read_exact(&mut length).map_err(|_| format("header too small".to_owned()))?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES.min(contents.bytes()) {
        return Err(format("header too large".to_owned()));
    }
    let mut text = room(length as usize, path)?;
    from.read_exact(&mut text).map_err(|_| format("invalid header length".to_owned()))?;
    let header: Metadata =
        serde_json::from_slice(&text).map_err(|error| format(format!("invalid header: {error}")))?;
    match 8 + length + header.data_len() as u64 == contents.bytes() {
        true => Ok((header, 8 + length)),
        false => Err(format("the file has other bytes than its header says".to_owned())),
    }
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
