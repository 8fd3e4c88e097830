//! The IDX format of MNIST: a header of sizes, then numbers, all big-endian.
//!
//! Bytes 0 and 1 are zero, byte 2 is the element type, byte 3 the number of dimensions; then each dimension as four
//! bytes. The first dimension counts the samples. Source: yann.lecun.com/exdb/mnist, section "file formats".

use std::path::Path;

use super::array::{Array, Numbers};
use super::error::DataError;
use super::file::{MAX_ELEMENTS, too_large};

/// Reads a file of samples and one of labels.
pub(super) fn read(images: (&Path, &[u8]), labels: (&Path, &[u8])) -> Result<(Array, Array), DataError> {
    let (samples, answers) = (Idx::parse(images.0, images.1)?, Idx::parse(labels.0, labels.1)?);
    let rows = samples.dims[0];
    if answers.dims[0] != rows {
        let reason = format!("{} labels for {rows} samples", answers.dims[0]);
        return Err(DataError::Format { path: labels.0.to_owned(), reason });
    }
    Ok((samples.array(images.0), answers.array(labels.0)))
}

/// A parsed header and the bytes behind it, exactly as many as the header says.
struct Idx<'a> {
    dims: Vec<usize>,
    number: Number,
    data: &'a [u8],
}

/// Element types, each with its bytes and how to read them.
#[derive(Clone, Copy)]
enum Number {
    U8,
    I8,
    I16,
    I32,
    F32,
    F64,
}

impl<'a> Idx<'a> {
    fn parse(path: &Path, bytes: &'a [u8]) -> Result<Self, DataError> {
        let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
        let Some((&[0, 0, kind, rank], rest)) = bytes.split_first_chunk::<4>() else {
            return Err(format("it does not begin like an IDX file".to_owned()));
        };
        let number =
            Number::of(kind).ok_or_else(|| format(format!("element type {kind:#04x} is not known")))?;
        let Some((sizes, data)) = rest.split_at_checked(4 * usize::from(rank)).filter(|_| rank > 0) else {
            return Err(format("the file ends inside its header".to_owned()));
        };
        let size = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize;
        let dims: Vec<usize> = sizes.chunks_exact(4).map(size).collect();
        let count = dims.iter().try_fold(1u64, |count, &size| {
            count.checked_mul(size as u64).filter(|&count| count <= MAX_ELEMENTS)
        });
        let count = count.ok_or_else(|| too_large(path, MAX_ELEMENTS, "numbers"))?;
        let needed = count * number.bytes();
        if needed != data.len() as u64 {
            return Err(format(format!("sizes {dims:?} need {needed} bytes of data, found {}", data.len())));
        }
        if count == 0 {
            return Err(format("it has no samples".to_owned()));
        }
        Ok(Self { dims, number, data })
    }

    fn array(&self, path: &Path) -> Array {
        let data = self.data;
        let numbers = match self.number {
            Number::U8 => Numbers::U8(data.to_vec()),
            Number::I8 => Numbers::I32(data.iter().map(|byte| i32::from(byte.cast_signed())).collect()),
            Number::I16 => {
                Numbers::I32(data.as_chunks().0.iter().map(|b| i16::from_be_bytes(*b).into()).collect())
            }
            Number::I32 => Numbers::I32(data.as_chunks().0.iter().map(|b| i32::from_be_bytes(*b)).collect()),
            Number::F32 => Numbers::F32(data.as_chunks().0.iter().map(|b| f32::from_be_bytes(*b)).collect()),
            Number::F64 => Numbers::F64(data.as_chunks().0.iter().map(|b| f64::from_be_bytes(*b)).collect()),
        };
        Array::new(path, numbers, self.dims[1..].to_vec(), self.dims[0])
    }
}

impl Number {
    fn of(kind: u8) -> Option<Self> {
        Some(match kind {
            0x08 => Self::U8,
            0x09 => Self::I8,
            0x0b => Self::I16,
            0x0c => Self::I32,
            0x0d => Self::F32,
            0x0e => Self::F64,
            _ => return None,
        })
    }

    fn bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}
