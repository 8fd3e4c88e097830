//! The IDX format of MNIST: a header of sizes, then numbers, all big-endian.
//!
//! Bytes 0 and 1 are zero, byte 2 is the element type, byte 3 the number of dimensions; then each dimension as four
//! bytes. The first dimension counts the samples. Source: yann.lecun.com/exdb/mnist, section "file formats".

use std::path::Path;

use super::dataset::{Labels, Raw, Target, check_target, class};
use super::error::DataError;
use super::file::{MAX_ELEMENTS, too_large};

/// Reads a file of samples and one of labels.
pub(super) fn read(
    images: (&Path, &[u8]),
    labels: (&Path, &[u8]),
    target: &Target,
) -> Result<Raw, DataError> {
    let (samples, answers) = (Idx::parse(images.0, images.1)?, Idx::parse(labels.0, labels.1)?);
    let rows = samples.dims[0];
    if answers.dims[0] != rows {
        let reason = format!("{} labels for {rows} samples", answers.dims[0]);
        return Err(DataError::Format { path: labels.0.to_owned(), reason });
    }
    let features: Vec<f32> = samples.numbers().map(|value| value as f32).collect();
    check_target(target, answers.dims[1..].iter().product())?;
    let labels = match target {
        Target::Classes { count } => {
            let classes =
                answers.numbers().enumerate().map(|(row, value)| class(labels.0, row, value, *count));
            Labels::Classes(classes.collect::<Result<_, _>>()?)
        }
        Target::Values { shape } => {
            let data: Vec<f32> = answers.numbers().map(|value| value as f32).collect();
            let width = shape.iter().product::<usize>().max(1);
            if let Some(at) = data.iter().position(|value| !value.is_finite()) {
                let (row, column, value) = (at / width + 1, at % width + 1, data[at]);
                return Err(DataError::NotFinite { path: labels.0.to_owned(), row, column, value });
            }
            Labels::Values { shape: shape.clone(), data }
        }
    };
    Ok(Raw { features, shape: samples.dims[1..].to_vec(), labels, rows })
}

/// A parsed header and the bytes behind it, exactly as many as the header says.
struct Idx<'a> {
    dims: Vec<usize>,
    number: ReadNumber,
    width: usize,
    data: &'a [u8],
}

impl<'a> Idx<'a> {
    fn parse(path: &Path, bytes: &'a [u8]) -> Result<Self, DataError> {
        let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
        let Some((&[0, 0, kind, rank], rest)) = bytes.split_first_chunk::<4>() else {
            return Err(format("it does not begin like an IDX file".to_owned()));
        };
        let (width, number) =
            element(kind).ok_or_else(|| format(format!("element type {kind:#04x} is not known")))?;
        let Some((sizes, data)) = rest.split_at_checked(4 * usize::from(rank)).filter(|_| rank > 0) else {
            return Err(format("the file ends inside its header".to_owned()));
        };
        let size = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize;
        let dims: Vec<usize> = sizes.chunks_exact(4).map(size).collect();
        let count = dims.iter().try_fold(1u64, |count, &size| {
            count.checked_mul(size as u64).filter(|&count| count <= MAX_ELEMENTS)
        });
        let count = count.ok_or_else(|| too_large(path, MAX_ELEMENTS, "numbers"))?;
        if count * width as u64 != data.len() as u64 {
            let needed = count * width as u64;
            return Err(format(format!("sizes {dims:?} need {needed} bytes of data, found {}", data.len())));
        }
        if count == 0 {
            return Err(format("it has no samples".to_owned()));
        }
        Ok(Self { dims, number, width, data })
    }

    fn numbers(&self) -> impl Iterator<Item = f64> {
        self.data.chunks_exact(self.width).map(self.number)
    }
}

/// Reads one element from its bytes.
type ReadNumber = fn(&[u8]) -> f64;

/// Bytes per element, and how to read one.
fn element(kind: u8) -> Option<(usize, ReadNumber)> {
    Some(match kind {
        0x08 => (1, |b| f64::from(b[0])),
        0x09 => (1, |b| f64::from(b[0].cast_signed())),
        0x0b => (2, |b| f64::from(i16::from_be_bytes([b[0], b[1]]))),
        0x0c => (4, |b| f64::from(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))),
        0x0d => (4, |b| f64::from(f32::from_be_bytes([b[0], b[1], b[2], b[3]]))),
        0x0e => (8, |b| f64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])),
        _ => return None,
    })
}
