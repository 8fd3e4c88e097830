//! The IDX format of MNIST: a header of sizes, then numbers, all big-endian.
//!
//! Bytes 0 and 1 are zero, byte 2 is the element type, byte 3 the number of dimensions; then each dimension
//! as four bytes. The first dimension counts the samples. Source: yann.lecun.com/exdb/mnist, section "file
//! formats".

use std::io::Read;
use std::path::Path;

use super::array::{Array, Numbers};
use super::array_parts::ArrayPart;
use super::contents::{Contents, DataFile};
use super::disk_array::{DiskArray, Encoding, bounded};
use super::error::{DataError, FormatError};
use super::file::{MAX_ELEMENTS, too_large};

/// Reads a file of samples and one of labels.
pub(super) fn read(images: DataFile<'_>, labels: DataFile<'_>) -> Result<(ArrayPart, ArrayPart), DataError> {
    let (samples, answers) = (read_file(images)?, read_file(labels)?);
    let rows = samples.rows();
    if answers.rows() != rows {
        let reason = format!("{} labels for {rows} samples", answers.rows());
        return Err(FormatError::Malformed { path: labels.path.to_owned(), reason }.into());
    }
    Ok((samples, answers))
}

/// The numbers behind a header, exactly as many as it says.
pub(super) struct Idx<'a> {
    pub(super) dims: Vec<usize>,
    pub(super) number: Number,
    pub(super) data: &'a [u8],
}

/// Element types, each with its bytes and how to read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    U8,
    I8,
    I16,
    I32,
    F32,
    F64,
}

fn read_file(DataFile { path, contents }: DataFile<'_>) -> Result<ArrayPart, DataError> {
    let format = |reason: &str| {
        DataError::from(FormatError::Malformed { path: path.to_owned(), reason: reason.to_owned() })
    };
    let mut from = contents.reader(0);
    let mut start = [0; 4];
    let begun = from.read_exact(&mut start);
    let (&[0, 0, kind, rank], Ok(())) = (&start, begun) else {
        return Err(format("it does not begin like an IDX file"));
    };
    let number = Number::of(kind).ok_or_else(|| format(&format!("element type {kind:#04x} is not known")))?;
    let mut sizes = vec![0; 4 * usize::from(rank)];
    if rank == 0 || from.read_exact(&mut sizes).is_err() {
        return Err(format("the file ends inside its header"));
    }
    let dims: Vec<usize> = sizes.as_chunks().0.iter().map(|b| u32::from_be_bytes(*b) as usize).collect();
    let most = match contents {
        Contents::InMemory(_) => MAX_ELEMENTS,
        Contents::OnDisk(file) => file.bytes(),
    };
    let count = bounded(&dims, most).ok_or_else(|| too_large(path, most, "numbers"))?;
    let (needed, start) = (count * number.bytes(), (4 + sizes.len()) as u64);
    let found = contents.bytes() - start;
    if needed != found {
        return Err(format(&format!("sizes {dims:?} need {needed} bytes of data, found {found}")));
    }
    if count == 0 {
        return Err(format("it has no samples"));
    }
    let read;
    let data = match contents {
        Contents::InMemory(bytes) => &bytes[start as usize..],
        Contents::OnDisk(file) if needed > file.most_in_memory => {
            return DiskArray::new(file, start, Encoding::Idx(number), &dims).map(ArrayPart::OnDisk);
        }
        Contents::OnDisk(file) => {
            read = file.read(start, needed as usize)?;
            &read
        }
    };
    Ok(Idx { dims, number, data }.array(path).into())
}

impl Idx<'_> {
    pub(super) fn array(&self, path: &Path) -> Array {
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

    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}
