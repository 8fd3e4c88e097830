//! The state directory of a running cluster: locked by one `up` at a time, with saved ports and the token.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use syncline_rpc::folder;
use syncline_workers::client::{RunningCluster, token_file};

use super::{
    process::{Process, SHARD, ShardProcess},
    saved_redis::SavedRedis,
};
use crate::cli::CliError;

/// Saved from one start to the next: the name of the engine and the addresses of all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedAddresses {
    /// Name under which the engine takes the lead. Random: two clusters may share a Redis server.
    pub instance: String,
    pub engine: Option<SocketAddr>,
    /// The token file that was named, as an absolute path; `None` for the one in the state directory.
    pub token_file: Option<PathBuf>,
    pub second_engine: Option<SocketAddr>,
    pub redis_port: Option<u16>,
    /// Where the jobs are whose parameters the shards save; `None` if an earlier release wrote this.
    pub redis: Option<SavedRedis>,
    /// Addresses of the shards by name. One that was slow at its last start may be missing.
    pub shards: BTreeMap<String, SocketAddr>,
    /// How many shards there are, of how many processes; `None` if an earlier release wrote this.
    pub layout: Option<ShardLayout>,
}

impl SavedAddresses {
    /// Name under which the second engine takes the lead.
    pub(crate) fn second_instance(&self) -> String {
        format!("{}-b", self.instance)
    }
}

/// How many shards a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardLayout {
    pub shards: u32,
    /// Processes of each.
    pub replicas: u32,
}

/// Beginning of the name of an engine that `up` starts.
pub(super) const INSTANCE: &str = "up-";
/// Beginning of the name of a shard process's folder.
const SHARD_DIR: &str = "shard-";
/// Where a Redis of our own has stored something, in its folder: from version 7 on in a folder, before that
/// in a file.
const REDIS_DATA: &str = "appendonlydir";
const REDIS_FILES: [&str; 2] = ["appendonly.aof", "dump.rdb"];
/// Names of the jobs that a process saved at its last stop.
fn job_files(dir: &Path) -> impl Iterator<Item = String> + use<> {
    let files = entries(&dir.join("jobs")).filter(|path| path.extension().is_some_and(|e| e == "job"));
    files.filter_map(|path| stem(&path))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_string_lossy().into_owned())
}

/// The job whose checkpoints lie in a folder: it has the name of the job, and a number drawn at its
/// submission behind it.
fn job_of_checkpoints(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    Some(name.rsplit_once('-').map_or(name, |(job, _)| job).to_owned())
}

/// Number of shards if none was given.
const DEFAULT_SHARDS: u32 = 2;

/// The state directory, locked by this process.
pub(crate) struct StateDir {
    dir: PathBuf,
    /// The kernel releases it when this process ends, in whatever way.
    lock: File,
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // A child that is just being started has the file as well, until it is the other program.
        let _ = self.lock.unlock();
    }
}

fn path_error(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::Path { path, source }
}

