//! Files that a person names: only files are opened, and no more of them is read than makes sense.
//!
//! A folder cannot be read, a pipe may never give anything, a device may never end: each is refused at once,
//! by name.

use std::{
    fs::{self, File, FileType},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

/// What editors on some systems write in front of a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Opens a file; anything else of that name is an error that says what it is.
pub fn open(path: &Path) -> io::Result<File> {
    check_kind(fs::metadata(path)?.file_type())?;
    open_at_once(path)
}

/// Opens what stands there now, whatever stood there when it was looked at: a pipe is not waited for.
fn open_at_once(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

/// Refuses a name at which something else than a file stands: a device or a pipe must not make way for a
/// file.
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) => check_kind(there.file_type()),
        // What hinders is told by whoever writes there.
        Err(_) => Ok(()),
    }
}

fn check_kind(kind: FileType) -> io::Result<()> {
    match kind.is_file() {
        true => Ok(()),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a file", word(kind))))
        }
    }
}

/// A text of at most so many bytes, without its byte order mark.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let mut file = open(path)?.take(limit + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        let cause = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
    }
    Ok(match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// These bytes without a byte order mark in front.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(bytes)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_and_the_rest_is_called_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for (path, what) in
            [(dir.path(), "a folder"), (&pipe, "a pipe"), (Path::new("/dev/zero"), "a device")]
        {
            let error = open(path).unwrap_err().to_string();
            assert_eq!(error, format!("it is {what}, not a file"));
        }
        // Also where it has taken the place of a file that was looked at.
        assert_eq!(open_at_once(&pipe).unwrap_err().to_string(), "it is a pipe, not a file");
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        assert!(open(&dir.path().join("link")).is_ok());
    }

    #[test]
    fn a_text_is_bounded_and_loses_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("job.toml");
        fs::write(&file, "\u{feff}id = 1").unwrap();
        assert_eq!(read_text(&file, 9).unwrap(), "id = 1");
        assert_eq!(read_text(&file, 8).unwrap_err().to_string(), "it has more than 8 bytes");
        assert_eq!(without_mark("\u{feff}a,b".as_bytes()), b"a,b");
    }
}
