//! A CSV file field by field, each with its line and column. No field takes more memory than [`MAX_FIELD_BYTES`].

use std::path::Path;

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use syncline_scheduler::spec::Separator;

use super::super::error::DataError;

/// A number is shorter, and so is the name of a column.
pub(super) const MAX_FIELD_BYTES: usize = 4096;

/// What is left to read.
pub(super) struct Fields<'a> {
    path: &'a Path,
    separator: Separator,
    parser: Reader,
    rest: &'a [u8],
    /// Where the next field begins, both from 1.
    line: u64,
    column: usize,
    text: Box<[u8; MAX_FIELD_BYTES]>,
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
        let mut fields = Self::at(path, without_end(bytes, separator), 1, separator);
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
        self.line
    }

    /// Steps over the line that begins here.
    pub(super) fn skip_line(&mut self) {
        let end = self.rest.iter().position(|&byte| byte == b'\n').map_or(self.rest.len(), |end| end + 1);
        (self.rest, self.line) = (&self.rest[end..], self.line + 1);
    }

    fn at(path: &'a Path, rest: &'a [u8], line: u64, separator: Separator) -> Self {
        let text = Box::new([0; MAX_FIELD_BYTES]);
        let parser = ReaderBuilder::new().delimiter(separator.byte()).build();
        Self { path, separator, parser, rest, line, column: 1, text }
    }

    /// Reads on from here by itself. A record begins here.
    pub(super) fn look_ahead(&self) -> Self {
        // A copy of a `Reader` of csv-core 0.1.13 does not parse.
        Self::at(self.path, self.rest, self.line, self.separator)
    }

    /// What separates its columns.
    pub(super) fn separator(&self) -> Separator {
        self.separator
    }

    /// What is left of the file, from the next field on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field; `None` at the end of the file. An empty line is a record of one empty field.
    pub(super) fn next(&mut self) -> Result<Option<Field<'_>>, DataError> {
        let (line, column) = (self.line, self.column);
        if column == 1 {
            match self.rest {
                [] => return Ok(None),
                // The parser passes over empty lines.
                [b'\r' | b'\n', ..] => {
                    self.end_line();
                    return Ok(Some(Field { text: &[], line, column, ends_record: true }));
                }
                _ => {}
            }
        }
        let (mut result, read, written) = self.parser.read_field(self.rest, self.text.as_mut_slice());
        let (raw, rest) = self.rest.split_at(read);
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
        self.rest = rest;
        if ends_record && raw.ends_with(b"\r") && rest.starts_with(b"\n") {
            self.end_line();
        }
        Ok(Some(Field { text: self.text[..written].trim_ascii(), line, column, ends_record }))
    }

    /// Steps over the line feed, or the carriage return and the line feed, that come next.
    fn end_line(&mut self) {
        self.rest = self.rest.strip_prefix(b"\r").unwrap_or(self.rest);
        if let Some(rest) = self.rest.strip_prefix(b"\n") {
            (self.rest, self.line) = (rest, self.line + 1);
        }
    }

    fn format(&self, reason: String) -> DataError {
        let reason = format!("line {}, column {}: {reason}", self.line, self.column);
        DataError::Format { path: self.path.to_owned(), reason }
    }
}

/// All but white space at the end; a tab there may separate fields that are empty.
fn without_end(bytes: &[u8], separator: Separator) -> &[u8] {
    let is_said = |byte: &u8| !byte.is_ascii_whitespace() || *byte == separator.byte();
    &bytes[..bytes.iter().rposition(is_said).map_or(0, |last| last + 1)]
}