impl StateDir {
    /// Makes the directory if need be and locks it.
    pub(crate) fn open(dir: &Path) -> Result<Self, CliError> {
        folder::make_ours(dir).and_then(|()| restrict_permissions(dir)).map_err(path_error(dir))?;
        let dir = dir.canonicalize().map_err(path_error(dir))?;
        let path = dir.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut lock = open.map_err(path_error(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = io::read_to_string(&lock).unwrap_or_default().trim().to_owned();
                return Err(CliError::Running { dir, pid });
            }
            Err(TryLockError::Error(e)) => return Err(path_error(&path)(e)),
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(path_error(&path))?;
        Ok(Self { dir, lock })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        token_file(&self.dir)
    }

    pub(crate) fn log_file(&self, process: Process) -> PathBuf {
        self.dir.join("logs").join(format!("{process}.log"))
    }

    /// What an earlier start saved; a new instance name if there is none.
    ///
    /// # Errors
    /// The file is there and cannot be read: without it this start would leave out processes that hold jobs.
    pub(crate) fn saved_addresses(&self) -> Result<SavedAddresses, CliError> {
        let path = self.saved_addresses_file();
        let mut saved = match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|source| CliError::DamagedAddresses { path, source })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => SavedAddresses::default(),
            Err(error) => return Err(path_error(&path)(error)),
        };
        if saved.instance.is_empty() {
            saved.instance = format!("{INSTANCE}{:016x}", rand::random::<u64>());
        }
        Ok(saved)
    }

    pub(crate) fn save_addresses(&self, saved: &SavedAddresses) -> Result<(), CliError> {
        self.write(&self.saved_addresses_file(), saved)
    }

    fn saved_addresses_file(&self) -> PathBuf {
        self.dir.join("kept.json")
    }

    /// Number of shards: the given one, the saved one, or the default. Refuses another number than before
    /// while shards have saved jobs, which only as many shards can restore, and fewer while one that is
    /// left out has blobs, which it has alone.
    pub(crate) fn shard_count(&self, told: Option<u32>) -> Result<u32, CliError> {
        let before = self.saved_processes(false)?;
        let told = match (told, before) {
            (None, 0) => return Ok(DEFAULT_SHARDS),
            (None, before) => return Ok(before),
            (Some(told), _) => told,
        };
        let saved = self.saved_jobs(ShardProcess::all(before, 2));
        if told != before && !saved.is_empty() {
            return Err(CliError::SavedJobs { dir: self.dir.clone(), jobs: saved.join(", "), before, told });
        }
        // What a standby of before has left nobody needs, and no `gc` reaches.
        let replicas = if self.saved_processes(true)? > 0 { 2 } else { 1 };
        let left_out = ShardProcess::all(before, replicas).filter(|shard| shard.index >= told);
        let mut blobs = left_out.map(|shard| self.shard_dir(shard).join("blobs"));
        match blobs.find(|blobs| entries(blobs).next().is_some()) {
            Some(blobs) => Err(CliError::LeftOutBlobs { blobs, before, told }),
            None => Ok(told),
        }
    }

    /// Number of processes of each shard: the given one, the saved one, or one. Refuses to leave out
    /// processes that have saved jobs.
    pub(crate) fn replica_count(&self, told: Option<u32>, shards: u32) -> Result<u32, CliError> {
        let before = if self.saved_processes(true)? > 0 { 2 } else { 1 };
        let told = told.unwrap_or(before);
        let second = ShardProcess::all(shards, 2).filter(|shard| shard.second);
        let saved: BTreeSet<String> = second.flat_map(|shard| job_files(&self.shard_dir(shard))).collect();
        if told < before && !saved.is_empty() {
            let jobs = saved.into_iter().collect::<Vec<_>>().join(", ");
            let what = format!(
                "the standbys of shards in {} hold jobs ({jobs}), and --replicas says {told}",
                self.dir.display()
            );
            return Err(CliError::Setting { what });
        }
        Ok(told)
    }

    /// Refuses another Redis server than before, and its own without what that has stored, while shards have
    /// saved jobs: an engine that does not know them lets the shards drop them. Where nothing says which
    /// it was, as when the addresses were moved away, the own one may have been it.
    pub(crate) fn check_redis(&self, told: &SavedRedis) -> Result<(), CliError> {
        let other = self.saved_addresses()?.redis.filter(|before| before != told);
        let own = self.dir.join("redis");
        let stores = |file: &&str| own.join(file).exists();
        let has_data = entries(&own.join(REDIS_DATA)).next().is_some() || REDIS_FILES.iter().any(stores);
        let is_gone = *told == SavedRedis::Own && !has_data;
        if other.is_none() && !is_gone {
            return Ok(());
        }
        let jobs = self.saved_jobs(ShardProcess::all(self.saved_processes(false)?, 2));
        if jobs.is_empty() {
            return Ok(());
        }
        let jobs = jobs.join(", ");
        Err(match other {
            None => CliError::RedisGone { dir: own, jobs },
            Some(before) => {
                let (before, told) = (before.to_string(), told.to_string());
                CliError::OtherRedis { dir: self.dir.clone(), jobs, before, told }
            }
        })
    }

    /// How many first, or second, processes of shards there were. Where an earlier release wrote no number:
    /// up to the last one with an address, and where no address was saved up to the last that has saved
    /// something.
    fn saved_processes(&self, second: bool) -> Result<u32, CliError> {
        let SavedAddresses { shards, layout, .. } = self.saved_addresses()?;
        if let Some(ShardLayout { shards, replicas }) = layout {
            return Ok(if second && replicas < 2 { 0 } else { shards });
        }
        let there: Vec<ShardProcess> = match shards.is_empty() {
            false => shards.keys().filter_map(|name| name.strip_prefix(SHARD)?.parse().ok()).collect(),
            true => entries(&self.dir)
                .filter_map(|path| path.file_name()?.to_str()?.strip_prefix(SHARD_DIR)?.parse().ok())
                .filter(|shard: &ShardProcess| !self.saved_jobs([*shard]).is_empty())
                .collect(),
        };
        let of_kind = there.into_iter().filter(|shard| shard.second == second);
        Ok(of_kind.map(|shard| shard.index.saturating_add(1)).max().unwrap_or(0))
    }

    /// Jobs that these processes saved at the last stop, or keep checkpoints of.
    fn saved_jobs(&self, shards: impl IntoIterator<Item = ShardProcess>) -> Vec<String> {
        let mut names = BTreeSet::new();
        for dir in shards.into_iter().map(|shard| self.shard_dir(shard)) {
            names.extend(job_files(&dir));
            let checkpoints = entries(&dir.join("checkpoints")).filter(|path| path.is_dir());
            names.extend(checkpoints.filter_map(|path| job_of_checkpoints(&path)));
        }
        names.into_iter().collect()
    }

    /// Whether a process has jobs to read before it listens.
    pub(crate) fn has_saved_jobs(&self, shard: ShardProcess) -> bool {
        job_files(&self.shard_dir(shard)).next().is_some()
    }

    /// The state directory of a process of a shard.
    pub(crate) fn shard_dir(&self, shard: ShardProcess) -> PathBuf {
        self.dir.join(format!("{SHARD_DIR}{shard}"))
    }

    /// Writes down for other commands where the cluster is.
    pub(crate) fn publish(&self, running: &RunningCluster) -> Result<(), CliError> {
        self.write(&RunningCluster::path(&self.dir), running)
    }

    /// Removes what [`StateDir::publish`] wrote.
    pub(crate) fn unpublish(&self) {
        let _ = fs::remove_file(RunningCluster::path(&self.dir));
    }

    /// Replaces a file atomically.
    fn write(&self, path: &Path, value: &impl Serialize) -> Result<(), CliError> {
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(value)?)?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error| {
            // Half a file is of no use to anybody.
            let _ = fs::remove_file(&new);
            path_error(path)(error)
        })
    }
}

