//! Files that their owner alone may read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Replaces a file as a whole by one of mode 0600. The caller holds the lock of the folder.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_added_extension("new");
    let write = || -> io::Result<()> {
        // What a start left that was killed may be open to others.
        match fs::remove_file(&unfinished) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&unfinished)))
}
