//! Checkpoints on this shard's disk: `checkpoints/JOB-NONCE/NUMBER.checkpoint`, each the part of this shard.
//!
//! A file is complete or absent, and says itself whether it is whole. Only the engine knows which numbers
//! every shard has.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::MutexGuard,
    time::SystemTime,
};

use syncline_rpc::{JobFolders, OpenJob, Retention, ShardFault, folder, threads::lock};
use syncline_scheduler::{
    ids::{ContentDigest, EngineEpoch, Generation, RunId},
    spec::ElementRange,
};

use tracing::{debug, warn};

use super::{
    Shared,
    blobs::{PendingFile, UNFINISHED, disk_fault},
    checked_file::{is_damage, read_checked, write_checked},
    checkpoint_copy::{KeptCheckpoint, KeptCheckpoints, Wish, or_from_standby},
    checkpoint_digest, standby_files,
};
use crate::shard::{JobShard, StandbyOp};

const ENDING: &str = "checkpoint";

/// Where the checkpoints of all jobs are.
pub(super) fn folder(shared: &Shared) -> PathBuf {
    shared.state_dir.join(JobFolders::Checkpoints.dir_name())
}

/// Where those of one job are: a later job of the same name has another nonce.
fn folder_of(shared: &Shared, run: &RunId) -> PathBuf {
    folder(shared).join(folder_name(run))
}

/// The name of a folder of one job, of its checkpoints or its snapshots.
pub(crate) fn folder_name(run: &RunId) -> String {
    format!("{}-{:08x}", run.job, run.generation.nonce())
}

/// The file of one.
fn path_of(shared: &Shared, run: &RunId, number: u64) -> PathBuf {
    folder_of(shared, run).join(format!("{number}.{ENDING}"))
}

/// Some run of the job whose folder has this name.
pub(super) fn run_of_folder(name: &str) -> Option<RunId> {
    let (job, nonce) = name.rsplit_once('-')?;
    let is_nonce = nonce.len() == 8 && nonce.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let nonce = u32::from_str_radix(nonce, 16).ok().filter(|_| is_nonce)?;
    Some(RunId { job: job.parse().ok()?, generation: Generation::first(nonce) })
}

/// The number of the checkpoint in a file of this name.
pub(crate) fn number_of_file(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_suffix(ENDING)?.strip_suffix('.')?.parse().ok()?;
    // `+7` and `007` are numbers, and not names of ours.
    (name == format!("{number}.{ENDING}")).then_some(number)
}

/// Writes the copy that was pinned as checkpoint `number`; returns its bytes. One that is on disk already
/// stays.
pub(super) fn write(shared: &Shared, shard: &JobShard, number: u64) -> Result<u64, ShardFault> {
    let bytes = write_part(shared, shard, number)?;
    shard.record(StandbyOp::WriteCheckpoint { number });
    Ok(bytes)
}

/// The same for a job that is served, or followed.
pub(super) fn write_part(shared: &Shared, shard: &JobShard, number: u64) -> Result<u64, ShardFault> {
    // The end of a job removes its folder, which must not come back.
    let _alone = lock(&shared.checkpoint_files);
    let written = write_pinned(shared, shard, number);
    // What cannot be written is given up, and must not hold memory until the next one.
    shard.drop_checkpoint(number);
    written
}

fn write_pinned(shared: &Shared, shard: &JobShard, number: u64) -> Result<u64, ShardFault> {
    let job = shard.job();
    if shard.has_ended() {
        return Err(ShardFault::Closed { job: job.clone() });
    }
    let dir = folder_of(shared, shard.run());
    let path = path_of(shared, shard.run(), number);
    let Some(copy) = shard.pinned_checkpoint(number) else {
        return match fs::metadata(&path) {
            Ok(file) => Ok(file.len()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let cause = "the shard was started again before it had written it".to_owned();
                Err(ShardFault::NoCheckpoint { job: job.clone(), number, cause })
            }
            Err(e) => Err(disk_fault("look at", &path, &e)),
        };
    };
    let (digest, bytes) = make_durably(&dir)
        .map_err(|e| disk_fault("make", &dir, &e))
        .and_then(|()| shared.blobs.begin_in(&dir))
        .and_then(|file| write_checked(file, &path, |out| copy.write(out)))?;
    checkpoint_digest::keep(&path, &digest);
    Ok(bytes)
}

