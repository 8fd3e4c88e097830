//! Jobs on disk between a stop of this shard and its next start.
//!
//! A file is complete or absent, and says itself whether it is whole. All files are deleted before the shard
//! serves anybody, so that none is ever read twice: a job that has gone on since would go back. One that was
//! set aside stays, and is not even read, until an engine asks for the job. A file of another shard, or of
//! another number of shards, is left as it is.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use syncline_rpc::{ShardFault, ShardPosition, folder};
use syncline_scheduler::{
    ids::{EngineEpoch, JobId, RunId},
    spec::ElementRange,
};
use tracing::{error, info, warn};

use super::{
    blobs::{PendingFile, UNFINISHED, disk_fault},
    checked_file::{is_damage, read_checked, write_checked},
    checkpoints::folder_name,
};
use crate::{
    PsError,
    shard::{AsideJob, JobShard},
};

/// Ending of a saved job.
const SAVED: &str = "job";
/// Ending of one that cannot be read.
const DAMAGED: &str = "damaged";
/// Ending of one that no engine knew.
const ASIDE: &str = "forgotten";
/// How long such a one is kept: as long as Redis keeps a job that is over.
pub(super) const ASIDE_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// The directory of saved jobs.
pub(super) struct Saves {
    dir: PathBuf,
    /// How many files were begun: a job that is set aside may be saved by a stop meanwhile, and each needs a
    /// file of its own.
    begun: AtomicU64,
}

/// A job that could not be read, and its file under its new name.
pub(super) struct Damaged {
    pub path: PathBuf,
    pub cause: io::Error,
}

impl Damaged {
    pub(super) fn log(&self) {
        let (path, cause) = (self.path.display().to_string(), self.cause.to_string());
        let error = PsError::SaveDamaged { path, cause };
        error!(%error, hint = error.hint(), "job lost");
    }
}

/// Why a job could not be saved.
pub(super) struct SaveError {
    job: JobId,
    path: PathBuf,
    cause: String,
}

impl SaveError {
    /// As an error of a save that is tried again.
    pub(super) fn retried(&self) -> PsError {
        let Self { job, path, cause } = self;
        PsError::NotSavedYet { job: job.clone(), path: path.display().to_string(), cause: cause.clone() }
    }

    /// As an error of a save that is given up.
    pub(super) fn given_up(&self) -> PsError {
        let Self { job, path, cause } = self;
        PsError::NotSaved { job: job.clone(), path: path.display().to_string(), cause: cause.clone() }
    }
}

/// Jobs that were read and are still on disk.
#[derive(Default)]
pub(super) struct Loaded {
    /// Each with its file, if it had been set aside as well: that stays until an engine asks for it.
    pub jobs: Vec<(JobShard, Option<PathBuf>)>,
    /// Jobs that were set aside, which are not read yet, each with its file.
    pub aside: Vec<(AsideJob, PathBuf)>,
    pub damaged: Vec<Damaged>,
    /// A job that belongs to another shard.
    pub other_shard: Option<PsError>,
    pub files: Vec<PathBuf>,
}

impl Saves {
    pub(super) fn open(dir: PathBuf) -> Result<Self, PsError> {
        folder::make_or_close(&dir).map_err(|source| fault("make", &dir, source))?;
        Ok(Self { dir, begun: AtomicU64::new(0) })
    }

