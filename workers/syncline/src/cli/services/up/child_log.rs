//! The log of a child, and its last lines for whoever asks why the child ended.

use std::{fs::File, io, path::Path, time::SystemTime};

use syncline_kit::tail;

/// Opens a log to append to it, cut where it is long.
pub(super) fn open_log(path: &Path) -> io::Result<File> {
    syncline_kit::open_log(path).map_err(|error| {
        io::Error::new(error.kind(), format!("its log {} cannot be written: {error}", path.display()))
    })
}

/// So many lines of a log say why its program ended.
pub(super) const TAIL_LINES: usize = 8;

/// The last line of a log in which something was written since then; a long one is cut.
pub(super) fn last_line(log: &Path, since: SystemTime) -> Option<String> {
    const LONGEST_CHARS: usize = 400;
    let written = log.metadata().and_then(|about| about.modified());
    if written.is_ok_and(|written| written < since) {
        return None;
    }
    let text = tail(log, 0, TAIL_LINES);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.chars().take(LONGEST_CHARS).collect())
}

/// What a program said last of why it ends, in the last lines of its log.
pub(super) fn reason(tail: &str) -> Option<&str> {
    tail.lines().rev().find_map(|line| line.strip_prefix("error: "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_reason_is_the_last_error_that_was_printed() {
        let tail = "2026 INFO ready\nerror: [E1] first\nerror: [E416] second\n  hint: look";
        assert_eq!(reason(tail), Some("[E416] second"));
        assert_eq!(reason("2026 ERROR something\n"), None);
    }

    #[test]
    fn a_log_without_a_folder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = open_log(&dir.path().join("gone/ps-0.log")).unwrap_err().to_string();
        assert!(error.contains("its log") && error.contains("gone/ps-0.log cannot be written"), "{error}");
    }

    #[test]
    fn the_last_line_of_a_log_is_the_last_that_says_something() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("worker-0.log");
        let said = || last_line(&log, SystemTime::UNIX_EPOCH);
        assert!(said().is_some_and(|why| why.contains("No such file")));
        std::fs::write(&log, "").unwrap();
        assert_eq!(said(), None);
        std::fs::write(&log, "first\nsecond\n\n").unwrap();
        assert_eq!(said().as_deref(), Some("second"));
        let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
        assert_eq!(last_line(&log, tomorrow), None, "of an earlier run");
        std::fs::write(&log, "long ".repeat(1000)).unwrap();
        assert_eq!(said().unwrap().len(), 400);
    }
}
