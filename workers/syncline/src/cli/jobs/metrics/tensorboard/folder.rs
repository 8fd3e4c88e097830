//! The folder of a job, in which its event file lies.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    event,
    record::framed,
    scalars::{Written, news},
};
use crate::cli::{CliError, jobs::metrics::Training};

/// TensorBoard takes every file for one of events whose name has `tfevents` in it.
const BEGIN: &str = "events.out.tfevents.";
/// Tells ours from those of others.
const END: &str = ".syncline";

/// Locked by who writes: two that removed each other's files would leave both, or none that grows.
const LOCK: &str = ".syncline.lock";

/// The event file of a job, which grows.
#[derive(Debug)]
pub(in crate::cli::jobs::metrics) struct RunFolder {
    path: PathBuf,
    file: File,
    /// Bytes of whole records.
    len: u64,
    written: Written,
    /// Open as long as this one writes.
    lock: File,
}

impl RunFolder {
    /// Writes all that is known of a training into a new file of its folder below `dir`, in place of the one
    /// of an earlier run.
    ///
    /// The new file has a later name: a TensorBoard that runs reads it as what comes behind the other, which
    /// it has read.
    pub(in crate::cli::jobs::metrics) fn create(
        dir: &Path,
        of: &Training,
        now_ms: u64,
    ) -> Result<Self, CliError> {
        // The name may have that of a file in it.
        let folder = dir.join(of.name.replace(['/', '\\'], "_"));
        let failed = |source| CliError::Written { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        lock.try_lock().map_err(|refused| match refused {
            TryLockError::WouldBlock => CliError::FolderTaken { path: folder.clone() },
            TryLockError::Error(source) => failed(source),
        })?;
        let before = ours(&folder).map_err(failed)?;
        let newest = before.iter().filter_map(|path| number(path)).max();
        // Two runs within a millisecond, or a clock that went back.
        let number = newest.map_or(now_ms, |newest| now_ms.max(newest.saturating_add(1)));
        let path = folder.join(format!("{BEGIN}{number}{END}"));
        let mut written = Written::default();
        let mut bytes = framed(&event::first(now_ms));
        bytes.extend(news(of, &mut written).iter().flat_map(|event| framed(&event.encode())));
        let begin = || {
            let mut file = File::create(&path)?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        let file = begin().map_err(|source| {
            // No half of a file stays beside the one of the run before.
            let _ = fs::remove_file(&path);
            CliError::Written { path: path.clone(), source }
        })?;
        before.iter().try_for_each(fs::remove_file).map_err(failed)?;
        Ok(Self { path, file, len: bytes.len() as u64, written, lock })
    }

    /// As [`RunFolder::create`], where somebody has removed the folder, or the file in it.
    pub(in crate::cli::jobs::metrics) fn create_again(
        &mut self,
        dir: &Path,
        of: &Training,
        now_ms: u64,
    ) -> Result<(), CliError> {
        // One that is still there can be locked once.
        let _ = self.lock.unlock();
        *self = Self::create(dir, of, now_ms)?;
        Ok(())
    }

    /// Whether the file is still where it was.
    pub(in crate::cli::jobs::metrics) fn is_there(&self) -> bool {
        self.path.exists()
    }

    /// Adds what has come since. Where that fails nothing is added, and the next call tries again.
    pub(in crate::cli::jobs::metrics) fn add(&mut self, of: &Training) -> Result<(), CliError> {
        let mut written = self.written;
        let events = news(of, &mut written);
        if events.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = events.iter().flat_map(|event| framed(&event.encode())).collect();
        self.append(&bytes).map_err(|source| CliError::Written { path: self.path.clone(), source })?;
        (self.len, self.written) = (self.len + bytes.len() as u64, written);
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        // Somebody may have removed it, and what is written then is seen by nobody.
        fs::metadata(&self.path)?;
        self.file.write_all_at(bytes, self.len).inspect_err(|_| {
            // A part of a record would be taken for the whole of it.
            let _ = self.file.set_len(self.len);
        })
    }
}

/// Files of earlier runs.
fn ours(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    Ok(paths.into_iter().filter(|path| number(path).is_some()).collect())
}

/// What stands between beginning and end of a name of ours.
fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(BEGIN)?.strip_suffix(END)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::jobs::metrics::training::tests::{entry, training};

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_run_replaces_its_own_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (of, other) = (training(&[], &[(10, "2")]), training(&[("id", "other")], &[]));
        RunFolder::create(dir.path(), &of, 5_000).unwrap();
        RunFolder::create(dir.path(), &other, 5_000).unwrap();
        let folder = dir.path().join("digits");
        let others = ["events.out.tfevents.17.host.1.0", "events.out.tfevents.x.syncline", "notes"];
        others.iter().for_each(|name| fs::write(folder.join(name), "mine").unwrap());
        for (now_ms, want) in [(6_000, 6_000), (6_000, 6_001), (1_000, 6_002)] {
            RunFolder::create(dir.path(), &of, now_ms).unwrap();
            let ours = format!("events.out.tfevents.{want}.syncline");
            assert_eq!(names(&folder), [LOCK, others[0], &ours, others[1], others[2]]);
        }
        assert_eq!(names(&dir.path().join("other")), [LOCK, "events.out.tfevents.5000.syncline"]);
    }

