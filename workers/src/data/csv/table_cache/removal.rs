//! Room for a table, and what goes: tables that nobody reads, where others need the room, and what processes
//! have left that were killed.

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::super::super::error::{DataError, FileError};
use super::lock::{is_at, open_lock};
use super::{LOCK, SAMPLES, TableCache};

/// Of tables that nobody reads so many bytes stay.
pub(super) const UNUSED_BYTES: u64 = 32 << 30;

impl TableCache {
    /// Sees to it that so much may be written, as far as is known; where tables that nobody reads take the
    /// room, they go. `needed_bytes`: what all of the table takes.
    pub(in super::super) fn make_room(
        &self,
        table: &Path,
        needed_bytes: u64,
        more_bytes: u64,
    ) -> Result<(), DataError> {
        let is_there = || (self.free_bytes)(&self.folder).is_none_or(|free| free >= more_bytes);
        if is_there() || self.remove_unused(0) && is_there() {
            return Ok(());
        }
        Err(self.no_room(table, needed_bytes))
    }

    pub(super) fn no_room(&self, table: &Path, needed_bytes: u64) -> DataError {
        FileError::NoRoom { path: table.to_owned(), folder: self.folder.clone(), needed_bytes }.into()
    }

    /// What is said where a file or folder of the cache fails. `needed_bytes`: of the table, as far as is
    /// known; 0 before anything was written.
    pub(in super::super) fn failed(
        &self,
        table: &Path,
        place: &Path,
        needed_bytes: u64,
        source: io::Error,
    ) -> DataError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded if needed_bytes > 0 => {
                self.no_room(table, needed_bytes)
            }
            _ => FileError::TableCache { path: table.to_owned(), place: place.to_owned(), source }.into(),
        }
    }

    /// Removes tables that nobody reads, but for so many bytes of those that were used last. Returns whether
    /// there was one.
    pub(super) fn remove_unused(&self, but_bytes: u64) -> bool {
        let whole = self.folders().filter(|folder| folder.extension().is_none());
        let mut unused: Vec<(SystemTime, PathBuf, File)> = whole
            .filter_map(|folder| {
                // For writing, or no lock could be had on NFS.
                let samples = OpenOptions::new().read(true).write(true).open(folder.join(SAMPLES)).ok()?;
                samples.try_lock().ok()?;
                let used = fs::metadata(folder.join(LOCK)).and_then(|lock| lock.modified()).ok()?;
                Some((used, folder, samples))
            })
            .collect();
        unused.sort_by_key(|(used, ..)| Reverse(*used));
        let mut bytes = 0;
        for (_, folder, _) in &unused {
            bytes += bytes_in(folder);
            if bytes > but_bytes {
                let _ = self.remove(folder);
            }
        }
        bytes > but_bytes
    }

    /// Removes what processes have left that were killed.
    pub(super) fn remove_unfinished(&self) {
        for folder in self.folders().filter(|folder| folder.extension().is_some()) {
            let path = folder.join(LOCK);
            let Ok(lock) = open_lock(&path) else { continue };
            if lock.try_lock().is_ok() && is_at(&lock, &path).is_ok_and(|is_at| is_at) {
                let _ = self.remove(&folder);
            }
        }
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// Removes a folder whose lock we hold. It takes another name first, so that no one finds half of it, nor
    /// loses what he puts into one of this name meanwhile. What cannot be removed then is removed later.
    pub(super) fn remove(&self, folder: &Path) -> io::Result<()> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let gone = self.folder.join(format!("{name}.{}.gone", rand::random::<u64>()));
        fs::rename(folder, &gone)?;
        let _ = fs::remove_dir_all(gone);
        Ok(())
    }
}

pub(super) fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