/// Makes a folder two levels below the state directory. A name is on disk only when the folder that holds it
/// is.
pub(super) fn make_durably(dir: &Path) -> io::Result<()> {
    folder::make(dir)?;
    dir.ancestors().skip(1).take(2).try_for_each(|above| File::open(above)?.sync_all())
}

/// Reads this shard's part of checkpoint `number` as the job of `order`.
pub(super) fn load(
    shared: &Shared,
    order: &OpenJob,
    range: ElementRange,
    epoch: EngineEpoch,
    number: u64,
) -> Result<JobShard, ShardFault> {
    let path = path_of(shared, &order.run, number);
    or_from_standby(shared, &order.run, number, || {
        read_checked(&path, |from| JobShard::read_checkpoint(order, range, epoch, number, from)).map_err(
            |e| {
                let what = format!("shard {}, {}", order.shard, path.display());
                unreadable(&order.run, number, &what, &e)
            },
        )
    })
}

/// What a checkpoint is whose file, `what`, could not be read: none if it is not there or damaged. A disk
/// that cannot be read now may have it.
fn unreadable(run: &RunId, number: u64, what: &str, error: &io::Error) -> ShardFault {
    if error.kind() == io::ErrorKind::NotFound || is_damage(error) {
        let cause = format!("{what}: {error}");
        return ShardFault::NoCheckpoint { job: run.job.clone(), number, cause };
    }
    let what = format!("cannot read checkpoint {number} of job {}: {what}", run.job);
    ShardFault::Io { what, cause: error.to_string() }
}

/// This shard's parts of the checkpoints of all jobs. What somebody else put there is not among them.
pub(super) fn list(shared: &Shared) -> Result<KeptCheckpoints, ShardFault> {
    let dir = folder(shared);
    let jobs = match fs::read_dir(&dir) {
        // None was ever written.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(KeptCheckpoints::new()),
        jobs => jobs.map_err(|e| disk_fault("read", &dir, &e))?,
    };
    let mut kept = KeptCheckpoints::new();
    for job in jobs {
        let path = job.map_err(|e| disk_fault("read", &dir, &e))?.path();
        let Some(run) = path.file_name().and_then(|name| run_of_folder(name.to_str()?)) else { continue };
        let listed = fs::read_dir(&path).and_then(|files| {
            for file in files {
                let file = file?;
                let Some(number) = number_of_file(&file.path()) else { continue };
                // It may go at any time.
                let Ok(about) = file.metadata() else { continue };
                if about.is_file() {
                    // What is older than all clocks cannot be said.
                    let written_at = about.modified()?.max(SystemTime::UNIX_EPOCH);
                    kept.insert(KeptCheckpoint { run: run.clone(), number }, written_at);
                }
            }
            Ok(())
        });
        // The job has just ended, or its folder cannot be read: the others are there.
        if let Err(error) = listed {
            debug!(path = %path.display(), %error, "cannot list checkpoints");
        }
    }
    Ok(kept)
}

/// Refuses if this shard has a part of a checkpoint of the job with a higher number.
pub(super) fn check_none_beyond(shared: &Shared, run: &RunId, known_through: u64) -> Result<(), ShardFault> {
    let kept = list(shared)?;
    let of_job = kept.keys().filter(|kept| kept.run.is_of_same_job(run));
    match of_job.map(|kept| kept.number).max() {
        Some(newest) if newest > known_through => {
            Err(ShardFault::NewerCheckpoint { job: run.job.clone(), known_through, newest })
        }
        _ => Ok(()),
    }
}

/// Whether this shard's part is on disk here, whole or not.
pub(super) fn is_kept(shared: &Shared, kept: &KeptCheckpoint) -> bool {
    path_of(shared, &kept.run, kept.number).exists()
}