    /// Reads every saved job of the shard `here`. One that is damaged is set aside.
    pub(super) fn load_all(&self, here: ShardPosition) -> Result<Loaded, PsError> {
        let (mut loaded, mut aside) = (Loaded::default(), Vec::new());
        let entries = fs::read_dir(&self.dir).map_err(|source| fault("read", &self.dir, source))?;
        for entry in entries {
            let path = entry.map_err(|source| fault("read", &self.dir, source))?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some(UNFINISHED) => {
                    fs::remove_file(&path).map_err(|source| fault("remove", &path, source))?
                }
                Some(SAVED) => match load(&path) {
                    Ok(job) => {
                        let saved = job.position();
                        if saved == here {
                            loaded.jobs.push((job, None));
                            loaded.files.push(path);
                        } else {
                            let path = path.display().to_string();
                            loaded.other_shard = Some(PsError::SavedByOtherShard { here, path, saved });
                        }
                    }
                    Err(cause) if is_damage(&cause) => {
                        let aside = path.with_extension(DAMAGED);
                        fs::rename(&path, &aside).map_err(|source| fault("set aside", &path, source))?;
                        loaded.damaged.push(Damaged { path: aside, cause });
                    }
                    // The file may be whole: the next start, once the disk can be read again, finds it.
                    Err(source) => return Err(fault("read", &path, source)),
                },
                Some(ASIDE) => aside.push(path),
                _ => {}
            }
        }
        for path in aside {
            // Nobody waits for it, as for the others: the next start tries again.
            if let Err(error) = self.load_aside(path, here, &mut loaded) {
                warn!(%error, "cannot read a job that was set aside");
            }
        }
        Ok(loaded)
    }

    /// Looks which job was set aside, if no later generation of it was saved since. One that is too old is
    /// removed.
    fn load_aside(&self, path: PathBuf, here: ShardPosition, loaded: &mut Loaded) -> Result<(), PsError> {
        let written = fs::metadata(&path).and_then(|about| about.modified());
        let written = written.map_err(|source| fault("read", &path, source))?;
        if written.elapsed().is_ok_and(|age| age > ASIDE_KEPT) {
            warn!(path = %path.display(), "removed a job that no engine has known for 7 days");
            return self.delete(&[path]);
        }
        match File::open(&path).and_then(|file| JobShard::identify(&mut BufReader::new(file))) {
            Ok((run, epoch, position)) if position == here => {
                match loaded.jobs.iter_mut().find(|(saved, _)| saved.run().is_of_same_job(&run)) {
                    None => loaded.aside.push((aside_job(run, epoch, &path, written), path)),
                    // The shard was stopped before it was closed: it goes with the one that was saved.
                    Some((saved, aside)) if *saved.run() == run => *aside = Some(path),
                    Some(_) => {}
                }
            }
            // Nobody waits for it.
            Ok(_) => {}
            Err(cause) if is_damage(&cause) => loaded.damaged.push(Damaged { path, cause }),
            // No engine may ever ask for it: it keeps no shard from its other jobs.
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot read a job that no engine knew: tried again at the next start");
            }
        }
        Ok(())
    }

    /// Saves a job that no engine knows, for one that does; where it lies then. A later job of the same name
    /// lies beside it.
    pub(super) fn set_aside(&self, job: &JobShard) -> Result<PathBuf, ShardFault> {
        let path = self.dir.join(format!("{}.{ASIDE}", folder_name(job.run())));
        self.write(job, &path)?;
        Ok(path)
    }

    /// Deletes the files of jobs that were loaded.
    pub(super) fn delete(&self, files: &[PathBuf]) -> Result<(), PsError> {
        for path in files {
            fs::remove_file(path).map_err(|source| fault("remove", path, source))?;
        }
        // A name is gone only when the directory is on disk without it.
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|source| fault("write", &self.dir, source))
    }

    /// Saves those of these jobs again whose files are gone, after [`Saves::delete`] came no further.
    pub(super) fn save_deleted(&self, jobs: &[Arc<JobShard>]) {
        for job in jobs.iter().filter(|job| !self.path(job).exists()) {
            if let Err(error) = self.save(job) {
                let error = error.given_up();
                error!(job = %job.job(), %error, hint = error.hint(), "job lost");
            }
        }
    }

    /// Where a job is saved.
    fn path(&self, job: &JobShard) -> PathBuf {
        self.dir.join(format!("{}.{SAVED}", job.job()))
    }

    /// Saves these jobs and returns their names, as [`Handle::stop_and_save`](super::Handle::stop_and_save)
    /// says.
    pub(super) fn save_all(
        &self,
        mut jobs: Vec<Arc<JobShard>>,
        mut retry: impl FnMut(&PsError) -> bool,
    ) -> Result<Vec<JobId>, PsError> {
        let names = jobs.iter().map(|job| job.job().clone()).collect();
        loop {
            // All of them each time: where one finds no room, another may.
            let mut left = Vec::new();
            jobs.retain(|job| self.save(job).map_err(|error| left.push(error)).is_err());
            let Some(first) = left.first() else { return Ok(names) };
            if !retry(&first.retried()) {
                for save in &left {
                    let error = save.given_up();
                    error!(job = %save.job, %error, hint = error.hint(), "job lost");
                }
                return Err(first.given_up());
            }
        }
    }

    fn begin(&self, job: &JobShard) -> Result<PendingFile, ShardFault> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        PendingFile::create(self.dir.join(format!("{}-{number}.{UNFINISHED}", job.job())))
    }

    fn write(&self, job: &JobShard, path: &Path) -> Result<(), ShardFault> {
        write_checked(self.begin(job)?, path, |out| job.save(out)).map(|_| ())
    }

    /// Saves a job. Nobody may push to it meanwhile.
    pub(super) fn save(&self, job: &JobShard) -> Result<(), SaveError> {
        let path = self.path(job);
        self.write(job, &path).map_err(|fault| SaveError {
            job: job.job().clone(),
            path: path.clone(),
            cause: fault.to_string(),
        })
    }
}

