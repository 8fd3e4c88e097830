//! The log of a child: begun anew or cut where it is long, and its last lines for whoever asks why the child ended.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

/// A log longer than this is begun anew at the next start, and cut while the child runs.
pub(super) const MAX_LOG_BYTES: u64 = 8 << 20;
/// What is left of a log that is cut.
const KEPT_LOG_BYTES: u64 = 1 << 20;

/// Opens a log to append to it.
pub(super) fn open_log(path: &Path) -> io::Result<File> {
    let unwritable = |error: io::Error| {
        io::Error::new(error.kind(), format!("its log {} cannot be written: {error}", path.display()))
    };
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(unwritable)?;
    if file.metadata()?.len() > MAX_LOG_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Removes all but the end of a log that has become long. Who writes it appends, and goes on behind that; what it writes in
/// this moment may be lost.
pub(super) fn cut_log(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes <= MAX_LOG_BYTES {
        return Ok(());
    }
    file.seek(SeekFrom::Start(bytes - KEPT_LOG_BYTES))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    file.set_len(0)?;
    let first_line = end.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.write_all(&end[first_line..])
}

/// The last line of a log; a long one is cut.
pub(super) fn last_line(log: &Path) -> Option<String> {
    const LONGEST_CHARS: usize = 400;
    let text = tail(log, 0);
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.chars().take(LONGEST_CHARS).collect())
}

/// What a program said last of why it ends, in the last lines of its log.
pub(super) fn reason(tail: &str) -> Option<&str> {
    tail.lines().rev().find_map(|line| line.strip_prefix("error: "))
}

/// The last lines that were logged since `start`.
pub(super) fn tail(log: &Path, start: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.min(end).max(end.saturating_sub(4096))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(8)..].join("\n"))
    };
    read().unwrap_or_else(|e| format!("({e})"))
}

#[cfg(test)]
mod tests {
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
        assert!(last_line(&log).is_some_and(|why| why.contains("No such file")));
        std::fs::write(&log, "").unwrap();
        assert_eq!(last_line(&log), None);
        std::fs::write(&log, "first\nsecond\n\n").unwrap();
        assert_eq!(last_line(&log).as_deref(), Some("second"));
        std::fs::write(&log, "long ".repeat(1000)).unwrap();
        assert_eq!(last_line(&log).unwrap().len(), 400);
    }

    #[test]
    fn a_log_that_grows_keeps_its_end_and_is_written_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker-0.log");
        let mut writer = open_log(&path).unwrap();
        writer.write_all("a line\n".repeat(10).as_bytes()).unwrap();
        cut_log(&path).unwrap();
        assert_eq!(writer.metadata().unwrap().len(), 70, "a short one is left alone");
        writer.write_all("a line\n".repeat(MAX_LOG_BYTES as usize / 7).as_bytes()).unwrap();
        cut_log(&path).unwrap();
        writer.write_all(b"the last\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= KEPT_LOG_BYTES + 9 && text.starts_with("a line\n"), "{}", text.len());
        assert!(text.ends_with("a line\nthe last\n"));
    }
}
