//! That files are those of a job, noted by whoever has read them from one end to the other: a worker that
//! starts again need not.
//!
//! A note is an empty file. Its name is the BLAKE3 of the digests of the job and of what the system says of
//! each file: device, inode, length, and when its bytes and its entry were changed. Whoever writes into a
//! file may set back the time of its bytes, but not that of its entry.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use syncline_rpc::folder;
use syncline_scheduler::spec::DataSpec;

/// Notes are removed after so long.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Where a note is, or is to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note(PathBuf);

impl Note {
    /// That of the files as they are now; `None` where the job does not know the digest of each, or one
    /// cannot be looked at.
    pub(super) fn of(spec: &DataSpec, folder: &Path) -> Option<Self> {
        let (paths, mut name) = (spec.paths(), blake3::Hasher::new());
        let knows_each = paths.len() == 1 || paths.len() == spec.file_digests.len();
        let digest = spec.digest.filter(|_| knows_each)?;
        let each: Vec<String> = spec.file_digests.iter().map(ToString::to_string).collect();
        name.update(format!("{digest} {each:?}").as_bytes());
        for path in paths {
            let about = fs::metadata(path).ok()?;
            let bytes_changed = (about.mtime(), about.mtime_nsec());
            let entry_changed = (about.ctime(), about.ctime_nsec());
            let now = (about.dev(), about.ino(), about.len(), bytes_changed, entry_changed);
            name.update(format!("{now:?}").as_bytes());
        }
        Some(Self(folder.join(name.finalize().to_hex().as_str())))
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.exists()
    }

    /// Where it cannot be written, the files are read again next time.
    pub(super) fn write(&self) {
        let Some(folder) = self.0.parent() else { return };
        let _ = folder::make(folder).and_then(|()| File::create(&self.0));
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|note| note.modified());
            let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
