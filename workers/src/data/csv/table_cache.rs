//! Tables that do not fit in memory, as numbers: folders of files that all processes of a user share, each made by the first one that needs it.
//!
//! A table lies in the folder of its key, which appears there by one rename of `KEY.part`, whose files were synced before: a reader sees
//! all of it or nothing. Whoever writes holds a lock of `KEY.part/lock`, and others wait for it; whoever reads holds one of `KEY/samples`, and is left
//! alone. A process that is killed loses its locks: what it has left is removed before the next table is written. So are tables that nobody reads, those
//! that were used last excepted.

use std::cmp::Reverse;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use syncline_rpc::folder;

use super::super::error::DataError;
use super::super::file::Step;

/// Of tables that nobody reads so many bytes stay.
const UNUSED_BYTES: u64 = 32 << 30;
/// How often somebody who waits for a lock looks whether the job goes on.
const LOOK: Duration = Duration::from_millis(100);

/// The numbers of all samples, in a folder of a table.
pub(super) const SAMPLES: &str = "samples";
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

/// A table that nobody removes as long as this is there.
pub(super) struct Held {
    pub(super) folder: PathBuf,
    pub(super) samples: File,
}

impl TableCache {
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), free_bytes: folder::free_bytes }
    }

    /// That of this user. `table`: who needs it.
    pub(super) fn of_user(table: &Path) -> Result<Self, DataError> {
        let cache = syncline_kit::cache_dir().map(|cache| Self::at(&cache.join("tables")));
        cache.ok_or_else(|| DataError::NoCache { path: table.to_owned() })
    }

    /// The table with this key, which `write` puts into a folder if it is not there yet.
    pub(super) fn obtain(
        &self,
        key: &str,
        step: &mut Step<'_>,
        mut write: impl FnMut(&Path, &mut Step<'_>) -> Result<(), DataError>,
    ) -> Result<Held, DataError> {
        let [whole, part] = [self.folder.join(key), self.folder.join(format!("{key}{PART}"))];
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DataError::Io { path, source }
        };
        loop {
            if let Some(held) = hold(&whole).map_err(failed(&whole))? {
                return Ok(held);
            }
            folder::make(&part).map_err(failed(&part))?;
            let Some(_lock) = locked(&part, step).map_err(failed(&part))? else { continue };
            if whole.exists() {
                self.remove(&part);
                // Somebody has removed a part of it.
                if !whole.join(SAMPLES).exists() {
                    fs::remove_dir_all(&whole).map_err(failed(&whole))?;
                }
                continue;
            }
            self.remove_unfinished();
            self.remove_unused(UNUSED_BYTES);
            let written = write(&part, step).and_then(|()| {
                let renamed = sync(&part).and_then(|()| fs::rename(&part, &whole));
                renamed.and_then(|()| sync(&self.folder)).map_err(failed(&whole))
            });
            if let Err(error) = written {
                self.remove(&part);
                return Err(error);
            }
        }
    }

    /// Sees to it that so much may be written, as far as is known; where tables that nobody reads take the room, they go. `needed_bytes`: what
    /// all of the table takes.
    pub(super) fn make_room(
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
        DataError::NoRoom { path: table.to_owned(), folder: self.folder.clone(), needed_bytes }
    }

    /// Removes tables that nobody reads, but for so many bytes of those that were used last. Returns whether there was one.
    fn remove_unused(&self, but_bytes: u64) -> bool {
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
                self.remove(folder);
            }
        }
        bytes > but_bytes
    }

    /// Removes what processes have left that were killed.
    fn remove_unfinished(&self) {
        for folder in self.folders().filter(|folder| folder.extension().is_some()) {
            let path = folder.join(LOCK);
            let Ok(lock) = open_lock(&path) else { continue };
            if lock.try_lock().is_ok() && is_at(&lock, &path).is_ok_and(|is_at| is_at) {
                self.remove(&folder);
            }
        }
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// Removes a folder whose lock we hold. It takes another name first, so that no one finds half of it, nor loses what he puts into one of this
    /// name meanwhile. What cannot be removed now is removed later.
    fn remove(&self, folder: &Path) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let gone = self.folder.join(format!("{name}.{}.gone", rand::random::<u64>()));
        if fs::rename(folder, &gone).is_ok() {
            let _ = fs::remove_dir_all(gone);
        }
    }
}

/// The table in this folder, if it is there.
fn hold(folder: &Path) -> io::Result<Option<Held>> {
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
    Ok(Some(Held { folder: folder.to_owned(), samples }))
}