/// This shard's part of checkpoint `number`, and its bytes.
pub(super) fn open(shared: &Shared, run: &RunId, number: u64) -> Result<(File, u64), ShardFault> {
    let path = path_of(shared, run, number);
    let open = || {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    open().map_err(|e| unreadable(run, number, &path.display().to_string(), &e))
}

/// A file that will become the copy of one that is being fetched; `None` if it was removed meanwhile.
pub(super) fn begin_copy(shared: &Shared, wish: &Wish<'_>) -> Result<Option<PendingFile>, ShardFault> {
    let dir = folder_of(shared, &wish.kept.run);
    let _alone = lock(&shared.checkpoint_files);
    if !wish.is_wanted() {
        return Ok(None);
    }
    make_durably(&dir).map_err(|e| disk_fault("make", &dir, &e))?;
    shared.blobs.begin_in(&dir).map(Some)
}

/// Removes the folder in which the copy of one was begun and not kept, unless others are in it.
pub(super) fn remove_folder_if_empty(shared: &Shared, kept: &KeptCheckpoint) {
    let _alone = lock(&shared.checkpoint_files);
    let _ = fs::remove_dir(folder_of(shared, &kept.run));
}

/// Keeps what another process wrote then, unless it was removed meanwhile; `digest` is what its file ends
/// with.
pub(super) fn keep_copy(
    shared: &Shared,
    wish: &Wish<'_>,
    mut file: PendingFile,
    digest: &ContentDigest,
    written_at: SystemTime,
) -> Result<bool, ShardFault> {
    let KeptCheckpoint { run, number } = wish.kept;
    if file.digest().0 != *digest {
        let cause = "it came damaged".to_owned();
        return Err(ShardFault::NoCheckpoint { job: run.job.clone(), number: *number, cause });
    }
    file.write(digest.as_bytes())?;
    // Whoever holds the lock keeps others from writing what is due now.
    file.sync_as_of(written_at)?;
    let _alone = lock(&shared.checkpoint_files);
    let is_wanted = wish.is_wanted();
    if is_wanted {
        let (path, (digest, _)) = (path_of(shared, run, *number), file.digest());
        file.finish(&path)?;
        checkpoint_digest::keep(&path, &digest);
    }
    Ok(is_wanted)
}

/// Keeps this shard's part of checkpoint `number` as a blob as well; gives its digest. Whoever fetches it
/// finds out whether it is whole.
pub(super) fn share(shared: &Shared, run: &RunId, number: u64) -> Result<ContentDigest, ShardFault> {
    let path = path_of(shared, run, number);
    let digest = or_from_standby(shared, run, number, || {
        checkpoint_digest::of(&path).map_err(|e| unreadable(run, number, &path.display().to_string(), &e))
    })?;
    shared.blobs.link(&digest, &path).map_err(|e| disk_fault("link", &path, &e))?;
    // It may be as old as the job, and is not to be collected before somebody has fetched it.
    shared.blobs.stat_and_touch(&digest)?;
    Ok(digest)
}

/// Removes what is given up. Where nothing stays the folder goes, with whatever else is in it.
pub(super) fn retain(shared: &Shared, run: &RunId, retention: &Retention) -> Result<(), ShardFault> {
    let dir = folder_of(shared, run);
    let alone = lock(&shared.checkpoint_files);
    if matches!(retention, Retention::Last { keep } if keep.is_empty()) {
        return remove_all(shared, run, &alone);
    }
    let is_given_up = |number: u64| retention.gives_up(number);
    shared.fetching.give_up(|fetched| fetched.run.is_of_same_job(run) && is_given_up(fetched.number));
    // One that another shard could not keep is not written here, either: its copy would lie in memory until
    // the next one.
    let of_job = [shared.jobs.find_open(run), shared.followed.find(run)];
    of_job.iter().flatten().for_each(|shard| shard.give_checkpoints_up(retention));
    let entries = match fs::read_dir(&dir) {
        // None was ever written.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| disk_fault("read", &dir, &e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| disk_fault("read", &dir, &e))?.path();
        let number = number_of_file(&path);
        if number.is_some_and(is_given_up) {
            let _ = fs::remove_file(checkpoint_digest::path_of(&path));
            fs::remove_file(&path).map_err(|e| disk_fault("remove", &path, &e))?;
        }
    }
    Ok(())
}

/// Removes all checkpoints of a job that is over. None is written any more, whether the job was served here
/// or followed.
pub(super) fn remove_all(
    shared: &Shared,
    run: &RunId,
    _alone: &MutexGuard<'_, ()>,
) -> Result<(), ShardFault> {
    let of_job = [shared.jobs.find_open(run), shared.followed.find(run)];
    of_job.iter().flatten().for_each(|shard| shard.end_checkpoints());
    standby_files::end(shared, run);
    shared.fetching.give_up(|fetched| fetched.run.is_of_same_job(run));
    let dir = folder_of(shared, run);
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(disk_fault("remove", &dir, &e)),
        _ => Ok(()),
    }
}

