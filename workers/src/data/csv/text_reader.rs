//! The text of a file of a table from one end to the other; a packed file on the disk is unpacked meanwhile.

use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::super::contents::{Contents, ContentsReader};
use super::super::error::{DataError, FileError};
use super::super::file::is_packed;

/// Packed bytes that are read at a time.
const PACKED_BYTES: usize = 64 << 10;

/// What is left to read.
pub(super) enum TextReader<'a> {
    Plain(ContentsReader<'a>),
    Packed(Box<MultiGzDecoder<BufReader<ContentsReader<'a>>>>),
}

impl<'a> TextReader<'a> {
    /// From this byte of the text on.
    pub(super) fn new(path: &Path, contents: &'a Contents, start: u64) -> Result<Self, DataError> {
        if contents.on_disk().is_none() || !is_packed(path) {
            return Ok(Self::Plain(contents.reader(start)));
        }
        let packed = BufReader::with_capacity(PACKED_BYTES, contents.reader(0));
        let mut text = MultiGzDecoder::new(packed);
        let passed_over = io::copy(&mut text.by_ref().take(start), &mut io::sink());
        passed_over.map_err(|source| FileError::Io { path: path.to_owned(), source })?;
        Ok(Self::Packed(Box::new(text)))
    }

    /// How many bytes of [`Contents::bytes`] were read, some of which may still be unpacked.
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Plain(reader) => reader.position(),
            Self::Packed(text) => text.get_ref().get_ref().position(),
        }
    }
}

impl Read for TextReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(bytes),
            Self::Packed(text) => text.read(bytes),
        }
    }
}
