//! The process that holds one shard of every job.
//!
//! One listener serves two kinds of callers, told apart by the greeting's role: the engine's control calls move on
//! to tarpc on a small tokio runtime; tensor connections get a blocking thread each, because their work is copying
//! memory. A push is received chunk by chunk into one buffer and applied while the chunk is in cache. A pull sends
//! from the chunk itself as far as the socket takes it without blocking.
//!
//! Whoever binds anything but loopback must give the cluster's token on purpose: the command line refuses to make
//! one up there.

mod announce;
mod blobs;
mod caller;
mod control;
mod listen;
mod norms;
mod open;
mod pull;
mod push;
mod saves;
mod snapshot;
mod tensor;

use std::{
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use syncline_engine::{
    folder,
    rpc::{EngineAddresses, Refusals, Token},
};
use syncline_scheduler::ids::JobId;
use tokio::{runtime::Runtime, sync::oneshot};
use tracing::{error, info};

use self::{blobs::BlobStore, listen::Callers, saves::Saves};
use crate::{
    PsError,
    shard::{House, ShardPlace},
};

/// What still runs when the shard stops may take this long to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What a shard process is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    pub token: Token,
    /// Holds `blobs/`, `snapshots/`, and `jobs/` between a stop and the next start; made if it is not there. One per
    /// shard: a second process is refused.
    pub state_dir: PathBuf,
    /// This shard's position among `count`.
    pub index: u32,
    pub count: u32,
    /// The engine to announce to, or all of them.
    pub engine: Option<EngineAddresses>,
    /// Where others reach this shard, if not at the address it listens on.
    pub advertise: Option<String>,
}

/// A shard of the parameter server.
pub struct Server;

/// A running shard. Dropping it stops the shard.
pub struct Handle {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
    /// `None` only after the stop.
    runtime: Option<Runtime>,
    /// Hears that the engine will never have this shard.
    refused: Option<oneshot::Receiver<PsError>>,
    /// The lock on the state directory.
    _mine: File,
}

/// What all threads of a shard see.
struct Shared {
    house: House,
    blobs: BlobStore,
    token: Token,
    state_dir: PathBuf,
    callers: Callers,
    saves: Saves,
    stopping: AtomicBool,
    refusals: Refusals,
    /// Held while another shard's word about a job is taken in.
    hearing: RwLock<()>,
}

impl Server {
    /// Starts to serve. Errors are about the address or the state directory.
    pub fn start(options: Options) -> Result<Handle, PsError> {
        let io = |what: String| move |source| PsError::Io { what, source };
        let mine = occupy(&options.state_dir)?;
        let blobs = BlobStore::open(options.state_dir.join("blobs"))
            .map_err(io(format!("cannot use the state directory {}", options.state_dir.display())))?;
        let saves = Saves::open(options.state_dir.join("jobs"))?;
        let (listener, address) =
            listen::bind(options.listen).map_err(io(format!("cannot listen on {}", options.listen)))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ps-control")
            .enable_all()
            .build()
            .map_err(io("cannot start the control runtime".into()))?;
        let shared = Arc::new(Shared {
            house: House::default(),
            blobs,
            token: options.token.clone(),
            state_dir: options.state_dir.clone(),
            callers: Callers::default(),
            saves,
            stopping: AtomicBool::new(false),
            refusals: Refusals::default(),
            hearing: RwLock::default(),
        });
        // Last of all that can fail: once taken, only we have them.
        shared.take_saved(ShardPlace { index: options.index, count: options.count })?;
        let control = runtime.handle().clone();
        let (refuse, refused) = oneshot::channel();
        for job in shared.house.open_jobs() {
            norms::hear(&shared, &job).map_err(|fault| PsError::Refused { fault })?;
        }
        let accepting = listen::spawn(listener, shared.clone(), control)
            .map_err(io("cannot start the listening thread".into()))?;
        if let Some(engine) = options.engine.clone() {
            let hello = announce::hello(&options, address);
            let (shared, refuse) = (shared.clone(), refuse);
            runtime.spawn(async move {
                // Nobody listens any more if the shard stops.
                let _ = refuse.send(announce::keep_announcing(shared, engine, hello).await);
            });
        }
        Ok(Handle {
            refused: Some(refused),
            shared,
            address,
            accepting: Some(accepting),
            runtime: Some(runtime),
            _mine: mine,
        })
    }
}

impl Handle {
    /// Where the shard listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when the engine refuses this shard for a reason that waiting does not change: another token, another
    /// number of shards, another process in this one's place.
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

    /// Stops the shard and keeps its jobs in the state directory: the next start on it goes on with them. Returns their
    /// names. While some cannot be kept, `again` hears why, waits for better times and answers whether to try once more;
    /// if not, they are lost, and the first reason is returned.
    pub fn stop_and_save(mut self, again: impl FnMut(&PsError) -> bool) -> Result<Vec<JobId>, PsError> {
        self.hang_up();
        // What the engine was answered must be in what is kept, so nothing may answer it any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(ENDS_WITHIN);
        }
        drop(self.shared.hearing.write().unwrap_or_else(PoisonError::into_inner));
        let jobs = self.shared.house.open_jobs();
        jobs.iter().for_each(|job| job.wake());
        if !self.shared.callers.gone_within(ENDS_WITHIN) && !jobs.is_empty() {
            return Err(PsError::StillServing { after_ms: ENDS_WITHIN.as_millis() as u64 });
        }
        let outcome = self.shared.saves.keep_all(jobs, again);
        self.stop_now();
        outcome
    }

    /// Ends every connection and takes no new one.
    fn hang_up(&mut self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.callers.shut_down();
        // The listening thread sits in accept: a caller wakes it.
        let _ = TcpStream::connect_timeout(&knock(self.address), Duration::from_secs(1));
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        // One that was accepted while we looked.
        self.shared.callers.shut_down();
    }

    fn stop_now(&mut self) {
        self.hang_up();
        // First the runtime: the engine must not hear that its jobs were closed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.shared.house.close_all();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop_now();
    }
}

impl Shared {
    /// Goes on with the jobs that were kept at the last stop.
    fn take_saved(&self, here: ShardPlace) -> Result<(), PsError> {
        let mut found = self.saves.read(here)?;
        for saves::Damaged { path, cause } in std::mem::take(&mut found.damaged) {
            let error = PsError::DamagedSave { path: path.display().to_string(), cause: cause.to_string() };
            error!(%error, hint = error.hint(), "job lost");
        }
        // Without its job this shard would make the engine give the job up.
        if let Some(error) = found.elsewhere {
            return Err(error);
        }
        self.saves.take(&mut found)?;
        for job in found.jobs {
            info!(job = %job.job(), version = job.version(), "goes on");
            self.house.restore(job);
        }
        Ok(())
    }

    fn stopping(&self) -> io::Result<()> {
        if self.stopping.load(Ordering::SeqCst) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// An address at which a listener on `bound` can be reached from here.
fn knock(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// Makes the state directory ours until we end; the file stays, its lock does not.
fn occupy(dir: &Path) -> Result<File, PsError> {
    let path = dir.join("lock");
    let open = || {
        folder::make(dir)?;
        File::options().create(true).truncate(false).write(true).open(&path)
    };
    let file = open().map_err(|source| PsError::Io {
        what: format!("cannot use the state directory {}", dir.display()),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(PsError::Occupied { dir: dir.display().to_string() }),
        Err(fs::TryLockError::Error(source)) => {
            Err(PsError::Io { what: format!("cannot lock {}", path.display()), source })
        }
    }
}
