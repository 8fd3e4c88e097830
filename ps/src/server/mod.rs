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
mod open;
mod pull;
mod push;
mod snapshot;
mod tensor;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dashmap::DashMap;
use syncline_engine::{
    folder,
    rpc::{Refusals, Token},
};
use tokio::runtime::Runtime;

use self::blobs::BlobStore;
use crate::{PsError, shard::House, wire::Tcp};

/// What a shard process is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    pub token: Token,
    /// Holds `blobs/` and `snapshots/`; made if it is not there. One per shard.
    pub state_dir: PathBuf,
    /// This shard's position among `count`.
    pub index: u32,
    pub count: u32,
    /// The engine to announce to.
    pub engine: Option<String>,
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
}

/// What all threads of a shard see.
struct Shared {
    house: House,
    blobs: BlobStore,
    token: Token,
    state_dir: PathBuf,
    /// Open tensor connections, so that a stop can end them.
    connections: DashMap<u64, Tcp>,
    stopping: AtomicBool,
    refusals: Refusals,
}

impl Server {
    /// Starts to serve. Errors are about the address or the state directory.
    pub fn start(options: Options) -> Result<Handle, PsError> {
        let io = |what: String| move |source| PsError::Io { what, source };
        let blobs = folder::make(&options.state_dir)
            .and_then(|()| BlobStore::open(options.state_dir.join("blobs")))
            .map_err(io(format!("cannot use the state directory {}", options.state_dir.display())))?;
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
            connections: DashMap::new(),
            stopping: AtomicBool::new(false),
            refusals: Refusals::default(),
        });
        let control = runtime.handle().clone();
        let accepting = listen::spawn(listener, shared.clone(), control)
            .map_err(io("cannot start the listening thread".into()))?;
        if let Some(engine) = options.engine.clone() {
            let hello = announce::hello(&options, address);
            runtime.spawn(announce::keep_announcing(shared.clone(), engine, hello));
        }
        Ok(Handle { shared, address, accepting: Some(accepting), runtime: Some(runtime) })
    }
}

impl Handle {
    /// Where the shard listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the shard: no new connection, open ones are cut, jobs are forgotten.
    pub fn stop(mut self) {
        self.stop_now();
    }

    fn stop_now(&mut self) {
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        for connection in &self.shared.connections {
            connection.shut_down();
        }
        // The listening thread sits in accept: a caller wakes it.
        let _ = TcpStream::connect_timeout(&knock(self.address), Duration::from_secs(1));
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        // One that was accepted while we looked.
        for connection in &self.shared.connections {
            connection.shut_down();
        }
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
