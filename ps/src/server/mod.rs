//! The process that holds one shard of every job.
//!
//! One listener serves two kinds of callers, told apart by the greeting's role: the engine's control calls
//! move on to tarpc on a small tokio runtime; tensor connections get a blocking thread each, because their
//! work is copying memory. A second listener, on a unix socket, serves tensor connections from the same
//! machine. A push is received chunk by chunk into one buffer and applied while the chunk is in cache. A pull
//! sends from the chunk itself as far as the transport takes it without blocking.
//!
//! Binding anything but loopback needs the cluster's token by name: the command line refuses to create one
//! there.

mod announce;
mod blob_check;
mod blob_fetches;
mod blob_mirror;
mod blob_source;
mod blobs;
mod checked_file;
mod checkpoint_copy;
mod checkpoint_digest;
mod checkpoint_mirror;
mod checkpoints;
mod connection;
mod connections;
mod control;
mod damaged_snapshot;
mod disk;
mod followed_jobs;
mod follower;
mod forgotten_folders;
mod keep_alive;
mod lending;
mod listen;
mod local;
mod memory;
mod mirroring;
mod norms;
mod open;
mod pull;
mod push;
mod replication;
#[cfg(test)]
mod rig;
mod role;
mod role_change;
mod role_file;
mod rows;
mod saves;
mod shared;
mod snapshot;
mod standby_aside;
mod standby_files;
mod stop_notice;
mod tensor;
mod unclaimed;

use std::{
    fs::{self, File},
    net::{Shutdown, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use syncline_rpc::{EngineAddresses, ShardHello, StoppingShard, Token, folder, threads};
use syncline_scheduler::ids::JobId;
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
};

use self::{
    blobs::BlobStore,
    local::{LocalListener, LocalSocket},
    saves::Saves,
    shared::Shared,
    stop_notice::StopNotice,
};
pub(crate) use self::{
    checked_file::read_checked,
    checkpoints::{folder_name, number_of_file},
};
use syncline_rpc::threads::lock;

use crate::{PsError, shard::JobShard, transport::Transport};

/// How long a predecessor on the same state directory, whose parent was killed, may take to save its jobs and
/// end.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(3);
/// Between two tries to lock the state directory.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// What still runs when the shard stops may take this long to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a value of a task may be in the system's memory only: as long as Redis, by default, keeps what it
/// was told.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What a shard process is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Secret of the cluster: callers must show it, and the shard shows it to others.
    pub token: Token,
    /// Holds `blobs/`, `snapshots/`, `checkpoints/`, and `jobs/` between a stop and the next start; made if
    /// it is not there. One per shard: a second process is refused.
    pub state_dir: PathBuf,
    /// This shard's position among `count`.
    pub index: u32,
    /// Shards of the whole parameter server.
    pub count: u32,
    /// How many processes hold this shard: with 2 one serves and the other follows, as the engine decides.
    pub replicas: u32,
    /// The engine to announce to, or all of them.
    pub engine: Option<EngineAddresses>,
    /// Where others reach this shard, if not at the address it listens on.
    pub advertise: Option<String>,
}

/// A running shard. Dropping it stops the shard.
pub struct Handle {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Arc<socket2::Socket>,
    accepting: Option<JoinHandle<()>>,
    local: Option<LocalListener>,
    /// `None` only after the stop.
    runtime: Option<Runtime>,
    /// Receives the reason if the engine will never accept this shard.
    refused: Option<oneshot::Receiver<PsError>>,
    /// The engines that are told of this shard, and as what.
    announced: Option<(EngineAddresses, ShardHello)>,
    /// The lock on the state directory.
    _state_lock: File,
}

