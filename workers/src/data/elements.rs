//! Numbers as named arrays hold them, little-endian, and what each type is kept as: the narrowest of
//! [`Numbers`] that holds every value exactly.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};

use super::array::{Array, Numbers};
use super::contents::DiskFile;
use super::disk_array::{DiskArray, Encoding, bounded};
use super::error::{DataError, FileError, FormatError, ValueError};
use super::file::{MAX_ELEMENTS, STEP_BYTES, Step, reserve, too_large};

/// The type of a number in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Element {
    /// Bytes of a number in the file.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// An array as its header describes it: the first of `sizes` counts the samples.
pub(super) struct Described<'a> {
    pub(super) path: &'a Path,
    /// For messages.
    pub(super) name: &'a str,
    pub(super) sizes: &'a [usize],
    pub(super) element: Element,
    /// Whether its first axis is the one whose neighbors lie side by side, and not its last.
    pub(super) is_fortran_order: bool,
    /// Samples of the file in front of these.
    pub(super) skipped_rows: usize,
}

impl Described<'_> {
    /// How many numbers it has, which is bounded; 0 is refused.
    pub(super) fn numbers(&self) -> Result<usize, DataError> {
        if self.sizes.is_empty() || self.sizes.contains(&0) {
            let reason = format!("array `{}` of shape {:?} has no samples", self.name, self.sizes);
            return Err(FormatError::Malformed { path: self.path.to_owned(), reason }.into());
        }
        let numbers = bounded(self.sizes, MAX_ELEMENTS);
        let numbers = numbers.ok_or_else(|| too_large(self.path, MAX_ELEMENTS, "numbers in one array"))?;
        Ok(numbers as usize)
    }

    /// The array whose numbers begin at `start` of a file that stays on the disk, if it is so large that it
    /// stays there as well.
    pub(super) fn on_disk(&self, file: &Arc<DiskFile>, start: u64) -> Result<Option<DiskArray>, DataError> {
        if self.is_fortran_order || self.sizes.is_empty() || self.sizes.contains(&0) {
            // Whoever reads it says what is wrong about it.
            return Ok(None);
        }
        let array = DiskArray::new(file, start, Encoding::LittleEndian(self.element), self.sizes)?;
        Ok((array.bytes() > file.most_in_memory).then_some(array))
    }

    /// Reads all of its numbers. `at_once`: how many are surely there, for which room is made at once.
    pub(super) fn read(
        &self,
        from: impl Read,
        at_once: usize,
        step: &mut Step<'_>,
    ) -> Result<Array, DataError> {
        let numbers = self.numbers()?;
        let mut reader = Reader { about: self, from, numbers, at_once: at_once.min(numbers), step };
        let numbers = match self.element {
            Element::Bool => Numbers::U8(reader.all(|[byte]| u8::from(byte != 0))?),
            Element::U8 => Numbers::U8(reader.all(|[byte]| byte)?),
            Element::I8 => Numbers::I32(reader.all(|[byte]| byte.cast_signed().into())?),
            Element::U16 => Numbers::I32(reader.all(|bytes| u16::from_le_bytes(bytes).into())?),
            Element::I16 => Numbers::I32(reader.all(|bytes| i16::from_le_bytes(bytes).into())?),
            Element::U32 => Numbers::I64(reader.all(|bytes| u32::from_le_bytes(bytes).into())?),
            Element::I32 => Numbers::I32(reader.all(i32::from_le_bytes)?),
            Element::U64 => Numbers::I64(self.signed(reader.all(u64::from_le_bytes)?)?),
            Element::I64 => Numbers::I64(reader.all(i64::from_le_bytes)?),
            Element::F16 => Numbers::F32(reader.all(|bytes| f16::from_le_bytes(bytes).to_f32())?),
            Element::BF16 => Numbers::F32(reader.all(|bytes| bf16::from_le_bytes(bytes).to_f32())?),
            Element::F32 => Numbers::F32(reader.all(f32::from_le_bytes)?),
            Element::F64 => Numbers::F64(reader.all(f64::from_le_bytes)?),
        };
        // It has a first axis.
        let (rows, shape) = self.sizes.split_first().unwrap_or((&0, &[]));
        Ok(Array::new(self.path, numbers, shape.to_vec(), *rows).behind(self.skipped_rows))
    }

    fn signed(&self, numbers: Vec<u64>) -> Result<Vec<i64>, DataError> {
        let width = self.sizes.iter().skip(1).product::<usize>().max(1);
        if let Some(at) = numbers.iter().position(|&number| i64::try_from(number).is_err()) {
            let (row, column) = (self.skipped_rows + at / width + 1, at % width + 1);
            return Err(ValueError::NotInteger {
                path: self.path.to_owned(),
                row,
                column,
                whose: if self.name.is_empty() { String::new() } else { format!(" of `{}`", self.name) },
                number: numbers[at].to_string(),
            }
            .into());
        }
        Ok(numbers.into_iter().map(u64::cast_signed).collect())
    }
}

struct Reader<'a, 'b, R> {
    about: &'a Described<'a>,
    from: R,
    numbers: usize,
    at_once: usize,
    step: &'a mut Step<'b>,
}

impl<R: Read> Reader<'_, '_, R> {
    /// All numbers, a piece of the file at a time: no more memory than what has come, whatever a header says.
    fn all<const N: usize, T: Copy>(&mut self, number: impl Fn([u8; N]) -> T) -> Result<Vec<T>, DataError> {
        let mut all = Vec::new();
        reserve(&mut all, self.at_once, self.about.path)?;
        let mut piece = vec![0; (self.numbers * N).min(STEP_BYTES)];
        while all.len() < self.numbers {
            let count = (piece.len() / N).min(self.numbers - all.len());
            let bytes = &mut piece[..count * N];
            self.from.read_exact(bytes).map_err(|error| self.unread(error))?;
            reserve(&mut all, count, self.about.path)?;
            all.extend(bytes.as_chunks().0.iter().map(|bytes| number(*bytes)));
            let path = self.about.path;
            (self.step)().map_err(|source| FileError::Io { path: path.to_owned(), source })?;
        }
        match self.about.is_fortran_order {
            true => in_c_order(&all, self.about),
            false => Ok(all),
        }
    }

    fn unread(&self, error: io::Error) -> DataError {
        let Described { path, name, sizes, .. } = self.about;
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("array `{name}` ends before it has the numbers of its shape {sizes:?}")
            }
            _ => format!("array `{name}`: {error}"),
        };
        FormatError::Malformed { path: path.to_path_buf(), reason }.into()
    }
}

/// The numbers of an array in Fortran order as they stand in C order: the last axis counts fastest.
fn in_c_order<T: Copy>(
    all: &[T],
    Described { path, sizes, .. }: &Described<'_>,
) -> Result<Vec<T>, DataError> {
    let mut ordered = Vec::new();
    reserve(&mut ordered, all.len(), path)?;
    let strides: Vec<usize> =
        sizes.iter().scan(1, |stride, size| Some(std::mem::replace(stride, *stride * size))).collect();
    let (mut place, mut at) = (vec![0; sizes.len()], 0);
    for _ in all {
        ordered.push(all[at]);
        for axis in (0..sizes.len()).rev() {
            place[axis] += 1;
            at += strides[axis];
            if place[axis] < sizes[axis] {
                break;
            }
            at -= strides[axis] * sizes[axis];
            place[axis] = 0;
        }
    }
    Ok(ordered)
}
