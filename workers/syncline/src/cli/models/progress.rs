//! What a command does at the moment, in one line of the terminal that goes again.

use std::io::{self, IsTerminal, Write};

use crate::cli::one_line;

/// Widest line that is written.
const WIDTH: usize = 78;

/// Writes to stderr if that is a terminal, else nothing.
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Puts a line in the place of the one before.
    pub(crate) fn show(&self, line: &str) {
        if self.shown {
            let line: String = one_line(line).chars().take(WIDTH).collect();
            // A terminal that has gone away is nobody to tell.
            let _ = write!(io::stderr(), "\r\x1b[K{line}").and_then(|()| io::stderr().flush());
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.show("");
    }
}