/// Starts to serve. Errors are about the address or the state directory.
pub fn start(options: Options) -> Result<Handle, PsError> {
    let io = |what: String| move |source| PsError::Io { what, source };
    let state_lock = lock_state_dir(&options.state_dir)?;
    let blobs = BlobStore::open(options.state_dir.join("blobs"))
        .map_err(io(format!("cannot use the state directory {}", options.state_dir.display())))?;
    let saves = Saves::open(options.state_dir.join("jobs"))?;
    checkpoints::remove_unfinished(&options.state_dir)
        .map_err(io("cannot remove unfinished checkpoints and snapshots".into()))?;
    let (listener, address) =
        listen::bind(options.listen).map_err(io(format!("cannot listen on {}", options.listen)))?;
    let mut control = runtime::Builder::new_multi_thread();
    let runtime = threads::runtime(control.worker_threads(1).thread_name("ps-control"), 1)
        .map_err(io("cannot start the control runtime".into()))?;
    let local = LocalSocket::bind();
    let local_path = local.as_ref().and_then(|local| local.path().to_str().map(str::to_owned));
    let shared = Arc::new(Shared::new(&options, blobs, saves, local_path)?);
    let control = runtime.handle();
    let listener = Arc::new(listener);
    let start_threads = || start_threads(&shared, control, listener.clone(), local);
    let (accepting, local) = shared.begin(start_threads)?;
    runtime.spawn(every_second(shared.clone()));
    let announced = options.engine.clone().map(|engines| (engines, announce::hello(&options, address)));
    let refused = announce_to_engine(&runtime, announced.clone(), &shared);
    Ok(Handle {
        refused: Some(refused),
        announced,
        shared,
        address,
        listener,
        accepting: Some(accepting),
        local,
        runtime: Some(runtime),
        _state_lock: state_lock,
    })
}

/// Starts what serves, and what follows other shards. It all waits until [`Shared::begin`] lets it.
fn start_threads(
    shared: &Arc<Shared>,
    control: &runtime::Handle,
    listener: Arc<socket2::Socket>,
    local: Option<LocalSocket>,
) -> Result<(JoinHandle<()>, Option<LocalListener>), PsError> {
    for job in shared.jobs.open_jobs() {
        norms::follow_peers(shared, &job).map_err(|fault| PsError::Refused { fault })?;
    }
    let fault = |source| PsError::Io { what: "cannot start the listening threads".into(), source };
    let accepting = listen::spawn(listener, Transport::Tcp, shared.clone(), control.clone());
    let accepting = accepting.map_err(fault)?;
    let local = local.map(|local| local.serve(shared.clone(), control.clone())).transpose();
    Ok((accepting, local.map_err(fault)?))
}

/// Tells the engine of this shard as long as it runs. What is returned receives the reason if the engine will
/// never accept it.
fn announce_to_engine(
    runtime: &Runtime,
    announced: Option<(EngineAddresses, ShardHello)>,
    shared: &Arc<Shared>,
) -> oneshot::Receiver<PsError> {
    let (refuse, refused) = oneshot::channel();
    if let Some((engine, hello)) = announced {
        let shared = shared.clone();
        runtime.spawn(async move {
            // Nobody listens any more if the shard stops.
            let _ = refuse.send(announce::keep_announcing(shared, engine, hello).await);
        });
    }
    refused
}

/// Brings values of tasks to disk, measures how much room it has, and gives memory back, forever.
async fn every_second(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SYNC_INTERVAL).await;
        let held = shared.clone();
        // It ends early only with the runtime.
        let see_to_disk = move || {
            held.blobs.sync_values();
            held.disk.look();
        };
        let _ = tokio::task::spawn_blocking(see_to_disk).await;
        shared.freed.give_back_if_due().await;
    }
}

impl Handle {
    /// Where the shard listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when the engine refuses this shard for a reason that waiting does not change: another token,
    /// another number of shards, another process in this one's place.
    pub async fn refused(&mut self) -> PsError {
        if let Some(refused) = &mut self.refused
            && let Ok(error) = refused.await
        {
            self.refused = None;
            return error;
        }
        // No engine was named.
        std::future::pending().await
    }

    /// Stops the shard: no new connection, open ones are cut, jobs are forgotten.
    pub fn stop(mut self) {
        self.stop_now();
    }

