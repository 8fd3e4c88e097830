//! The digest of a whole checkpoint, kept beside it as `NUMBER.digest`: who fetches its file as a blob asks
//! by that, and to read a large file takes longer than anybody waits. It is missing where the disk or a crash
//! took it, and the file is read then.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use syncline_scheduler::ids::ContentDigest;

use tracing::debug;

use super::checked_file::whole_digest;

const ENDING: &str = "digest";

/// Where that of this checkpoint is.
pub(super) fn path_of(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension(ENDING)
}

/// Keeps it. What cannot be kept is computed when it is needed.
pub(super) fn keep(checkpoint: &Path, digest: &ContentDigest) {
    let path = path_of(checkpoint);
    if let Err(error) = fs::write(&path, digest.to_string()) {
        debug!(path = %path.display(), %error, "cannot keep the digest of a checkpoint");
    }
}

/// That of this checkpoint. Cost: a pass over the file where it is not beside it.
///
/// # Errors
/// If the file is not there, or cannot be read; invalid data if it is read and damaged.
pub(super) fn of(checkpoint: &Path) -> io::Result<ContentDigest> {
    fs::metadata(checkpoint)?;
    if let Some(kept) = read(&path_of(checkpoint)) {
        return Ok(kept);
    }
    let digest = whole_digest(checkpoint)?;
    keep(checkpoint, &digest);
    Ok(digest)
}

/// Removes every one that says so, below the folder of all jobs: a file that was given by it is damaged, and
/// is read the next time.
pub(super) fn forget(folder: &Path, digest: &ContentDigest) {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries(folder).flat_map(|of_job| entries(&of_job)) {
        if path.extension().is_some_and(|ending| ending == ENDING) && read(&path) == Some(*digest) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn read(path: &Path) -> Option<ContentDigest> {
    fs::read_to_string(path).ok()?.parse().ok()
}
