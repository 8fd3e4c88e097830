//! How much room the disk of the state directory has, and whether it takes what is written.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant, SystemTime},
};

use syncline_rpc::{DiskState, ShardFault, folder, threads::lock};

use super::blobs::{PendingFile, UNFINISHED};

/// How often a small file is written. A disk that fails, or has no room for one file more, may have many
/// bytes free.
const TRIAL_INTERVAL: Duration = Duration::from_secs(10);

/// The disk, as it was when it was last looked at: whoever tells others does not wait for it.
pub(super) struct Disk {
    dir: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    state: DiskState,
    /// When a file was last written.
    tried: Option<Instant>,
}

impl Disk {
    /// Looks how the disk of this folder is.
    pub(super) fn measure(state_dir: &Path) -> Self {
        let disk = Self { dir: state_dir.to_owned(), seen: Mutex::default() };
        disk.look();
        disk
    }

    /// Looks how it is. May block as long as the disk does.
    pub(super) fn look(&self) {
        let (free_bytes, free_inodes) = (folder::free_bytes(&self.dir), folder::free_inodes(&self.dir));
        let is_due = lock(&self.seen).tried.is_none_or(|at| at.elapsed() >= TRIAL_INTERVAL);
        let written = is_due.then(|| self.write_one());
        let mut seen = lock(&self.seen);
        (seen.state.free_bytes, seen.state.free_inodes) = (free_bytes, free_inodes);
        if let Some(written) = written {
            seen.state.problem = written.err().map(|fault| fault.to_string());
            seen.tried = Some(Instant::now());
        }
    }

    /// Brings a small file to the disk, and removes it.
    fn write_one(&self) -> Result<(), ShardFault> {
        let mut file = PendingFile::create(self.dir.join(format!("disk.{UNFINISHED}")))?;
        file.write(&[0])?;
        file.sync_as_of(SystemTime::now())
    }

    pub(super) fn state(&self) -> DiskState {
        lock(&self.seen).state.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_disk_that_takes_a_file_has_no_problem_and_one_that_does_not_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let state = Disk::measure(dir.path()).state();
        assert_eq!((state.problem, state.free_bytes.is_some()), (None, true));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of it");
        let no_folder = dir.path().join("file");
        fs::write(&no_folder, "").unwrap();
        let problem = Disk::measure(&no_folder).state().problem.unwrap();
        assert!(problem.starts_with("[E406] cannot create "), "{problem}");
    }
}
