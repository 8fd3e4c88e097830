//! A CSV file field by field, each with its line and column. No field takes more memory than
//! [`MAX_FIELD_BYTES`].

use std::path::Path;

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use syncline_scheduler::spec::Separator;

use super::super::error::{DataError, FormatError};

/// A number is shorter, and so is the name of a column.
pub(super) const MAX_FIELD_BYTES: usize = 4096;

/// Cuts a file into fields.
pub(super) struct Cutter<'a> {
    pub(super) path: &'a Path,
    pub(super) separator: Separator,
    parser: Reader,
    /// Where the next field begins, both from 1.
    line: u64,
    column: usize,
    text: Box<[u8; MAX_FIELD_BYTES]>,
}

/// What is left to read of bytes that are all here.
pub(super) struct Fields<'a> {
    cutter: Cutter<'a>,
    rest: &'a [u8],
    /// How many bytes there were.
    bytes: usize,
}

/// One field, without its quotes and without white space at its ends.
pub(super) struct Field<'a> {
    pub(super) text: &'a [u8],
    /// Where it begins, both from 1.
    pub(super) line: u64,
    pub(super) column: usize,
    /// Whether it ends its record.
    pub(super) ends_record: bool,
}

impl<'a> Fields<'a> {
    /// The fields below the first `skip_lines` lines. White space at the end of the file is no record.
    pub(super) fn new(path: &'a Path, bytes: &'a [u8], skip_lines: u32, separator: Separator) -> Self {
        let rest = without_end(bytes, separator);
        let mut fields = Self { cutter: Cutter::new(path, separator, 1), rest, bytes: rest.len() };
        for _ in 0..skip_lines {
            fields.skip_line();
        }
        fields
    }

    /// The line that begins here; `None` at the end of the file. A record begins here.
    pub(super) fn line(&self) -> Option<&'a [u8]> {
        self.rest.split(|&byte| byte == b'\n').next().filter(|_| !self.rest.is_empty())
    }

    /// Which line that is, from 1.
    pub(super) fn line_number(&self) -> u64 {
        self.cutter.line
    }

    /// How many bytes are behind us.
    pub(super) fn position(&self) -> usize {
        self.bytes - self.rest.len()
    }

    /// Steps over the line that begins here.
    pub(super) fn skip_line(&mut self) {
        let end = self.rest.iter().position(|&byte| byte == b'\n').map_or(self.rest.len(), |end| end + 1);
        self.rest = &self.rest[end..];
        self.cutter.line += 1;
    }

    /// Reads on from here by itself. A record begins here.
    pub(super) fn look_ahead(&self) -> Self {
        // A copy of a `Reader` of csv-core 0.1.13 does not parse.
        let Cutter { path, separator, line, .. } = self.cutter;
        Self { cutter: Cutter::new(path, separator, line), rest: self.rest, bytes: self.bytes }
    }

    /// What separates its columns.
    pub(super) fn separator(&self) -> Separator {
        self.cutter.separator
    }

    /// What is left of the file, from the next field on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field; `None` at the end of the file. An empty line is a record of one empty field.
    pub(super) fn next(&mut self) -> Result<Option<Field<'_>>, DataError> {
        self.cutter.next(&mut self.rest)
    }
}

impl<'a> Cutter<'a> {
    /// A record begins where it is used first, in this line.
    pub(super) fn new(path: &'a Path, separator: Separator, line: u64) -> Self {
        let text = Box::new([0; MAX_FIELD_BYTES]);
        let parser = ReaderBuilder::new().delimiter(separator.byte()).build();
        Self { path, separator, parser, line, column: 1, text }
    }

    /// Whether the next field begins a record.
    pub(super) fn begins_record(&self) -> bool {
        self.column == 1
    }

    /// Whether this is no more than white space, which is no record at the end of a file.
    pub(super) fn is_blank(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| is_blank(*byte, self.separator))
    }

    /// The field with which `rest` begins, which steps over it; `None` where nothing is left.
    pub(super) fn next(&mut self, rest: &mut &[u8]) -> Result<Option<Field<'_>>, DataError> {
        let (line, column) = (self.line, self.column);
        if column == 1 {
            match rest {
                [] => return Ok(None),
                // The parser passes over empty lines.
                [b'\r' | b'\n', ..] => {
                    self.end_line(rest);
                    return Ok(Some(Field { text: &[], line, column, ends_record: true }));
                }
                _ => {}
            }
        }
        let (mut result, read, written) = self.parser.read_field(rest, self.text.as_mut_slice());
        let raw;
        (raw, *rest) = rest.split_at(read);
        if result == ReadFieldResult::InputEmpty {
            result = self.parser.read_field(&[], &mut []).0;
            if raw.starts_with(b"\"") && raw.iter().filter(|&&byte| byte == b'"').count() % 2 == 1 {
                return Err(self.format("a quote opens here, and nothing closes it".to_owned()));
            }
        }
        let ReadFieldResult::Field { record_end: ends_record } = result else {
            let reason =
                format!("a field of {MAX_FIELD_BYTES} bytes or more; is a quote or a separator missing?");
            return Err(self.format(reason));
        };
        self.line += raw.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.column = if ends_record { 1 } else { column + 1 };
        if ends_record && raw.ends_with(b"\r") && rest.starts_with(b"\n") {
            self.end_line(rest);
        }
        Ok(Some(Field { text: self.text[..written].trim_ascii(), line, column, ends_record }))
    }

    /// Steps over the line feed, or the carriage return and the line feed, that come next.
    fn end_line(&mut self, rest: &mut &[u8]) {
        *rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        if let Some(behind) = rest.strip_prefix(b"\n") {
            (*rest, self.line) = (behind, self.line + 1);
        }
    }

    fn format(&self, reason: String) -> DataError {
        let reason = format!("line {}, column {}: {reason}", self.line, self.column);
        FormatError::Malformed { path: self.path.to_owned(), reason }.into()
    }
}

/// All but white space at the end.
fn without_end(bytes: &[u8], separator: Separator) -> &[u8] {
    let is_said = |byte: &u8| !is_blank(*byte, separator);
    &bytes[..bytes.iter().rposition(is_said).map_or(0, |last| last + 1)]
}

/// Whether it is white space that says nothing; a tab may separate fields that are empty.
fn is_blank(byte: u8, separator: Separator) -> bool {
    byte.is_ascii_whitespace() && byte != separator.byte()
}
