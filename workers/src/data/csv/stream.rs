//! The fields of a file, of which only a piece is in memory at a time.

use std::io::Read;
use std::path::Path;

use syncline_scheduler::spec::Separator;

use super::super::error::{DataError, FileError};
use super::fields::{Cutter, Field, MAX_FIELD_BYTES};
use super::text_reader::TextReader;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// So many are here where a field is cut out, or else all that are left: more than any field has, were all of
/// it quotes.
const AHEAD_BYTES: usize = 4 * MAX_FIELD_BYTES;

/// What is left to read of a file.
pub(super) struct FieldStream<'a> {
    cutter: Cutter<'a>,
    reader: TextReader<'a>,
    piece: Vec<u8>,
    /// Where in the piece the next field begins.
    at: usize,
    /// Whether nothing comes behind the piece.
    is_last: bool,
}

impl<'a> FieldStream<'a> {
    /// The fields of what is left, where a record begins, in this line. White space at the end of the file is
    /// no record.
    pub(super) fn new(path: &'a Path, reader: TextReader<'a>, line: u64, separator: Separator) -> Self {
        let cutter = Cutter::new(path, separator, line);
        Self { cutter, reader, piece: Vec::new(), at: 0, is_last: false }
    }

    /// How many bytes of the file, as it lies on the disk or in memory, were read; the last of them may still
    /// be in the piece.
    pub(super) fn position(&self) -> u64 {
        self.reader.position()
    }

    /// What separates the columns.
    pub(super) fn separator(&self) -> Separator {
        self.cutter.separator
    }

    /// The next field; `None` at the end of the file. An empty line is a record of one empty field.
    pub(super) fn next(&mut self) -> Result<Option<Field<'_>>, DataError> {
        if self.piece.len() - self.at < AHEAD_BYTES && !self.is_last {
            self.piece.drain(..self.at);
            self.at = 0;
            self.read_piece()?;
        }
        if self.cutter.begins_record() && self.is_at_end()? {
            return Ok(None);
        }
        let mut rest = &self.piece[self.at..];
        let field = self.cutter.next(&mut rest)?;
        self.at = self.piece.len() - rest.len();
        Ok(field)
    }

    fn is_at_end(&mut self) -> Result<bool, DataError> {
        while self.cutter.is_blank(&self.piece[self.at..]) {
            if self.is_last {
                return Ok(true);
            }
            // Whatever comes behind so much of it, what is wrong shows in its beginning.
            self.piece.truncate(self.at + AHEAD_BYTES);
            self.read_piece()?;
        }
        Ok(false)
    }

    fn read_piece(&mut self) -> Result<(), DataError> {
        let read = self.reader.by_ref().take(PIECE_BYTES).read_to_end(&mut self.piece);
        let count = read.map_err(|source| FileError::Io { path: self.cutter.path.to_owned(), source })?;
        self.is_last = (count as u64) < PIECE_BYTES;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contents::Contents;
    use super::super::fields::Fields;
    use super::*;

    /// Text, line, column, and whether the record ends.
    type Seen = (String, u64, usize, bool);

    /// All fields, and the error behind them.
    fn all(mut next: impl FnMut() -> Result<Option<Seen>, DataError>) -> (Vec<Seen>, Option<String>) {
        let mut fields = Vec::new();
        loop {
            match next() {
                Ok(Some(field)) => fields.push(field),
                Ok(None) => return (fields, None),
                Err(error) => return (fields, Some(error.to_string())),
            }
        }
    }

    fn told(field: Field<'_>) -> (String, u64, usize, bool) {
        (String::from_utf8_lossy(field.text).into_owned(), field.line, field.column, field.ends_record)
    }

    #[test]
    fn a_file_in_pieces_has_the_fields_of_the_same_bytes_in_memory() {
        let path = Path::new("all.csv");
        let many = "1.5,\"a \"\"b\"\"\r\nc\", 7 \r\n".repeat(60_000);
        let wide = format!("\"{}\",1\n", "\"\"".repeat(4_000)).repeat(100);
        let blank = " \n".repeat(300_000);
        let long = "9".repeat(4_096);
        #[rustfmt::skip]
        let cases = [
            String::new(),
            "1,2".to_owned(),
            "1,2\r".to_owned(),
            "1,,\n\n3\n \t\n".to_owned(),
            many.clone(),
            wide,
            format!("1,2\n{blank}"),
            format!("{many}{long},2\n"),
            format!("{many}1,\"open\n{many}"),
        ];
        for text in cases {
            let separator = Separator::Comma;
            let contents = Contents::InMemory(text.clone().into_bytes());
            let reader = TextReader::new(path, &contents, 0).unwrap();
            let mut stream = FieldStream::new(path, reader, 1, separator);
            let mut fields = Fields::new(path, text.as_bytes(), 0, separator);
            let want = all(|| Ok(fields.next()?.map(told)));
            let found = all(|| Ok(stream.next()?.map(told)));
            assert!(found == want, "{:?}", &text[..text.len().min(20)]);
            assert!(want.1.is_some() || stream.position() <= text.len() as u64);
        }
    }

    #[test]
    fn white_space_in_front_of_a_record_is_an_empty_line_however_much_it_is() {
        let text = format!("1,2\n{}3,4\n", " \n".repeat(300_000));
        let contents = Contents::InMemory(text.into_bytes());
        let path = Path::new("all.csv");
        let reader = TextReader::new(path, &contents, 4).unwrap();
        let mut stream = FieldStream::new(path, reader, 2, Separator::Comma);
        assert_eq!(stream.next().unwrap().map(told), Some((String::new(), 2, 1, true)));
    }
}
