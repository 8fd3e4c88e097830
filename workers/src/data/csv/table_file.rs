//! A file of a table: what its beginning says of it, and where its samples are.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::Path;

use syncline_rpc::input;
use syncline_scheduler::{ids::ContentDigest, spec::Separator};

use super::super::contents::Contents;
use super::super::error::{DataError, FileError};
use super::super::file::{self, Step, too_large};
use super::classes::Labels;
use super::columns::{Columns, Place};
use super::comments;
use super::fields::Fields;
use super::header::Header;
use super::separator;
use super::stream::FieldStream;
use super::table::Wanted;
use super::text::number;
use super::text_reader::TextReader;

/// Bytes of a file that is not in memory by which its columns are known.
const HEAD_BYTES: u64 = 16 << 20;

/// A file of a table.
#[derive(Clone, Copy)]
pub(in crate::data) struct File<'a> {
    pub(in crate::data) path: &'a Path,
    pub(in crate::data) contents: &'a Contents,
    /// Of its bytes as they lie on the disk.
    pub(in crate::data) digest: ContentDigest,
    /// Whether a note says so, and nobody has looked.
    pub(in crate::data) is_noted: bool,
}

/// What the beginning of a file says of it.
pub(super) struct Beginning {
    pub(super) separator: Separator,
    /// Line of the first record, be it a header or a sample.
    pub(super) line: u64,
    pub(super) columns: Columns,
    /// Where the first sample begins, in bytes from the start of the file, and its line.
    pub(super) start: u64,
    start_line: u64,
}

impl<'a> File<'a> {
    /// What it begins with: all of it where it is in memory, else whole lines.
    pub(super) fn head(self) -> Result<Cow<'a, [u8]>, DataError> {
        if let Contents::InMemory(bytes) = self.contents {
            return Ok(bytes.into());
        }
        let (mut head, text) = (Vec::new(), TextReader::new(self.path, self.contents, 0)?);
        let read = text.take(HEAD_BYTES + 1).read_to_end(&mut head);
        read.map_err(|source| FileError::Io { path: self.path.to_owned(), source })?;
        if head.len() as u64 > HEAD_BYTES {
            head.truncate(HEAD_BYTES as usize);
            let last = head.iter().rposition(|&byte| byte == b'\n');
            let last = last.ok_or_else(|| too_large(self.path, HEAD_BYTES, "bytes in its first line"))?;
            head.truncate(last + 1);
        }
        Ok(head.into())
    }

    /// Sees to it that it has its digest, whatever a note says, before others take what is made of it for
    /// made of that.
    pub(super) fn check_digest(self, step: &mut Step<'_>) -> Result<(), DataError> {
        let Some(file) = self.contents.on_disk().filter(|_| self.is_noted) else { return Ok(()) };
        let found = file::digest(file, step)?;
        match found == self.digest {
            true => Ok(()),
            false => Err(FileError::Digest {
                files: self.path.display().to_string(),
                expected: self.digest,
                found,
            }
            .into()),
        }
    }

    /// Its columns. `like`: those of the training set, if it has names.
    pub(super) fn begin(self, wanted: &Wanted<'_>, like: Option<&Header>) -> Result<Beginning, DataError> {
        let head = self.head()?;
        let mut fields = records(self.path, &head, wanted)?;
        let line = fields.line_number();
        let columns = Columns::find(self.path, &mut fields, wanted.label, &wanted.inputs, like)?;
        let mark = head.len() - input::without_mark(&head).len();
        Ok(Beginning {
            separator: fields.separator(),
            line,
            columns,
            start: (mark + fields.position()) as u64,
            start_line: fields.line_number(),
        })
    }

    /// The fields of its samples.
    pub(super) fn samples(self, beginning: &Beginning) -> Result<FieldStream<'a>, DataError> {
        let Beginning { separator, start, start_line, .. } = *beginning;
        let text = TextReader::new(self.path, self.contents, start)?;
        Ok(FieldStream::new(self.path, text, start_line, separator))
    }

    /// Whether the label of its first sample is a text.
    pub(super) fn begins_with_a_text(self, beginning: &Beginning) -> Result<bool, DataError> {
        let mut fields = self.samples(beginning)?;
        while let Some(field) = fields.next()? {
            if let Some(Place::Label(_)) = beginning.columns.places.get(field.column - 1) {
                let mut labels = Labels::Open;
                labels.number(self.path, &field, number(field.text))?;
                return Ok(matches!(labels, Labels::Texts(_)));
            }
            if field.ends_record {
                break;
            }
        }
        Ok(false)
    }
}

/// The fields from the first record on.
pub(super) fn records<'a>(
    path: &'a Path,
    bytes: &'a [u8],
    wanted: &Wanted<'_>,
) -> Result<Fields<'a>, DataError> {
    let bytes = input::without_mark(bytes);
    let separator = match wanted.separator {
        Some(separator) => separator,
        None => separator::find(path, bytes, wanted.skip_lines)?,
    };
    let mut fields = Fields::new(path, bytes, wanted.skip_lines, separator);
    comments::pass_over(path, &mut fields, wanted.label, &wanted.inputs)?;
    Ok(fields)
}
