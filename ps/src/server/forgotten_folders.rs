//! Folders on this shard's disk of jobs that nobody knows any more: checkpoints, where no engine was there to
//! have them removed, and snapshots, which stay when their job is deleted.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use syncline_rpc::{FolderGc, Forgotten, JobFolders, KnownJobs, ShardFault, threads::lock};

use super::{Shared, blobs::disk_fault, checkpoints};

/// Finds, and removes if they are to go, the folders of jobs that are not among `known` nor here, earlier
/// ones of the same name included, and in which nothing was written for so long. Whatever has another name
/// than [`checkpoints::folder_name`] gives is left alone.
pub(super) fn collect(
    shared: &Shared,
    what: JobFolders,
    known: &KnownJobs,
    age: Duration,
    gc: FolderGc,
) -> Result<Forgotten, ShardFault> {
    let dir = shared.state_dir.join(what.dir_name());
    let mut forgotten = Forgotten::default();
    // A job whose folder is looked at is not opened and written meanwhile.
    let _alone = lock(&shared.checkpoint_files);
    let entries = match fs::read_dir(&dir) {
        // None was ever written.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(forgotten),
        entries => entries.map_err(|e| disk_fault("read", &dir, &e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| disk_fault("read", &dir, &e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(run) = checkpoints::run_of_folder(name) else { continue };
        let is_here = shared.jobs.has(&run) || shared.followed.find(&run).is_some();
        if is_here || known.has(&run) || !path.is_dir() {
            continue;
        }
        let (bytes, newest) = measure(&path).map_err(|e| disk_fault("read", &path, &e))?;
        // A time in the future comes from another clock: it counts as now.
        if newest.elapsed().unwrap_or_default() >= age {
            if gc == FolderGc::Remove {
                if what == JobFolders::Checkpoints {
                    shared.fetching.give_up(|fetched| fetched.run.is_of_same_job(&run));
                }
                fs::remove_dir_all(&path).map_err(|e| disk_fault("remove", &path, &e))?;
            }
            forgotten.folders += 1;
            forgotten.bytes += bytes;
        }
    }
    Ok(forgotten)
}

/// The bytes of what lies in a folder, and when something in it was written last.
fn measure(folder: &Path) -> io::Result<(u64, SystemTime)> {
    let (mut bytes, mut newest) = (0, fs::metadata(folder)?.modified()?);
    for entry in fs::read_dir(folder)? {
        let about = entry?.metadata()?;
        bytes += about.len();
        newest = newest.max(about.modified()?);
    }
    Ok((bytes, newest))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn folders_of_jobs_that_are_forgotten_go_when_they_are_old_and_are_told_to_and_all_else_stays() {
        let kinds = [JobFolders::Checkpoints, JobFolders::Snapshots];
        kinds.into_iter().for_each(of_forgotten_jobs_go_and_all_else_stays);
    }

    fn of_forgotten_jobs_go_and_all_else_stays(what: JobFolders) {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let of = |name: &str| dir.path().join(what.dir_name()).join(name);
        let long_ago = SystemTime::now() - Duration::from_secs(7_200);
        for (name, is_old) in [
            ("gone-0000002a", true),
            ("gone-twice-ffffffff", true),
            ("young-00000001", false),
            ("known-00000001", true),
            ("replaced-00000001", true),
            ("replaced-00000002", true),
            ("backup", true),
            ("mine-2a", true),
        ] {
            fs::create_dir_all(of(name)).unwrap();
            fs::write(of(name).join("3.checkpoint"), "12345").unwrap();
            if is_old {
                let paths = [of(name).join("3.checkpoint"), of(name)];
                paths.iter().for_each(|path| File::open(path).unwrap().set_modified(long_ago).unwrap());
            }
        }
        fs::write(of("file-00000001"), "no folder").unwrap();
        let known = KnownJobs(
            [("known", None), ("replaced", Some(2))].map(|(job, nonce)| (job.parse().unwrap(), nonce)).into(),
        );
        let hour = Duration::from_secs(3_600);
        let three = Forgotten { folders: 3, bytes: 15 };
        assert_eq!(collect(&shared, what, &known, hour, FolderGc::Count), Ok(three));
        assert_eq!(collect(&shared, what, &known, hour, FolderGc::Remove), Ok(three));
        assert_eq!(collect(&shared, what, &known, hour, FolderGc::Remove), Ok(Forgotten::default()));
        let mut left: Vec<_> =
            fs::read_dir(of("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let want =
            ["backup", "file-00000001", "known-00000001", "mine-2a", "replaced-00000002", "young-00000001"];
        assert_eq!(left, want);
    }

    #[test]
    fn a_folder_of_another_clock_counts_as_new_and_goes_where_no_age_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let folder = dir.path().join("checkpoints/ahead-00000001");
        fs::create_dir_all(&folder).unwrap();
        File::open(&folder).unwrap().set_modified(SystemTime::now() + Duration::from_secs(3_600)).unwrap();
        let found = |age| {
            collect(&shared, JobFolders::Checkpoints, &KnownJobs::default(), age, FolderGc::Count)
                .unwrap()
                .folders
        };
        assert_eq!([found(Duration::from_secs(1)), found(Duration::ZERO)], [0, 1]);
    }

    #[test]
    fn a_shard_that_never_wrote_a_checkpoint_has_none_to_remove() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        assert_eq!(
            collect(
                &shared,
                JobFolders::Checkpoints,
                &KnownJobs::default(),
                Duration::ZERO,
                FolderGc::Remove
            ),
            Ok(Forgotten::default())
        );
    }
}
