//! A line that takes text until it is full.

use std::fmt::{self, Write as _};

use serde::ser;
use syncline_scheduler::tasks::Preview;

use crate::is_invisible;

/// Why a value was not written to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nothing more of it would be seen.
    Full,
    /// Its type says that it cannot be written.
    Refused,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the line is full",
            Self::Refused => "its type refuses",
        })
    }
}

impl std::error::Error for Stop {}

impl ser::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Refused
    }
}

/// At most one character more than a preview holds.
#[derive(Debug, Default)]
pub(super) struct Line(String);

impl Line {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Adds text as it is.
    pub(super) fn raw(&mut self, text: &str) -> Result<(), Stop> {
        text.chars().try_for_each(|c| self.character(c))
    }

    pub(super) fn character(&mut self, c: char) -> Result<(), Stop> {
        self.0.push(c);
        if self.0.len() > Preview::MAX_BYTES { Err(Stop::Full) } else { Ok(()) }
    }

    /// Adds what prints itself.
    pub(super) fn display(&mut self, what: impl fmt::Display) -> Result<(), Stop> {
        write!(Raw(self), "{what}").map_err(|_| Stop::Full)
    }

    /// Adds text in quotes. What would change the line around it stands there by its number.
    pub(super) fn quoted(&mut self, text: &str) -> Result<(), Stop> {
        self.character('"')?;
        self.escaped(text)?;
        self.character('"')
    }

    /// The same, of what prints itself.
    pub(super) fn quoted_display(&mut self, what: &(impl fmt::Display + ?Sized)) -> Result<(), Stop> {
        self.character('"')?;
        write!(Escaped(self), "{what}").map_err(|_| Stop::Full)?;
        self.character('"')
    }

    /// Adds bytes in quotes, those that are printable ASCII as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.character('"')?;
        for &byte in bytes {
            match byte {
                b'"' | b'\\' => self.raw(&format!("\\{}", char::from(byte)))?,
                0x20..=0x7e => self.character(byte.into())?,
                _ => self.raw(&format!("\\x{byte:02x}"))?,
            }
        }
        self.character('"')
    }

    fn escaped(&mut self, text: &str) -> Result<(), Stop> {
        for c in text.chars() {
            match c {
                '"' => self.raw("\\\"")?,
                '\\' => self.raw("\\\\")?,
                '\n' => self.raw("\\n")?,
                '\t' => self.raw("\\t")?,
                _ if c.is_control() || is_invisible(c) => self.raw(&format!("\\u{:04x}", u32::from(c)))?,
                _ => self.character(c)?,
            }
        }
        Ok(())
    }
}

struct Raw<'a>(&'a mut Line);

impl fmt::Write for Raw<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.raw(text).map_err(|_| fmt::Error)
    }
}

struct Escaped<'a>(&'a mut Line);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.escaped(text).map_err(|_| fmt::Error)
    }
}
