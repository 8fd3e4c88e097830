//! Tables that do not fit in memory, as numbers: folders of files that all processes of a user share, each
//! made by the first one that needs it.
//!
//! A table lies in the folder of its key, which appears there by one rename of `KEY.part`, whose files were
//! synced before: a reader sees all of it or nothing. Whoever writes holds a lock of `KEY.part/lock`, and
//! others wait for it; whoever reads holds one of `KEY/samples`, and is left alone. A process that is killed
//! loses its locks: what it has left is removed before the next table is written. So are tables that nobody
//! reads, those that were used last excepted. A table that is damaged is made again in a new folder: whoever
//! has opened the files of the old one keeps them.

mod lock;
mod removal;
mod seal;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use syncline_rpc::folder;
use tracing::warn;

use super::super::error::{DataError, FileError};
use super::super::file::Step;
use lock::{hold, is_at, locked};
use removal::{UNUSED_BYTES, bytes_in};
use seal::Opened;
pub(super) use seal::{ABOUT, LABELS, SAMPLES};

/// The time of its last change is that of the last use of the table.
const LOCK: &str = "lock";
/// Ends the name of a folder that is written.
const PART: &str = ".part";

/// Where they are.
#[derive(Debug, Clone)]
pub(crate) struct TableCache {
    folder: PathBuf,
    /// How much may be written to the disk of this folder; `None`: nobody knows.
    free_bytes: fn(&Path) -> Option<u64>,
}

/// A table that nobody removes as long as its samples are open.
pub(super) struct Held {
    pub(super) folder: PathBuf,
    pub(super) samples: File,
    pub(super) labels: File,
    pub(super) about: File,
}

/// Who follows what is done for a table.
type Look<'a> = dyn FnMut() -> Result<(), DataError> + 'a;

/// `table`: what is read when the step is done.
fn look<'a>(table: &'a Path, step: &'a mut Step<'_>) -> impl FnMut() -> Result<(), DataError> {
    move || step().map_err(|source| FileError::Io { path: table.to_owned(), source }.into())
}

impl TableCache {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), free_bytes: folder::free_bytes }
    }

    /// That of this user. `table`: who needs it.
    pub(in crate::data) fn of_user(table: &Path) -> Result<Self, DataError> {
        let cache = syncline_kit::cache_dir().map(|cache| Self::at(&cache.join("tables")));
        cache.ok_or_else(|| FileError::NoCache { path: table.to_owned() }.into())
    }

    /// Where it is noted which files were looked through.
    pub(in crate::data) fn notes(&self) -> PathBuf {
        self.folder.join("looked-through")
    }

    /// The table with this key, whose files `write` puts into a folder if they are not there yet, or are
    /// damaged. `table`: the first file that it is made of.
    pub(super) fn obtain(
        &self,
        key: &str,
        table: &Path,
        step: &mut Step<'_>,
        mut write: impl FnMut(&Path, &mut Step<'_>) -> Result<(), DataError>,
    ) -> Result<Held, DataError> {
        let [whole, part] = [self.folder.join(key), self.folder.join(format!("{key}{PART}"))];
        let failed = |place: &Path| {
            let (place, part) = (place.to_owned(), part.clone());
            move |source| self.failed(table, &place, bytes_in(&part), source)
        };
        // What this process has just written need not be looked through.
        let mut is_checked = false;
        loop {
            let (damaged, why) = match hold(&whole).map_err(failed(&whole))? {
                None => (None, format!("{SAMPLES}: missing")),
                Some(samples) => match seal::open(&whole, &samples, is_checked, &mut look(table, step))? {
                    Opened::Whole([labels, about]) => {
                        return Ok(Held { folder: whole, samples, labels, about });
                    }
                    Opened::Damaged(why) => (Some(samples), why),
                },
            };
            folder::make(&part).map_err(failed(&part))?;
            let Some(_lock) = locked(&part, &mut look(table, step), failed(&part))? else { continue };
            if whole.exists() {
                let samples = whole.join(SAMPLES);
                let is_damaged = match &damaged {
                    None => !samples.exists(),
                    Some(damaged) => is_at(damaged, &samples).map_err(failed(&samples))?,
                };
                if !is_damaged {
                    // Somebody has made it while this process waited.
                    let _ = self.remove(&part);
                    continue;
                }
                warn!(table = %table.display(), folder = %whole.display(), why, "made again: the numbers of this table are damaged");
                self.remove(&whole).map_err(failed(&whole))?;
            }
            drop(damaged);
            self.remove_unfinished();
            self.remove_unused(UNUSED_BYTES);
            let written = write(&part, step).and_then(|()| {
                seal::seal(&part, &mut look(table, step))?.map_err(failed(&part))?;
                let renamed = sync(&part).and_then(|()| fs::rename(&part, &whole));
                renamed.and_then(|()| sync(&self.folder)).map_err(failed(&whole))
            });
            if let Err(error) = written {
                let _ = self.remove(&part);
                return Err(error);
            }
            is_checked = true;
        }
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
