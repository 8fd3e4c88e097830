//! The state directory of a running cluster: one `up` at a time, ports and secret that stay the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub(super) use crate::cli::cluster::Running;
use crate::{
    cli::{CliError, places},
    folder,
};

/// What stays the same from one start to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    /// Name under which the engine takes the lead. Random: two clusters may share a Redis server.
    pub instance: String,
    pub engine: Option<SocketAddr>,
    pub redis_port: Option<u16>,
    /// Addresses of the shards by name.
    pub shards: BTreeMap<String, SocketAddr>,
}

/// So many if nobody says how many.
const DEFAULT_SHARDS: u32 = 2;

/// A state directory that is ours until we end.
pub(super) struct House {
    dir: PathBuf,
    /// The kernel lets it go when we end, in whatever way.
    _lock: File,
}

fn place(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::Place { path, source }
}

impl House {
    /// Makes the directory if need be and locks it.
    pub(super) fn open(dir: &Path) -> Result<Self, CliError> {
        folder::make(dir).and_then(|()| close_rooms(dir)).map_err(place(dir))?;
        let dir = dir.canonicalize().map_err(place(dir))?;
        let path = dir.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut lock = open.map_err(place(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = io::read_to_string(&lock).unwrap_or_default().trim().to_owned();
                return Err(CliError::Running { dir, pid });
            }
            Err(TryLockError::Error(e)) => return Err(place(&path)(e)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(place(&path))?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn token_file(&self) -> PathBuf {
        places::token_file(&self.dir)
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    /// What an earlier start left behind.
    pub(super) fn kept(&self) -> Kept {
        let read = || serde_json::from_slice(&fs::read(self.dir.join("kept.json")).ok()?).ok();
        let mut kept: Kept = read().unwrap_or_default();
        if kept.instance.is_empty() {
            kept.instance = format!("up-{:016x}", rand::random::<u64>());
        }
        kept
    }

    pub(super) fn keep(&self, kept: &Kept) -> Result<(), CliError> {
        self.write(&self.dir.join("kept.json"), kept)
    }

    /// How many shards there are: as told, as before, or the default. What shards have saved is of use only to as many.
    pub(super) fn shards(&self, told: Option<u32>) -> Result<u32, CliError> {
        let before = u32::try_from(self.kept().shards.len()).unwrap_or(u32::MAX);
        let told = match (told, before) {
            (None, 0) => return Ok(DEFAULT_SHARDS),
            (None, before) => return Ok(before),
            (Some(told), _) => told,
        };
        let saved = self.saved_jobs(before);
        match told == before || saved.is_empty() {
            true => Ok(told),
            false => Err(CliError::SavedJobs { dir: self.dir.clone(), jobs: saved.join(", "), before, told }),
        }
    }

    /// Jobs that the shards wrote down at the last stop.
    fn saved_jobs(&self, shards: u32) -> Vec<String> {
        let dirs = (0..shards).map(|index| self.shard(index).join("jobs"));
        let files = dirs.filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten().map(|file| file.path());
        let saved = files.filter(|path| path.extension().is_some_and(|e| e == "job"));
        let names = saved.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The state directory of a shard.
    pub(super) fn shard(&self, index: u32) -> PathBuf {
        self.dir.join(format!("shard-{index}"))
    }

    /// Tells other commands where the cluster is.
    pub(super) fn publish(&self, running: &Running) -> Result<(), CliError> {
        self.write(&Running::path(&self.dir), running)
    }

    /// Takes that back.
    pub(super) fn clear(&self) {
        let _ = fs::remove_file(Running::path(&self.dir));
    }

    /// All of the file or the old one, never half of it.
    fn write(&self, path: &Path, value: &impl Serialize) -> Result<(), CliError> {
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(value)?)?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(place(path))
    }
}

/// Makes the folder of the logs, and closes to others what an earlier release left open.
fn close_rooms(dir: &Path) -> io::Result<()> {
    folder::make_or_close(&dir.join("logs"))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("shard-") && entry.file_type()?.is_dir() {
            folder::make_or_close(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_shards_stays_and_changes_only_while_none_has_saved_a_job() {
        let dir = tempfile::tempdir().unwrap();
        let house = House::open(dir.path()).unwrap();
        assert_eq!(house.shards(None).unwrap(), DEFAULT_SHARDS);
        let mut kept = house.kept();
        kept.shards = (0..4).map(|i| (format!("ps-{i}"), ([127, 0, 0, 1], 1).into())).collect();
        house.keep(&kept).unwrap();
        let counts = || [None, Some(4), Some(3)].map(|told| house.shards(told).map_err(|e| e.to_string()));
        assert_eq!(counts(), [Ok(4), Ok(4), Ok(3)]);
        let jobs = house.shard(3).join("jobs");
        fs::create_dir_all(&jobs).unwrap();
        for file in ["digits.job", "old.damaged"] {
            fs::write(jobs.join(file), "").unwrap();
        }
        let [asked, same, other] = counts();
        assert_eq!((asked, same), (Ok(4), Ok(4)));
        assert!(other.unwrap_err().contains("of 4 shards (digits), and --shards says 3"));
    }

    #[test]
    fn one_at_a_time_and_ports_stay() {
        let dir = tempfile::tempdir().unwrap();
        let house = House::open(dir.path()).unwrap();
        let mut kept = house.kept();
        kept.redis_port = Some(7);
        house.keep(&kept).unwrap();
        assert_eq!(house.kept(), kept);
        match House::open(dir.path()).map(|_| ()) {
            Err(CliError::Running { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(house);
        assert_eq!(House::open(dir.path()).unwrap().kept(), kept);
    }
}
