//! What all threads of a shard see.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_rpc::{Refusals, ShardPosition, Token};
use tracing::info;

use super::{
    Options, blob_check::BlobChecks, blob_fetches::BlobFetches, blobs::BlobStore, checkpoint_copy::Fetching,
    connections::Connections, disk::Disk, followed_jobs::FollowedJobs, memory::FreedMemory, role::RoleKeeper,
    saves, saves::Saves, standby_files::StandbyFiles, unclaimed::UnclaimedJobs,
};
use crate::{PsError, shard::JobTable};

/// What all threads of a shard see.
pub(super) struct Shared {
    /// Which shard this is a process of.
    pub(super) here: ShardPosition,
    pub(super) jobs: JobTable,
    /// Jobs of the process that serves this shard, while this one follows it.
    pub(super) followed: FollowedJobs,
    pub(super) role: RoleKeeper,
    pub(super) blobs: BlobStore,
    /// Whether blobs are being fetched from the process that serves.
    pub(super) mirroring: AtomicBool,
    /// Blobs that are being read to see whether they are whole.
    pub(super) blob_checks: BlobChecks,
    /// Blobs that are being fetched from the process that follows.
    pub(super) blob_fetches: BlobFetches,
    /// The checkpoint that is being fetched from there.
    pub(super) fetching: Fetching,
    pub(super) token: Token,
    pub(super) state_dir: PathBuf,
    pub(super) connections: Connections,
    pub(super) saves: Saves,
    pub(super) unclaimed: UnclaimedJobs,
    pub(super) freed: FreedMemory,
    pub(super) disk: Disk,
    /// Held by whoever writes checkpoints or removes them.
    pub(super) checkpoint_files: Mutex<()>,
    /// Checkpoints of followed jobs that are to be written or removed.
    pub(super) standby_files: StandbyFiles,
    /// Set once saved jobs are here alone: what serves and follows waits for it.
    pub(super) begun: OnceLock<()>,
    pub(super) stopping: AtomicBool,
    /// The file of the socket for callers on the same machine.
    pub(super) local_socket: Option<String>,
    pub(super) refusals: Refusals,
    /// Held for reading while a norm from another shard is applied: a stop waits for that.
    pub(super) norm_intake: RwLock<()>,
}

impl Shared {
    pub(super) fn new(
        options: &Options,
        blobs: BlobStore,
        saves: Saves,
        local_socket: Option<String>,
    ) -> Result<Self, PsError> {
        // Without an engine nobody could give it a role.
        let replicas = if options.engine.is_some() { options.replicas } else { 1 };
        Ok(Self {
            here: ShardPosition { index: options.index, count: options.count },
            jobs: JobTable::default(),
            followed: FollowedJobs::default(),
            role: RoleKeeper::open(&options.state_dir, replicas)?,
            blobs,
            mirroring: AtomicBool::new(false),
            blob_checks: BlobChecks::default(),
            blob_fetches: BlobFetches::default(),
            fetching: Fetching::default(),
            token: options.token.clone(),
            state_dir: options.state_dir.clone(),
            connections: Connections::default(),
            saves,
            unclaimed: UnclaimedJobs::default(),
            freed: FreedMemory::default(),
            disk: Disk::measure(&options.state_dir),
            checkpoint_files: Mutex::new(()),
            standby_files: StandbyFiles::default(),
            begun: OnceLock::new(),
            stopping: AtomicBool::new(false),
            local_socket,
            refusals: Refusals::default(),
            norm_intake: RwLock::default(),
        })
    }

