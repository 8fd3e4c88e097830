//! Jobs on disk between a stop of this shard and its next start.
//!
//! A file is whole or not there: it is written beside its place, brought to disk, and renamed; BLAKE3 of what comes
//! before it ends it. All of them are taken out before the shard serves anybody, so that none is ever read twice: a job
//! that has gone on since would go back. A job of another shard, or of another number of shards, is nobody's here: its
//! file stays as it is until the shard comes that it belongs to.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use syncline_engine::folder;
use syncline_scheduler::{ids::JobId, spec::ElementRange};
use tracing::error;

use super::blobs::{Incoming, UNFINISHED};
use crate::{
    PsError,
    shard::{JobShard, ShardPlace},
};

/// Ending of a saved job.
const SAVED: &str = "job";
/// Ending of one that cannot be read.
const DAMAGED: &str = "damaged";
const DIGEST_BYTES: u64 = blake3::OUT_LEN as u64;

/// The directory of saved jobs.
pub(super) struct Saves {
    dir: PathBuf,
}

/// A job that could not be read, and its file under its new name.
pub(super) struct Damaged {
    pub path: PathBuf,
    pub cause: io::Error,
}

/// A job that could not be written down, and why.
pub(super) struct Unkept {
    job: JobId,
    path: PathBuf,
    cause: String,
}

impl Unkept {
    /// It is still tried.
    pub(super) fn for_now(&self) -> PsError {
        let Self { job, path, cause } = self;
        PsError::NotSavedYet { job: job.clone(), path: path.display().to_string(), cause: cause.clone() }
    }

    /// It is given up.
    pub(super) fn for_ever(&self) -> PsError {
        let Self { job, path, cause } = self;
        PsError::NotSaved { job: job.clone(), path: path.display().to_string(), cause: cause.clone() }
    }
}

/// Jobs that were read and are still on disk.
#[derive(Default)]
pub(super) struct Found {
    pub jobs: Vec<JobShard>,
    pub damaged: Vec<Damaged>,
    /// A job that belongs to another shard.
    pub elsewhere: Option<PsError>,
    files: Vec<PathBuf>,
}

impl Saves {
    pub(super) fn open(dir: PathBuf) -> Result<Self, PsError> {
        folder::make_or_close(&dir).map_err(|source| fault("make", &dir, source))?;
        Ok(Self { dir })
    }

    /// Reads every saved job of the shard `here`. One that is damaged is set aside.
    pub(super) fn read(&self, here: ShardPlace) -> Result<Found, PsError> {
        let mut found = Found::default();
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
                            found.jobs.push(job);
                            found.files.push(path);
                        } else {
                            let path = path.display().to_string();
                            found.elsewhere = Some(PsError::SavedElsewhere { here, path, saved });
                        }
                    }
                    Err(cause) if is_damage(&cause) => {
                        let aside = path.with_extension(DAMAGED);
                        fs::rename(&path, &aside).map_err(|source| fault("set aside", &path, source))?;
                        found.damaged.push(Damaged { path: aside, cause });
                    }
                    // It may be whole: whoever starts us again once the system is well finds it.
                    Err(source) => return Err(fault("read", &path, source)),
                },
                _ => {}
            }
        }
        Ok(found)
    }

    /// Takes what was read off the disk.
    pub(super) fn take(&self, found: &mut Found) -> Result<(), PsError> {
        for path in found.files.drain(..) {
            fs::remove_file(&path).map_err(|source| fault("remove", &path, source))?;
        }
        // A name is gone only when the directory is on disk without it.
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|source| fault("write", &self.dir, source))
    }

    /// Keeps these jobs and returns their names, as [`Handle::stop_and_save`](super::Handle::stop_and_save) says.
    pub(super) fn keep_all(
        &self,
        mut jobs: Vec<Arc<JobShard>>,
        mut again: impl FnMut(&PsError) -> bool,
    ) -> Result<Vec<JobId>, PsError> {
        let names = jobs.iter().map(|job| job.job().clone()).collect();
        loop {
            // All of them each time: where one finds no room, another may.
            let mut left = Vec::new();
            jobs.retain(|job| self.keep(job).map_err(|unkept| left.push(unkept)).is_err());
            let Some(first) = left.first() else { return Ok(names) };
            if !again(&first.for_now()) {
                for unkept in &left {
                    let error = unkept.for_ever();
                    error!(job = %unkept.job, %error, hint = error.hint(), "job lost");
                }
                return Err(first.for_ever());
            }
        }
    }

    /// Keeps a job. Nobody may push to it meanwhile.
    pub(super) fn keep(&self, job: &JobShard) -> Result<(), Unkept> {
        let path = self.dir.join(format!("{}.{SAVED}", job.job()));
        let write = || {
            let mut file = Incoming::create(self.dir.join(format!("{}.{UNFINISHED}", job.job())))?;
            job.save(&mut Whole(&mut file)).map_err(|e| super::blobs::disk_fault("write", &path, &e))?;
            let (digest, _) = file.digest();
            file.write(&digest)?;
            file.finish(&path)
        };
        write().map_err(|fault| Unkept {
            job: job.job().clone(),
            path: path.clone(),
            cause: fault.to_string(),
        })
    }
}

/// An unfinished file as a writer.
struct Whole<'a>(&'a mut Incoming);

impl Write for Whole<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn load(path: &Path) -> io::Result<JobShard> {
    let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = File::open(path)?;
    let bytes = file.metadata()?.len().saturating_sub(DIGEST_BYTES);
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut hashed = Hashed { from: (&mut file).take(bytes), hasher: blake3::Hasher::new() };
    let job = JobShard::restore(&mut hashed)?;
    let (left, hash) = (hashed.from.limit(), hashed.hasher.finalize());
    let mut digest = [0; blake3::OUT_LEN];
    file.read_exact(&mut digest)?;
    if left > 0 || hash != blake3::Hash::from_bytes(digest) {
        return Err(damaged("its digest is another".into()));
    }
    let elements = job.layout().elements().unwrap_or(0);
    let ShardPlace { index, count } = job.position();
    if index >= count || job.range() != ElementRange::of_shard(elements, index, count) {
        return Err(damaged(format!("its parameters are not those of shard {index} of {count}")));
    }
    Ok(job)
}

/// Reads and hashes what was read.
struct Hashed<R> {
    from: io::Take<R>,
    hasher: blake3::Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}

fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn fault(verb: &str, path: &Path, source: io::Error) -> PsError {
    PsError::Io { what: format!("cannot {verb} {}", path.display()), source }
}
