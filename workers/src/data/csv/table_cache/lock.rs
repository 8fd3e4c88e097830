//! Who holds a table: locks of its files, which a process loses with its life.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use super::super::super::error::DataError;
use super::{LOCK, Look, SAMPLES};

/// How often somebody who waits for a lock checks whether the job goes on.
const WAIT: Duration = Duration::from_millis(100);

/// The samples of the table in this folder, if they are there: nobody removes it as long as they are open.
pub(super) fn hold(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(SAMPLES);
    let samples = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    samples.lock_shared()?;
    if !is_at(&samples, &path)? {
        return Ok(None);
    }
    // Where it fails, the table is only taken for one that was not used for longer.
    let _ = open_lock(&folder.join(LOCK)).and_then(|lock| lock.set_modified(SystemTime::now()));
    Ok(Some(samples))
}

/// Waits until nobody else writes into this folder; `None` if it went away or got its name meanwhile.
pub(super) fn locked(
    folder: &Path,
    look: &mut Look<'_>,
    failed: impl Fn(io::Error) -> DataError,
) -> Result<Option<File>, DataError> {
    let path = folder.join(LOCK);
    let lock = match open_lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(&failed)?,
    };
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => look()?,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        thread::sleep(WAIT);
    }
    Ok(is_at(&lock, &path).map_err(failed)?.then_some(lock))
}

pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether an open file is still the one of this name.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let file = file.metadata()?;
    Ok((file.dev(), file.ino()) == (there.dev(), there.ino()))
}
