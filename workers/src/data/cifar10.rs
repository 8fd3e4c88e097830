//! The binary format of CIFAR-10: records of one label byte and 3,072 pixel bytes, 1,024 red, 1,024 green,
//! 1,024 blue, each row by row. No header. Source: www.cs.toronto.edu/~kriz/cifar.html, section "binary
//! version".

use std::path::Path;

use super::array::{Array, Numbers, Origin};
use super::error::{DataError, FormatError, ValueError};
use super::file::{MAX_ELEMENTS, too_large};

/// Channels, height and width of an image.
const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;

/// Reads one file after the other: images and labels.
pub(super) fn read(files: &[(&Path, &[u8])]) -> Result<(Array, Array), DataError> {
    let first = files.first().map_or(Path::new(""), |file| file.0);
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    if bytes > MAX_ELEMENTS {
        return Err(too_large(first, MAX_ELEMENTS, "bytes"));
    }
    let (mut pixels, mut labels) = (Vec::with_capacity(bytes as usize), Vec::new());
    let mut origins = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        let (records, rest) = bytes.as_chunks::<{ 1 + PIXELS }>();
        if records.is_empty() || !rest.is_empty() {
            let reason = format!("{} bytes are not records of {} bytes", bytes.len(), 1 + PIXELS);
            return Err(FormatError::Malformed { path: (*path).to_owned(), reason }.into());
        }
        origins.push(Origin::of(path, labels.len()));
        for (row, [label, image @ ..]) in records.iter().enumerate() {
            if *label > 9 {
                let (path, found) = ((*path).to_owned(), label.to_string());
                return Err(ValueError::LabelOutOfRange {
                    path,
                    row: row + 1,
                    column: None,
                    found,
                    classes: 10,
                }
                .into());
            }
            labels.push(*label);
            pixels.extend_from_slice(image);
        }
    }
    let rows = labels.len();
    Ok((
        Array::new(first, Numbers::U8(pixels), SHAPE.to_vec(), rows).with_origins(origins.clone()),
        Array::new(first, Numbers::U8(labels), Vec::new(), rows).with_origins(origins),
    ))
}