    #[test]
    fn a_file_that_grew_is_the_one_that_is_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut of = training(&[], &[(10, "2")]);
        let mut grown = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        grown.add(&of).unwrap();
        of.points.push(entry(20, &[("loss", "1")]));
        of.evaluations.push(entry(20, &[("test_loss", "1.5")]));
        grown.add(&of).unwrap();
        let bytes = fs::read(&grown.path).unwrap();
        drop(grown);
        let whole = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        assert_eq!(bytes, fs::read(whole.path).unwrap());
    }

    #[test]
    fn one_that_follows_goes_on_and_a_second_one_is_told_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut of = training(&[], &[(10, "2")]);
        let mut follows = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        let second = RunFolder::create(dir.path(), &of, 6_000).unwrap_err().to_string();
        assert!(second.contains("[E576]") && second.ends_with("/digits"), "{second}");
        of.points.push(entry(20, &[("loss", "1")]));
        follows.add(&of).unwrap();
        drop(follows);
        RunFolder::create(dir.path(), &of, 7_000).unwrap();
    }

    #[test]
    fn what_could_not_be_added_is_added_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut of = training(&[], &[(10, "2")]);
        let mut follows = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        let (path, aside) = (follows.path.clone(), dir.path().join("aside"));
        of.points.push(entry(20, &[("loss", "1")]));
        fs::rename(&path, &aside).unwrap();
        assert!(follows.add(&of).unwrap_err().to_string().starts_with("[E574]"));
        fs::rename(&aside, &path).unwrap();
        follows.add(&of).unwrap();
        let bytes = fs::read(&path).unwrap();
        drop(follows);
        let whole = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        assert_eq!(bytes, fs::read(whole.path).unwrap());
    }

    #[test]
    fn what_somebody_has_removed_is_written_again_as_a_whole_and_stays_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut of = training(&[], &[(10, "2")]);
        let mut follows = RunFolder::create(dir.path(), &of, 5_000).unwrap();
        for with_folder in [true, false] {
            of.points.push(entry(20, &[("loss", "1")]));
            if with_folder {
                fs::remove_dir_all(dir.path().join("digits")).unwrap();
            } else {
                fs::remove_file(&follows.path).unwrap();
            }
            assert!(!follows.is_there());
            follows.create_again(dir.path(), &of, 5_000).unwrap();
            let bytes = fs::read(&follows.path).unwrap();
            assert!(RunFolder::create(dir.path(), &of, 5_000).unwrap_err().to_string().contains("[E576]"));
            let other = tempfile::tempdir().unwrap();
            let whole = RunFolder::create(other.path(), &of, 5_000).unwrap();
            assert_eq!(bytes, fs::read(whole.path).unwrap());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("digits"), "a file").unwrap();
        let error = RunFolder::create(dir.path(), &training(&[], &[]), 0).unwrap_err().to_string();
        assert!(error.contains("[E574]") && error.ends_with("/digits"), "{error}");
    }
}
