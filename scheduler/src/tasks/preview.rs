//! What a value looks like: one short line for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One line of at most [`Preview::MAX_BYTES`], without control characters. Values may be secret: it is shown
/// to whoever asks for it, and never logged, not even by `{:?}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Preview(Box<str>);

impl Preview {
    /// Most bytes of UTF-8 in one, the ellipsis included.
    pub const MAX_BYTES: usize = 256;
    /// What stands at the end of one that does not show all.
    pub const ELLIPSIS: char = '…';

    /// The line.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first part of a text that is too long, at the boundary of a character, with the ellipsis.
    pub fn cut(text: &str) -> Self {
        let end = text.floor_char_boundary(Self::MAX_BYTES - Self::ELLIPSIS.len_utf8());
        Self(format!("{}{}", printable(&text[..end]), Self::ELLIPSIS).into())
    }
}

/// As one line. A blank is no longer than any control character.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Cut if it is longer than it may be.
impl From<String> for Preview {
    fn from(text: String) -> Self {
        match text.len() <= Self::MAX_BYTES {
            true if text.contains(char::is_control) => Self(printable(&text).into()),
            true => Self(text.into()),
            false => Self::cut(&text),
        }
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Preview of {} bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_of_bounded_size_whoever_sends_it() {
        #[rustfmt::skip]
        let cases = [
            ("short",                "[1,2]".to_owned(),       "[1,2]".to_owned()),
            ("as long as it may be", "x".repeat(256),          "x".repeat(256)),
            ("one more",             "x".repeat(257),          "x".repeat(253) + "…"),
            ("a boundary",           "é".repeat(200),          "é".repeat(126) + "…"),
            ("lines and escapes",    "a\nb\u{1b}[2J\u{9b}m".to_owned(), "a b [2J m".to_owned()),
        ];
        for (name, text, wanted) in cases {
            let sent = postcard::to_stdvec(&text).unwrap();
            let preview: Preview = postcard::from_bytes(&sent).unwrap();
            assert_eq!(preview.as_str(), wanted, "{name}");
            assert!(preview.as_str().len() <= Preview::MAX_BYTES, "{name}");
        }
    }

    #[test]
    fn what_is_logged_does_not_show_it() {
        assert_eq!(format!("{:?}", Preview::from("\"secret\"".to_owned())), "Preview of 8 bytes");
    }
}