fn load(path: &Path) -> io::Result<JobShard> {
    let job = read_checked(path, JobShard::restore)?;
    let elements = job.layout().elements().unwrap_or(0);
    let ShardPosition { index, count } = job.position();
    if index >= count || job.range() != ElementRange::of_shard(elements, index, count) {
        let what = format!("its parameters are not those of shard {index} of {count}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(job)
}

/// A job that was set aside under `path`.
pub(super) fn aside_job(run: RunId, epoch: EngineEpoch, path: &Path, written_at: SystemTime) -> AsideJob {
    let path = path.to_owned();
    AsideJob { run, epoch, written_at, read: Arc::new(move || read_aside(&path)) }
}

/// Reads a job that was set aside; `None` if it is damaged, or somebody has removed it, so that an engine
/// learns that it is not here.
fn read_aside(path: &Path) -> Result<Option<JobShard>, ShardFault> {
    match load(path) {
        Ok(job) => {
            info!(job = %job.job(), version = job.version(), "was set aside, and is asked for");
            Ok(Some(job))
        }
        Err(cause) if is_damage(&cause) => {
            Damaged { path: path.to_owned(), cause }.log();
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            warn!(path = %path.display(), "a job that was set aside is asked for, and its file is gone");
            Ok(None)
        }
        Err(error) => Err(disk_fault("read", path, &error)),
    }
}

fn fault(verb: &str, path: &Path, source: io::Error) -> PsError {
    PsError::Io { what: format!("cannot {verb} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::{super::pull::tests::shard, *};

    #[test]
    fn a_job_that_is_written_twice_at_a_time_is_whole_both_times() {
        let dir = tempfile::tempdir().unwrap();
        let saves = Saves::open(dir.path().to_owned()).ok().unwrap();
        let (first, second) = (shard(&[1.0; 3]), shard(&[2.0; 3]));
        let aside = saves.begin(&first).unwrap();
        assert!(saves.save(&second).is_ok());
        let path = dir.path().join("digits.forgotten");
        write_checked(aside, &path, |out| first.save(out)).unwrap();
        let values = |path: &Path| load(path).unwrap().copy_values().unwrap();
        assert_eq!((values(&path), values(&saves.path(&second))), (vec![1.0; 3], vec![2.0; 3]));
    }
}