    /// Stops the shard and keeps its jobs in the state directory: the next start on it goes on with them. A
    /// process that follows another keeps its copies where that one cannot be reached: nobody else may
    /// have them. Returns their names. While some cannot be kept, or somebody is still served, `retry` is
    /// called with the reason; it waits and returns whether to try once more; if not, each is tried a
    /// last time as it is. What cannot be kept then is lost, and the first reason is returned.
    pub fn stop_and_save(mut self, mut retry: impl FnMut(&PsError) -> bool) -> Result<Vec<JobId>, PsError> {
        self.close_connections();
        let notice = self.announced.take().map(|(engines, hello)| {
            let ShardHello { index, address, boot, .. } = hello;
            let stopping = StoppingShard { index, address, boot, problem: None };
            StopNotice::start(engines, self.shared.token.clone(), stopping)
        });
        // What the engine was answered must be in what is kept, so nothing may answer it any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOP_TIMEOUT);
        }
        // Nor changes an answer of the engine, which may just be followed, what is kept. The role is noted
        // first: a promotion leaves that to the next answer, and the process that served before must
        // not come back as the one that served last.
        let following = lock(&self.shared.role.following);
        // Jobs that are on their way from one list to the other are kept as well.
        drop(lock(&self.shared.role.changing));
        self.shared.role.keep_role();
        drop(following);
        drop(self.shared.norm_intake.write().unwrap_or_else(PoisonError::into_inner));
        let mut jobs = self.shared.jobs.open_jobs();
        if self.shared.role.primary_is_gone() {
            let followed = self.shared.followed.finish();
            // A barrier whose last push came from the primary may have to be closed here: nobody does it
            // after the next start.
            followed.iter().for_each(|job| job.stop_following());
            jobs.extend(followed);
        }
        jobs.iter().for_each(|job| {
            job.stop_standby();
            job.notify();
        });
        let outcome = save_unserved(&self.shared, jobs, STOP_TIMEOUT, |problem| {
            notice.iter().for_each(|notice| notice.held_up(problem));
            retry(problem)
        });
        // There may have been no room for it before.
        self.shared.role.keep_role();
        self.stop_now();
        outcome
    }

    /// Closes every connection and accepts no new one.
    fn close_connections(&mut self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.cut_connections();
        // The listening thread sits in accept, and this wakes it, even where the address is no longer this
        // machine's.
        let _ = self.listener.shutdown(Shutdown::Both);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        if let Some(local) = self.local.take() {
            local.stop();
        }
        // One that was accepted while we looked.
        self.shared.cut_connections();
    }

    fn stop_now(&mut self) {
        self.close_connections();
        // First the runtime: the engine must not be answered that its jobs were closed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.shared.jobs.give_up();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// Saves jobs once nobody is served, or nobody is waited for any more.
fn save_unserved(
    shared: &Shared,
    jobs: Vec<Arc<JobShard>>,
    limit: Duration,
    mut retry: impl FnMut(&PsError) -> bool,
) -> Result<Vec<JobId>, PsError> {
    let all_ended = if jobs.is_empty() {
        shared.connections.wait_until_closed(limit)
    } else {
        wait_for_connections(shared, limit, &mut retry)
    };
    // Who no longer waits for connections does not wait for a disk either.
    shared.saves.save_all(jobs, |error| all_ended && retry(error))
}

/// Waits until nobody is served; whether it came to that. Some cannot be hurried, such as who brings a large
/// blob to disk: `retry` is told of them each time that `limit` has passed, and says whether to wait on.
fn wait_for_connections(shared: &Shared, limit: Duration, mut retry: impl FnMut(&PsError) -> bool) -> bool {
    let started = Instant::now();
    while !shared.connections.wait_until_closed(limit) {
        if !retry(&PsError::StillServing { after_ms: started.elapsed().as_millis() as u64 }) {
            return false;
        }
    }
    true
}

/// Locks the state directory until the file is dropped; the lock file itself stays.
fn lock_state_dir(dir: &Path) -> Result<File, PsError> {
    let path = dir.join("lock");
    let open = || {
        folder::make_ours(dir)?;
        File::options().create(true).truncate(false).write(true).open(&path)
    };
    let file = open().map_err(|source| PsError::Io {
        what: format!("cannot use the state directory {}", dir.display()),
        source,
    })?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if since.elapsed() < PREDECESSOR_LIMIT => {
                thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(PsError::StateDirInUse { dir: dir.display().to_string() });
            }
            Err(fs::TryLockError::Error(source)) => {
                return Err(PsError::Io { what: format!("cannot lock {}", path.display()), source });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use syncline_rpc::{ReplicaRole, ShardPeer};
    use syncline_scheduler::{ids::Incarnation, sync::PushMode};

    use super::{
        connections::ConnectionGuard,
        followed_jobs::FollowedJob,
        pull::tests::{shard, shard_that_clips},
        rig,
        role_file::ROLE_FILE,
        *,
    };
    use crate::{
        shard::{PushHeader, StandbyOp},
        transport::Socket,
    };

    /// One of the two processes of a shard; no engine listens.
    fn one_of_two(dir: &tempfile::TempDir) -> Handle {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let started = start(Options {
            listen: ([127, 0, 0, 1], 0).into(),
            token: Token::generate(),
            state_dir: dir.path().to_owned(),
            index: 0,
            count: 1,
            replicas: 2,
            engine: Some(nowhere.into()),
            advertise: None,
        });
        started.ok().unwrap()
    }

    /// Barriers are not ordered again of a shard that comes back with them.
    #[test]
    fn a_round_whose_norm_the_primary_told_nobody_any_more_is_closed_in_what_a_standby_keeps() {
        let (dir, term, worker) = (tempfile::tempdir().unwrap(), 5, Incarnation(1));
        let handle = one_of_two(&dir);
        let gone = ShardPeer { term: 4, address: "127.0.0.1:1".into() };
        rig::follow_orders(&handle.shared, ReplicaRole::Standby { term }, Some(gone));
        let mut copy = Vec::new();
        let send = |piece: &[u8]| {
            copy.extend_from_slice(piece);
            io::Result::Ok(())
        };
        assert!(shard_that_clips(&[0.0; 3], Some(0.5)).copy_for_standby(term, send).unwrap());
        let shard = JobShard::receive_copy(&mut &copy[..]).unwrap();
        let mode = PushMode::Accumulate;
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
        let (seq, index, elements, share) = (1, 0, 3, 1.0);
        let told = [
            (StandbyOp::Barrier { epoch: rig::EPOCH, order: rig::round_of(worker) }, [].as_slice()),
            (StandbyOp::Chunk { worker, seq, index, header, elements, share }, &[1.0; 3]),
            (StandbyOp::Complete { worker, seq, header }, &[]),
        ];
        for (number, (op, numbers)) in (1..).zip(told) {
            shard.replay(number, op, numbers).unwrap();
        }
        assert_eq!(shard.version(), 0);
        let job = Arc::new(FollowedJob::new(shard));
        job.in_step.store(true, Ordering::Release);
        assert!(handle.shared.followed.insert(&job, term));
        handle.stop_and_save(|_| false).unwrap();
        let again = one_of_two(&dir);
        assert_eq!(again.shared.jobs.find(job.shard.run()).unwrap().version(), 1);
    }

    #[test]
    fn a_stop_right_after_a_promotion_notes_that_this_process_served_last() {
        let dir = tempfile::tempdir().unwrap();
        let handle = one_of_two(&dir);
        rig::follow_orders(&handle.shared, ReplicaRole::Standby { term: 5 }, None);
        role_change::promote(&handle.shared, rig::EPOCH, 6).unwrap();
        handle.stop_and_save(|_| false).unwrap();
        let noted = fs::read_to_string(dir.path().join(ROLE_FILE)).unwrap();
        assert!(noted.starts_with("primary ") && noted.ends_with(" 6\n"), "{noted}");
    }

    #[test]
    fn a_stop_waits_for_who_cannot_be_hurried_as_long_as_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let (socket, _client) = Socket::with_peer();
        let mut slow = Some(ConnectionGuard::new(shared.clone(), &socket));
        let mut asked = 0;
        let waited = wait_for_connections(&shared, Duration::from_millis(1), |_| {
            asked += 1;
            slow.take_if(|_| asked == 3);
            true
        });
        assert!(waited && asked == 3);
    }

    #[test]
    fn jobs_are_kept_although_somebody_who_is_not_waited_for_any_more_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let (socket, _client) = Socket::with_peer();
        let _slow = ConnectionGuard::new(shared.clone(), &socket);
        let job = Arc::new(shard(&[1.0, 2.0, 3.0]));
        let mut said = Vec::new();
        let give_up = |error: &PsError| {
            said.push(error.code());
            false
        };
        let kept = save_unserved(&shared, vec![job.clone()], Duration::from_millis(1), give_up);
        assert_eq!((kept.unwrap(), said), (vec![job.job().clone()], vec!["E422"]));
        assert!(dir.path().join("jobs/digits.job").exists());
    }
}