/// Creates the folder of the logs, and removes the rights of others from folders that an earlier release left
/// open.
fn restrict_permissions(dir: &Path) -> io::Result<()> {
    folder::make_or_close(&dir.join("logs"))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SHARD_DIR) && entry.file_type()?.is_dir() {
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
        let state_dir = StateDir::open(dir.path()).unwrap();
        assert_eq!(state_dir.shard_count(None).unwrap(), DEFAULT_SHARDS);
        let mut saved = state_dir.saved_addresses().unwrap();
        saved.shards = (0..4).map(|i| (format!("ps-{i}"), ([127, 0, 0, 1], 1).into())).collect();
        state_dir.save_addresses(&saved).unwrap();
        let counts =
            || [None, Some(4), Some(3)].map(|told| state_dir.shard_count(told).map_err(|e| e.to_string()));
        assert_eq!(counts(), [Ok(4), Ok(4), Ok(3)]);
        let jobs = state_dir.shard_dir(ShardProcess { index: 3, second: false }).join("jobs");
        fs::create_dir_all(&jobs).unwrap();
        for file in ["digits.job", "old.damaged"] {
            fs::write(jobs.join(file), "").unwrap();
        }
        let [asked, same, other] = counts();
        assert_eq!((asked, same), (Ok(4), Ok(4)));
        assert!(other.unwrap_err().contains("of 4 shards (digits), and --shards says 3"));
        fs::remove_dir_all(&jobs).unwrap();
        fs::create_dir_all(
            state_dir
                .shard_dir(ShardProcess { index: 1, second: true })
                .join("checkpoints/my.mnist-00000007"),
        )
        .unwrap();
        let [.., other] = counts();
        assert!(other.unwrap_err().contains("of 4 shards (my.mnist), and --shards says 3"));
    }

    #[test]
    fn a_shard_is_left_out_only_once_it_has_no_blob() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let mut saved = state_dir.saved_addresses().unwrap();
        saved.layout = Some(ShardLayout { shards: 3, replicas: 1 });
        state_dir.save_addresses(&saved).unwrap();
        let blobs = |index| state_dir.shard_dir(ShardProcess { index, second: false }).join("blobs");
        for index in 0..3 {
            fs::create_dir_all(blobs(index)).unwrap();
        }
        fs::write(blobs(1).join("c0ffee"), "").unwrap();
        let count = |told| state_dir.shard_count(Some(told)).map_err(|error| error.hint());
        assert_eq!([2, 3, 4].map(count), [Ok(2), Ok(3), Ok(4)]);
        assert!(count(1).unwrap_err().starts_with("start it with --shards 3, or without"));
        fs::remove_file(blobs(1).join("c0ffee")).unwrap();
        assert_eq!(count(1), Ok(1));
    }

    #[test]
    fn a_process_that_was_slow_at_the_last_start_is_one_of_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let mut saved = state_dir.saved_addresses().unwrap();
        saved.shards =
            ["ps-0b", "ps-1", "ps-1b"].map(|name| (name.to_owned(), ([127, 0, 0, 1], 1).into())).into();
        let counts = |saved: &SavedAddresses| {
            state_dir.save_addresses(saved).unwrap();
            (state_dir.shard_count(None).unwrap(), state_dir.replica_count(None, 2).unwrap())
        };
        assert_eq!(counts(&saved), (2, 2), "as an earlier release wrote it");
        saved.shards = [("ps-0".to_owned(), ([127, 0, 0, 1], 1).into())].into();
        for (shards, replicas) in [(2, 2), (3, 1)] {
            saved.layout = Some(ShardLayout { shards, replicas });
            assert_eq!(counts(&saved), (shards, replicas));
        }
    }

    #[test]
    fn an_own_redis_that_has_lost_its_folder_is_refused_while_shards_have_saved_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let own = SavedRedis::of(None);
        let mut saved = state_dir.saved_addresses().unwrap();
        saved.redis = Some(own.clone());
        saved.shards = [("ps-0".to_owned(), ([127, 0, 0, 1], 1).into())].into();
        state_dir.save_addresses(&saved).unwrap();
        assert!(state_dir.check_redis(&own).is_ok(), "nothing is saved");
        let jobs = state_dir.shard_dir(ShardProcess { index: 0, second: false }).join("jobs");
        fs::create_dir_all(&jobs).unwrap();
        fs::write(jobs.join("digits.job"), "").unwrap();
        let data = dir.path().join("redis").join(REDIS_DATA);
        for there in [false, true] {
            if there {
                fs::create_dir_all(&data).unwrap();
            }
            let refused = state_dir.check_redis(&own).unwrap_err().to_string();
            assert!(refused.contains("[E580]") && refused.contains("(digits)"), "{refused}");
        }
        // As the hint of E518 moves it away.
        fs::remove_file(dir.path().join("kept.json")).unwrap();
        let refused = state_dir.check_redis(&own).unwrap_err();
        assert!(refused.to_string().contains("[E580]") && refused.hint().contains("--redis"), "{refused}");
        assert!(
            state_dir.check_redis(&SavedRedis::of(Some("redis://a"))).is_ok(),
            "it may have been that one"
        );
        fs::write(data.join("appendonly.aof.manifest"), "").unwrap();
        assert!(state_dir.check_redis(&own).is_ok());
    }

    #[test]
    fn another_redis_is_refused_both_ways_while_shards_have_saved_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let at = |url: &str| SavedRedis::of(Some(url));
        let (own, named) = (SavedRedis::of(None), at("redis://:secret@a:6379/1"));
        let all = [&own, &named, &at("redis://b")];
        let check = |before: Option<&SavedRedis>| {
            let mut saved = state_dir.saved_addresses().unwrap();
            saved.redis = before.cloned();
            saved.shards = [("ps-0".to_owned(), ([127, 0, 0, 1], 1).into())].into();
            state_dir.save_addresses(&saved).unwrap();
            all.map(|told| state_dir.check_redis(told).is_ok())
        };
        for before in [None, Some(&own), Some(&named)] {
            assert_eq!(check(before), [true; 3], "nothing is saved");
        }
        let jobs = state_dir.shard_dir(ShardProcess { index: 0, second: false }).join("jobs");
        fs::create_dir_all(&jobs).unwrap();
        fs::write(jobs.join("digits.job"), "").unwrap();
        let data = dir.path().join("redis").join(REDIS_DATA);
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("appendonly.aof.manifest"), "").unwrap();
        assert_eq!(check(None), [true; 3], "an earlier release has not said which it was");
        assert_eq!(check(Some(&own)), [true, false, false]);
        assert_eq!(check(Some(&named)), [false, true, false]);
        let refused = state_dir.check_redis(&own).unwrap_err();
        let said = format!("{refused}; {}", refused.hint());
        assert!(
            said.contains("[E579]") && said.contains("(digits) of the Redis at redis://a:6379/1"),
            "{said}"
        );
        let kept = fs::read_to_string(dir.path().join("kept.json")).unwrap();
        assert!(!said.contains("secret") && !kept.contains("secret"), "{kept}");
    }

    #[test]
    fn a_damaged_file_of_addresses_is_refused_and_a_lost_one_forgets_no_process_that_holds_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let file = dir.path().join("kept.json");
        let jobs = state_dir.shard_dir(ShardProcess { index: 2, second: true }).join("jobs");
        fs::create_dir_all(&jobs).unwrap();
        fs::write(jobs.join("digits.job"), "").unwrap();
        for damaged in [r#"{"inst"#, ""] {
            fs::write(&file, damaged).unwrap();
            let refused = [state_dir.shard_count(None), state_dir.replica_count(Some(1), 3)];
            for refused in refused.map(Result::unwrap_err) {
                let (text, hint) = (refused.to_string(), refused.hint());
                assert!(text.starts_with("[E518]") && text.contains("kept.json"), "{text}");
                assert!(hint.contains("kept.json.damaged`") && hint.contains("--token-file"), "{hint}");
            }
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(state_dir.replica_count(None, 3).unwrap(), 2);
        assert!(state_dir.replica_count(Some(1), 3).unwrap_err().to_string().contains("hold jobs (digits)"));
        // A folder of this name that no shard has made says nothing.
        fs::create_dir_all(dir.path().join("shard-of-glass/jobs")).unwrap();
        assert_eq!(state_dir.shard_count(None).unwrap(), DEFAULT_SHARDS);
        fs::create_dir_all(state_dir.dir().join("shard-2/checkpoints/digits-00000001")).unwrap();
        assert_eq!(state_dir.shard_count(None).unwrap(), 3);
    }

    #[test]
    fn one_at_a_time_and_ports_stay() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        let mut saved = state_dir.saved_addresses().unwrap();
        saved.redis_port = Some(7);
        state_dir.save_addresses(&saved).unwrap();
        assert_eq!(state_dir.saved_addresses().unwrap(), saved);
        match StateDir::open(dir.path()).map(|_| ()) {
            Err(CliError::Running { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(state_dir);
        assert_eq!(StateDir::open(dir.path()).unwrap().saved_addresses().unwrap(), saved);
    }
}