/// Waits until nobody else writes into this folder; `None` if it went away or got its name meanwhile.
fn locked(folder: &Path, step: &mut Step<'_>) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    let lock = match open_lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => step()?,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        thread::sleep(LOOK);
    }
    Ok(is_at(&lock, &path)?.then_some(lock))
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether an open file is still the one of this name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let file = file.metadata()?;
    Ok((file.dev(), file.ino()) == (there.dev(), there.ino()))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> io::Result<()> {
        Ok(())
    }

    /// Writes so many bytes as the samples of a table.
    fn writes(bytes: usize) -> impl FnMut(&Path, &mut Step<'_>) -> Result<(), DataError> {
        move |folder, _| {
            fs::write(folder.join(SAMPLES), vec![0; bytes]).unwrap();
            Ok(())
        }
    }

    fn names(cache: &TableCache) -> Vec<String> {
        let mut names: Vec<String> =
            cache.folders().map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Says when a table was used last, which a clock may not tell apart.
    fn used_at(cache: &TableCache, key: &str, second: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        open_lock(&cache.folder.join(key).join(LOCK)).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_table_is_written_once_and_found_by_whoever_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(&folder.path().join("tables"));
        let first = cache.obtain("a", &mut step, writes(3)).unwrap();
        let again = cache.obtain("a", &mut step, |_, _| panic!("it is there")).unwrap();
        assert_eq!(fs::read(again.folder.join(SAMPLES)).unwrap(), [0; 3]);
        assert_eq!((first.folder, names(&cache)), (again.folder, vec!["a".to_owned()]));
    }

    #[test]
    fn a_table_of_which_somebody_has_removed_a_part_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        drop(cache.obtain("a", &mut step, writes(3)).unwrap());
        fs::remove_file(folder.path().join("a").join(SAMPLES)).unwrap();
        let again = cache.obtain("a", &mut step, writes(5)).unwrap();
        assert_eq!(
            (fs::read(again.folder.join(SAMPLES)).unwrap(), names(&cache)),
            (vec![0; 5], vec!["a".to_owned()])
        );
    }

    #[test]
    fn of_two_that_come_at_once_one_writes_and_the_other_waits() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let (begun, begins) = std::sync::mpsc::channel();
        let (waits, waited) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let cache = &cache;
            let first = scope.spawn(move || {
                cache.obtain("a", &mut step, |folder, step| {
                    begun.send(()).unwrap();
                    waited.recv().unwrap();
                    writes(3)(folder, step)
                })
            });
            begins.recv().unwrap();
            let mut look = || {
                let _ = waits.send(());
                Ok(())
            };
            cache.obtain("a", &mut look, |_, _| panic!("the other one writes")).unwrap();
            first.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_table_that_failed_leaves_nothing_and_one_that_was_killed_goes_before_the_next_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let failed = cache.obtain("a", &mut step, |folder, step| {
            writes(3)(folder, step)?;
            Err(cache.no_room(folder, 3))
        });
        assert_eq!((failed.map(|_| ()).unwrap_err().code(), names(&cache)), ("E611", vec![]));
        // What processes leave that are killed before the lock, within the numbers, and while they remove.
        for left in ["b.part", "c.part", "d.5.gone"] {
            fs::create_dir(folder.path().join(left)).unwrap();
        }
        fs::write(folder.path().join("c.part").join(LOCK), "").unwrap();
        fs::write(folder.path().join("c.part").join(SAMPLES), "half").unwrap();
        fs::write(folder.path().join("d.5.gone").join(SAMPLES), "whole").unwrap();
        let held = cache.obtain("c", &mut step, writes(9)).unwrap();
        assert_eq!(fs::read(held.folder.join(SAMPLES)).unwrap(), [0; 9]);
        assert_eq!(names(&cache), ["c"]);
    }

    #[test]
    fn of_tables_that_nobody_reads_those_stay_that_were_used_last() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::at(folder.path());
        let held = cache.obtain("held", &mut step, writes(100)).unwrap();
        for (key, used) in [("a", 3), ("b", 1), ("c", 2)] {
            cache.obtain(key, &mut step, writes(10)).unwrap();
            used_at(&cache, key, used);
        }
        assert!(!cache.remove_unused(30));
        assert!(cache.remove_unused(25));
        assert_eq!(names(&cache), ["a", "c", "held"]);
        assert!(cache.remove_unused(0));
        assert_eq!(names(&cache), ["held"]);
        drop(held);
        assert!(cache.remove_unused(0));
    }

    #[test]
    fn a_full_disk_takes_tables_that_nobody_reads_and_is_said_with_what_is_needed_and_where() {
        let folder = tempfile::tempdir().unwrap();
        let free_bytes = |folder: &Path| Some(if folder.join("old").exists() { 5 } else { 50 });
        let cache = TableCache { free_bytes, ..TableCache::at(folder.path()) };
        cache.obtain("old", &mut step, writes(10)).unwrap();
        let table = Path::new("all.csv");
        cache.make_room(table, 5, 5).unwrap();
        assert_eq!(names(&cache), ["old"]);
        cache.make_room(table, 50, 50).unwrap();
        assert_eq!(names(&cache), [""; 0]);
        let full = cache.make_room(table, 2_000_001, 51).unwrap_err().to_string();
        assert!(full.starts_with("[E611] all.csv as numbers takes about 3 MB in "), "{full}");
    }
}
