//! An array as `numpy.save` writes it: a header, which is a dictionary as Python writes it, and the numbers.
//!
//! Read are little-endian numbers in C or Fortran order. Nothing is ever unpickled.
//! Source: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

mod header;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use header::{Header, Type};

use super::array_parts::ArrayPart;
use super::contents::{DataFile, DiskFile};
use super::elements::{Described, Element};
use super::error::{DataError, FormatError};
use super::file::{MAX_FILE_BYTES, NPY_MARK, Step, too_large};

/// Longest header that is read; numpy's own are below 200 bytes, and it reads 10,000.
const MAX_HEADER_BYTES: u32 = 64 << 10;

/// What is read next, and how much of it may be.
pub(super) struct Input<'a, R> {
    pub(super) from: R,
    /// Bytes of the file that are left; fewer are left behind the array.
    pub(super) left: u64,
    /// Most bytes that can surely come: for so many numbers room is made at once.
    pub(super) sure: u64,
    /// Where the same bytes lie, if they do, in a file that stays on the disk.
    pub(super) stored: Option<Stored<'a>>,
}

/// A piece of a file that holds nothing else than an array.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) file: &'a Arc<DiskFile>,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// Reads the files of samples and of labels.
pub(super) fn read_pair(
    samples: DataFile<'_>,
    labels: DataFile<'_>,
    step: &mut Step<'_>,
) -> Result<(ArrayPart, ArrayPart), DataError> {
    let (samples, answers) = (read_file(samples, step)?, read_file(labels, step)?);
    if answers.rows() != samples.rows() {
        let reason = format!("{} labels for {} samples", answers.rows(), samples.rows());
        return Err(FormatError::Malformed { path: labels.path.to_owned(), reason }.into());
    }
    Ok((samples, answers))
}

fn read_file(DataFile { path, contents }: DataFile<'_>, step: &mut Step<'_>) -> Result<ArrayPart, DataError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let bytes = contents.bytes();
    let stored = contents.on_disk().map(|file| Stored { file, start: 0, bytes });
    let mut input = Input { from: contents.reader(0), left: MAX_FILE_BYTES, sure: bytes, stored };
    read(path, &name, &mut input, step)
}

/// Reads an array to the end of what it stands in.
pub(super) fn read<R: Read>(
    path: &Path,
    name: &str,
    input: &mut Input<'_, R>,
    step: &mut Step<'_>,
) -> Result<ArrayPart, DataError> {
    let format = |reason: String| DataError::from(FormatError::Malformed { path: path.to_owned(), reason });
    let (text, header_bytes) = header_text(&mut input.from).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => format(format!("array `{name}` ends inside its header")),
        _ => format(format!("array `{name}`: {error}")),
    })?;
    let header = Header::parse(&text)
        .ok_or_else(|| format(format!("the header of array `{name}` is not one that numpy writes")))?;
    let unsupported = |found: &str| {
        let (path, name) = (path.to_owned(), name.to_owned());
        DataError::from(FormatError::UnsupportedElement {
            path,
            name,
            found: found.to_owned(),
            remedy: remedy(found),
        })
    };
    let element = match &header.element {
        Type::Simple(text) => element(text).ok_or_else(|| unsupported(text))?,
        Type::Structured => return Err(unsupported(STRUCTURED)),
    };
    let Header { shape: sizes, is_fortran_order, .. } = &header;
    let is_fortran_order = *is_fortran_order;
    let described = Described { path, name, sizes, element, is_fortran_order, skipped_rows: 0 };
    let more = || format(format!("array `{name}` has more numbers than those of its shape {sizes:?}"));
    if let Some(Stored { file, start, bytes }) = input.stored
        && let Some(array) = described.on_disk(file, start + header_bytes)?
    {
        return match header_bytes + array.bytes() == bytes {
            true => Ok(ArrayPart::OnDisk(array)),
            false => Err(more()),
        };
    }
    let bytes = described.numbers()? as u64 * element.bytes();
    input.left = input.left.checked_sub(bytes).ok_or_else(|| too_large(path, MAX_FILE_BYTES, "bytes"))?;
    let sure = bytes.min(input.sure) / element.bytes();
    let array = described.read(&mut input.from, sure as usize, step)?;
    // At its end an archive says whether its bytes are those that were written.
    match input.from.read(&mut [0]) {
        Ok(0) => Ok(array.into()),
        Ok(_) => Err(more()),
        Err(error) => Err(format(format!("array `{name}`: {error}"))),
    }
}

/// The dictionary behind mark, version and length, and how many bytes all of that takes.
fn header_text(from: &mut impl Read) -> io::Result<(String, u64)> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut start = [0; 8];
    from.read_exact(&mut start)?;
    let [_, _, _, _, _, _, major, _] = start;
    if !start.starts_with(NPY_MARK) {
        return Err(invalid(
            "it does not begin as numpy.save writes it; pickles are not read: save arrays of numbers",
        ));
    }
    let (bytes, before) = match major {
        1 => {
            let mut length = [0; 2];
            from.read_exact(&mut length)?;
            (u16::from_le_bytes(length).into(), 10)
        }
        2 | 3 => {
            let mut length = [0; 4];
            from.read_exact(&mut length)?;
            (u32::from_le_bytes(length), 12)
        }
        _ => return Err(invalid("its version is none that is known, 1 to 3")),
    };
    if bytes > MAX_HEADER_BYTES {
        return Err(invalid("its header is longer than any of an array of numbers"));
    }
    let mut text = vec![0; bytes as usize];
    from.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| invalid("its header is no text"))?;
    Ok((text, before + u64::from(bytes)))
}

/// The type that numpy calls so; `None` for what is not read.
fn element(text: &str) -> Option<Element> {
    let (order, kind) = text.split_at_checked(1)?;
    let element = match kind {
        "b1" => Element::Bool,
        "u1" => Element::U8,
        "i1" => Element::I8,
        "u2" => Element::U16,
        "i2" => Element::I16,
        "u4" => Element::U32,
        "i4" => Element::I32,
        "u8" => Element::U64,
        "i8" => Element::I64,
        "f2" => Element::F16,
        "f4" => Element::F32,
        "f8" => Element::F64,
        _ => return None,
    };
    (order == "<" || element.bytes() == 1 && order == "|").then_some(element)
}

/// What a structured type is called.
const STRUCTURED: &str = "a structured type";

/// What to do about an array of another type.
fn remedy(text: &str) -> &'static str {
    let Some((order, kind)) = text.split_at_checked(1).filter(|_| text != STRUCTURED) else {
        return "save each field as an array of its own: numpy.savez(FILE, x=a[\"x\"], label=a[\"label\"])";
    };
    match (order, kind.chars().next()) {
        (_, Some('O')) => {
            "Python objects are pickled, and never read: save numbers, as a.astype(\"float32\") or numpy.stack(list(a)) makes them"
        }
        (_, Some('U' | 'S')) => {
            "texts are no numbers: save their places in the order of the alphabet, numpy.unique(a, return_inverse=True)[1]"
        }
        (_, Some('M' | 'm')) => {
            "save what of the times counts as a number, such as (a - a.min()) / numpy.timedelta64(1, \"D\")"
        }
        (_, Some('c')) => "save a.real and a.imag, or numpy.stack([a.real, a.imag], 1)",
        (">", _) => "save it in the order of bytes of this machine: a.astype(a.dtype.newbyteorder(\"<\"))",
        _ => "save the array in another type, such as a.astype(\"float32\")",
    }
}
