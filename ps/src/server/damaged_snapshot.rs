//! A snapshot and its blob are one file with two names: what a disk has damaged is damaged under both.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{JobFolders, ShardFault};
use tracing::warn;

use super::{Shared, blobs::disk_fault};

/// Ending of a snapshot that is damaged.
const DAMAGED: &str = "damaged";

/// What a damaged snapshot is called from then on.
pub(super) fn aside(snapshot: &Path) -> PathBuf {
    snapshot.with_extension(DAMAGED)
}

/// Gives the snapshot that is the same file as a damaged blob a name that says so. It stays: it may be all
/// that is left of a training.
pub(super) fn set_aside(shared: &Shared, blob: &Path) -> Result<(), ShardFault> {
    match snapshot_of(shared, blob) {
        Ok(Some(path)) => {
            let aside = aside(&path);
            fs::rename(&path, &aside).map_err(|e| disk_fault("set aside", &path, &e))?;
            warn!(path = %path.display(), aside = %aside.display(), "a snapshot is damaged, and set aside");
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(e) => Err(disk_fault("find the snapshot of", blob, &e)),
    }
}

fn snapshot_of(shared: &Shared, blob: &Path) -> io::Result<Option<PathBuf>> {
    let about = fs::metadata(blob)?;
    let dir = shared.state_dir.join(JobFolders::Snapshots.dir_name());
    if about.nlink() == 1 || !dir.exists() {
        return Ok(None);
    }
    for job in fs::read_dir(dir)? {
        // What is no folder, or cannot be read, is not ours.
        for file in fs::read_dir(job?.path()).into_iter().flatten() {
            let file = file?;
            if file.metadata().is_ok_and(|found| found.ino() == about.ino()) {
                return Ok(Some(file.path()));
            }
        }
    }
    Ok(None)
}

/// The digest that a snapshot had when it was written, as far as its blob, which is the same file, is still
/// there.
pub(super) fn written_digest(shared: &Shared, snapshot: &Path) -> Result<Option<ContentDigest>, ShardFault> {
    let about = fs::metadata(snapshot).map_err(|e| disk_fault("look at", snapshot, &e))?;
    if about.nlink() == 1 {
        return Ok(None);
    }
    let blobs = shared.blobs.list(&ContentDigest::LOWEST, usize::MAX)?;
    let is_it = |blob: &ContentDigest| {
        fs::metadata(shared.blobs.path(blob)).is_ok_and(|found| found.ino() == about.ino())
    };
    Ok(blobs.into_iter().find(is_it))
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::{ContentDigest, Generation, RunId};

    use super::{
        super::{blob_check::check, snapshot},
        *,
    };
    use crate::content::digest_of;

    #[test]
    fn a_snapshot_whose_blob_is_damaged_is_set_aside_and_its_neighbors_stay() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let [first, second] = ["first", "second"].map(|name| written(&shared, name));
        fs::write(&first.1, "worse").unwrap();
        assert_eq!([first.0, second.0].map(|digest| check(&shared, &digest).unwrap()), [None, Some(6)]);
        let there = [&first.1, &aside(&first.1), &second.1, &shared.blobs.path(&first.0)];
        assert_eq!(there.map(|path| path.exists()), [false, true, true, false]);
    }

    #[test]
    fn a_snapshot_that_was_damaged_since_it_was_written_does_not_become_that_of_its_job() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let ask_again = || snapshot::write(&shared, &run, None, "last");
        let (digest, path) = written(&shared, "last");
        assert_eq!(ask_again().unwrap().digest, digest);
        fs::write(&path, "lost").unwrap();
        assert_eq!(ask_again().unwrap_err().code(), "E634");
        assert!(aside(&path).exists() && shared.blobs.stat(&digest) == Ok(None));
        assert_eq!(ask_again().unwrap_err().code(), "E402", "there is none any more");
    }

    /// A snapshot that holds its name, and is a blob as well.
    fn written(shared: &Shared, name: &str) -> (ContentDigest, PathBuf) {
        let path =
            shared.state_dir.join("snapshots/digits-00000000").join(name).with_extension("safetensors");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, name).unwrap();
        let digest = digest_of(name.as_bytes());
        shared.blobs.link(&digest, &path).unwrap();
        (digest, path)
    }
}