    /// Of a shard with two processes that hears of no engine.
    #[cfg(test)]
    pub(super) fn for_test(state_dir: &std::path::Path) -> Arc<Self> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let options = Options {
            listen: address,
            token: Token::generate(),
            state_dir: state_dir.to_owned(),
            index: 0,
            count: 1,
            replicas: 2,
            engine: Some(address.into()),
            advertise: None,
        };
        let blobs = BlobStore::open(state_dir.join("blobs")).unwrap();
        let saves = Saves::open(state_dir.join("jobs")).unwrap();
        let shared = Self::new(&options, blobs, saves, None).unwrap();
        shared.begun.get_or_init(|| ());
        Arc::new(shared)
    }

    /// Restores the jobs that were saved at the last stop, and lets the threads that `start` gives serve
    /// them. Their files go last of all, and before anybody is served: one that stays would be read
    /// again, and one that goes too early is lost where a thread cannot be started.
    pub(super) fn begin<T>(&self, start: impl FnOnce() -> Result<T, PsError>) -> Result<T, PsError> {
        let files = self.restore_saved()?;
        let started = start().and_then(|threads| self.saves.delete(&files).map(|()| threads));
        if started.is_err() {
            self.saves.save_deleted(&self.jobs.open_jobs());
            self.stopping.store(true, Ordering::SeqCst);
        }
        self.begun.get_or_init(|| ());
        started
    }

    /// Returns the files of the jobs that it restores.
    fn restore_saved(&self) -> Result<Vec<PathBuf>, PsError> {
        let mut loaded = self.saves.load_all(self.here)?;
        std::mem::take(&mut loaded.damaged).iter().for_each(saves::Damaged::log);
        // Without its job this shard would make the engine give the job up.
        if let Some(error) = loaded.other_shard {
            return Err(error);
        }
        for (job, aside) in loaded.jobs {
            info!(job = %job.job(), version = job.version(), "goes on");
            self.unclaimed.add(job.run(), aside);
            self.jobs.restore(Arc::new(job));
        }
        for (job, path) in loaded.aside {
            info!(job = %job.run.job, path = %path.display(), "was set aside, and is read if an engine asks for it");
            self.unclaimed.add(&job.run, Some(path));
            self.jobs.add_aside(job);
        }
        Ok(loaded.files)
    }

    /// Ends every connection that has a thread.
    pub(super) fn cut_connections(&self) {
        self.jobs.open_jobs().iter().for_each(|job| job.retire_lent());
        self.connections.shut_down();
    }

    /// An error once the shard stops.
    pub(super) fn stopping(&self) -> io::Result<()> {
        if self.stopping.load(Ordering::SeqCst) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::HeldJob;
    use syncline_scheduler::{
        ids::{EngineEpoch, Incarnation},
        sync::PushMode,
    };

    use super::{super::pull::tests::shard, *};
    use crate::shard::{PushHeader, PushedChunk};

    const HERE: ShardPosition = ShardPosition { index: 0, count: 1 };

    fn out_of_threads() -> PsError {
        PsError::Io { what: "cannot start a thread".into(), source: io::ErrorKind::WouldBlock.into() }
    }

    #[test]
    fn a_slot_that_is_read_while_its_connection_is_cut_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, job) = (Shared::for_test(dir.path()), Arc::new(shard(&[0.0; 3])));
        shared.jobs.restore(job.clone());
        job.lent_memory().unwrap().unwrap();
        assert_eq!(job.lend(), Some(0));
        shared.cut_connections();
        // As the thread of a connection does at its end.
        job.give_back(0);
        let (mode, worker) = (PushMode::Apply, Incarnation(1));
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
        let chunk = PushedChunk { worker, seq: 1, index: 0, header: &header, share: None };
        job.apply(chunk, &[1.0; 3]).unwrap();
        assert_eq!(job.lend(), None, "the newest values are in no slot, and none is free");
    }

    #[test]
    fn saved_jobs_stay_on_disk_where_nothing_can_be_started_that_serves_them() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        assert!(Shared::for_test(dir.path()).saves.save(&job).is_ok());
        let files = || std::fs::read_dir(dir.path().join("jobs")).unwrap().count();
        let fails = Shared::for_test(dir.path());
        assert!(fails.begin(|| Err::<(), _>(out_of_threads())).is_err());
        assert!(files() == 1 && fails.stopping().is_err(), "what waits to serve ends");
        let begins = Shared::for_test(dir.path());
        let there = begins.begin(|| Ok((files(), begins.jobs.open_jobs().len())));
        assert_eq!((there.unwrap(), files()), ((1, 1), 0));
    }

    #[test]
    fn a_saved_job_that_no_engine_knows_is_there_again_at_each_start_until_one_does() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        assert!(Shared::for_test(dir.path()).saves.save(&job).is_ok());
        let files = || {
            let names = std::fs::read_dir(dir.path().join("jobs")).unwrap();
            names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let first = Shared::for_test(dir.path());
        first.begin(|| Ok(())).unwrap();
        let saved = first.jobs.open_jobs().remove(0);
        first.unclaimed.set_aside(&first.saves, EngineEpoch(1), &saved).unwrap();
        for _ in 0..2 {
            let shared = Shared::for_test(dir.path());
            shared.begin(|| Ok(())).unwrap();
            let held = shared.jobs.held(EngineEpoch(9)).unwrap();
            assert_eq!(held, [HeldJob { run: job.run().clone(), closed: false }]);
            assert!(shared.jobs.open_jobs().is_empty(), "nobody has asked for it: a stop saves nothing");
            assert_eq!(files(), ["digits-00000000.forgotten"]);
        }
        let known = Shared::for_test(dir.path());
        known.begin(|| Ok(())).unwrap();
        assert_eq!(known.jobs.find(job.run()).unwrap().copy_values().unwrap(), [1.0, 2.0, 3.0]);
        for _ in 0..2 {
            known.unclaimed.claim(&known.saves, job.run()).unwrap();
        }
        assert_eq!(files(), [""; 0], "it goes on, and must not be read again as it was");
        assert!(!known.unclaimed.has(job.run()), "where an engine that has used it closes it, it is dropped");
    }

    #[test]
    fn what_is_saved_goes_before_what_was_set_aside_and_that_does_not_stay_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let saves = || Saves::open(dir.path().join("jobs")).unwrap();
        saves().set_aside(&shard(&[1.0, 2.0, 3.0])).unwrap();
        assert!(saves().save(&shard(&[4.0, 5.0, 6.0])).is_ok());
        let both = saves().load_all(HERE).ok().unwrap();
        assert_eq!(both.jobs.len(), 1);
        assert_eq!(both.jobs[0].0.copy_values().unwrap(), [4.0, 5.0, 6.0]);
        std::fs::remove_file(dir.path().join("jobs/digits.job")).unwrap();
        let aside = dir.path().join("jobs/digits-00000000.forgotten");
        assert_eq!(saves().load_all(HERE).ok().unwrap().aside[0].1, aside);
        let file = std::fs::File::options().write(true).open(&aside).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 86_400)).unwrap();
        assert!(saves().load_all(HERE).ok().unwrap().aside.is_empty() && !aside.exists());
    }

    #[test]
    fn a_job_that_was_set_aside_and_cannot_be_read_keeps_no_shard_from_its_others() {
        let dir = tempfile::tempdir().unwrap();
        let saves = Saves::open(dir.path().join("jobs")).unwrap();
        assert!(saves.save(&shard(&[1.0, 2.0, 3.0])).is_ok());
        // Whoever reads a folder is told of an error of the disk.
        let aside = dir.path().join("jobs/letters.forgotten");
        std::fs::create_dir(&aside).unwrap();
        assert_eq!(saves.load_all(HERE).ok().unwrap().jobs.len(), 1);
        assert!(aside.exists());
    }

    #[test]
    fn a_job_that_was_set_aside_is_there_for_who_asks_a_process_that_serves_again() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        Shared::for_test(dir.path()).saves.set_aside(&job).unwrap();
        let shared = Shared::for_test(dir.path());
        shared.begin(|| Ok(())).unwrap();
        assert_eq!(shared.jobs.give_up(), 0, "it serves no more, and no job was open");
        assert!(shared.jobs.attach(EngineEpoch(9), job.run()).unwrap().is_some());
    }

    #[test]
    fn a_job_that_was_set_aside_and_is_damaged_is_not_here_for_who_asks_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        let path = Shared::for_test(dir.path()).saves.set_aside(&job).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let shared = Shared::for_test(dir.path());
        shared.begin(|| Ok(())).unwrap();
        assert_eq!(shared.jobs.attach(EngineEpoch(9), job.run()), Ok(None));
        assert!(path.exists() && shared.jobs.held(EngineEpoch(9)).unwrap().is_empty());
    }

    #[test]
    fn a_job_that_was_set_aside_and_whose_file_somebody_removed_is_not_here_for_who_asks_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        let path = Shared::for_test(dir.path()).saves.set_aside(&job).unwrap();
        let shared = Shared::for_test(dir.path());
        shared.begin(|| Ok(())).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(shared.jobs.attach(EngineEpoch(9), job.run()), Ok(None));
    }

    #[test]
    fn a_job_that_was_read_goes_on_although_its_file_is_gone_before_it_is_claimed() {
        let dir = tempfile::tempdir().unwrap();
        let job = shard(&[1.0, 2.0, 3.0]);
        let path = Shared::for_test(dir.path()).saves.set_aside(&job).unwrap();
        let shared = Shared::for_test(dir.path());
        shared.begin(|| Ok(())).unwrap();
        assert!(shared.jobs.attach(EngineEpoch(9), job.run()).unwrap().is_some());
        std::fs::remove_file(path).unwrap();
        assert_eq!(shared.unclaimed.claim(&shared.saves, job.run()), Ok(true));
    }

    #[test]
    fn a_saved_job_whose_file_went_before_another_ones_could_not_is_saved_again() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        assert!(shared.saves.save(&shard(&[1.0, 2.0, 3.0])).is_ok());
        let path = dir.path().join("jobs/digits.job");
        // Gone before its turn, so that the start fails.
        let begun = shared.begin(|| {
            std::fs::remove_file(&path).unwrap();
            Ok(())
        });
        assert!(begun.is_err() && path.exists());
        let again = Shared::for_test(dir.path());
        again.begin(|| Ok(())).unwrap();
        assert_eq!(again.jobs.open_jobs()[0].copy_values().unwrap(), [1.0, 2.0, 3.0]);
    }
}