/// Removes what a crash left unfinished in the folders of jobs, of checkpoints and of snapshots. Whatever
/// else somebody put there is left alone.
pub(super) fn remove_unfinished(state_dir: &Path) -> io::Result<()> {
    let kinds = [JobFolders::Checkpoints, JobFolders::Snapshots];
    kinds.into_iter().try_for_each(|what| remove_unfinished_in(&state_dir.join(what.dir_name())))
}

fn remove_unfinished_in(dir: &Path) -> io::Result<()> {
    let Ok(jobs) = fs::read_dir(dir) else { return Ok(()) };
    for job in jobs {
        let job = job?.path();
        let files = match fs::read_dir(&job) {
            Ok(files) => files,
            Err(error) => {
                warn!(path = %job.display(), %error, "no folder of a job");
                continue;
            }
        };
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::ShardIndex;

    use super::{super::blob_check, *};

    #[test]
    fn a_checkpoint_that_cannot_be_read_now_is_none_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(7) };
        let path = |number: u64| path_of(&shared, &run, number);
        fs::create_dir_all(path(3)).unwrap();
        fs::write(path(2), "damaged").unwrap();
        let order = OpenJob {
            run: run.clone(),
            shard: ShardIndex(0),
            shards: vec![String::new()],
            layout: Default::default(),
            optimizer: syncline_scheduler::spec::Optimizer::sgd(),
            clip_norm: None,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let range = ElementRange { start: 0, end: 0 };
        // Where a folder stands in place of the file, reading fails as on a disk that does not answer.
        for (number, code) in [(1, "E439"), (2, "E439"), (3, "E406")] {
            let loaded = load(&shared, &order, range, EngineEpoch(1), number);
            assert_eq!(loaded.err().map(|fault| fault.code()), Some(code), "{number}");
            assert_eq!(share(&shared, &run, number).unwrap_err().code(), code, "{number}");
        }
    }

    /// A part of 15 GB is read for minutes, and nobody waits so long.
    #[test]
    fn a_part_that_is_shared_is_read_only_where_its_digest_is_not_beside_it_or_a_reader_found_it_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(7) };
        let path = path_of(&shared, &run, 3);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = shared.blobs.begin_in(path.parent().unwrap()).unwrap();
        let (digest, _) = write_checked(file, &path, |out| io::Write::write_all(out, b"weights")).unwrap();
        let share = || share(&shared, &run, 3);
        assert_eq!(share(), Ok(digest), "it was read");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, vec![0; whole.len()]).unwrap();
        assert_eq!(share(), Ok(digest), "it was not read");
        assert_eq!(blob_check::check(&shared, &digest), Ok(None), "who fetches it has it read");
        assert_eq!(share().unwrap_err().code(), "E439");
        fs::write(&path, whole).unwrap();
        assert_eq!(share(), Ok(digest));
        retain(&shared, &run, &Retention::Thin { keep: Vec::new(), through: 3 }).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        assert_eq!(share().unwrap_err().code(), "E439", "it is gone");
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_somebody_put_there_stays() {
        for (kind, name) in [("checkpoints", "0.checkpoint"), ("snapshots", "final.safetensors")] {
            let dir = tempfile::tempdir().unwrap();
            let job = dir.path().join(kind).join("digits-00000001");
            fs::create_dir_all(&job).unwrap();
            let left = job.join(format!("0.{UNFINISHED}"));
            let (whole, stray) = (job.join(name), dir.path().join(kind).join("README"));
            [&left, &whole, &stray].into_iter().for_each(|path| fs::write(path, "x").unwrap());
            remove_unfinished(dir.path()).unwrap();
            assert_eq!([left, whole, stray].map(|path| path.exists()), [false, true, true]);
        }
    }
}
