//! Logs of programs that are started again and again: they keep their end, where it says why the last one
//! ended.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

/// A log longer than this is cut.
const MAX_LOG_BYTES: u64 = 8 << 20;
/// What is left of a log that is cut.
const KEPT_LOG_BYTES: u64 = 1 << 20;
/// The end of a log that is shown is looked for here.
const TAIL_BYTES: u64 = 4 << 10;

/// Opens a log to append to it, and cuts it first if it has become long.
///
/// # Errors
/// The file cannot be made, read or written.
pub fn open_log(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    cut_log(path)?;
    Ok(file)
}

/// Removes all but the end of a log that has become long. Whoever writes it appends, and goes on behind that;
/// what it writes in this moment may be lost.
///
/// # Errors
/// The file cannot be read or written.
pub fn cut_log(path: &Path) -> io::Result<()> {
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

/// The last lines of a log, at most `most`, that were written since it was `start` bytes long, out of its
/// last 4 KiB; where it cannot be read, why.
pub fn tail(log: &Path, start: u64, most: usize) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.min(end).max(end.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(most)..].join("\n"))
    };
    read().unwrap_or_else(|e| format!("({e})"))
}

/// The last lines of a log, or that there are none.
pub fn said_last(log: &Path, tail: &str) -> String {
    match tail.trim().is_empty() {
        true => format!("it wrote nothing to its log {}", log.display()),
        false => format!("its log {} ends with:\n{tail}", log.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= KEPT_LOG_BYTES + 9 && text.starts_with("a line\n"), "{}", text.len());
        assert!(text.ends_with("a line\nthe last\n"));
    }

    #[test]
    fn what_a_chatty_program_said_last_is_there_when_it_is_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker-0.log");
        fs::write(&path, "a line\n".repeat(MAX_LOG_BYTES as usize / 7 + 1) + "the cause\n").unwrap();
        open_log(&path).unwrap().write_all(b"again\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("a line\nthe cause\nagain\n"));
    }
}
