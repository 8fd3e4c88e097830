//! Accepting connections and sorting them by role.

use std::{
    collections::BTreeSet,
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dashmap::DashMap;
use socket2::{Domain, Protocol, Socket, Type};
use syncline_engine::rpc::{
    GREETING_TIMEOUT,
    hello::{self, Role},
};
use tokio::runtime;
use tracing::debug;

use super::{Shared, control, tensor};
use crate::wire::{Tcp, size_buffers};

/// Connections of all kinds at the same time, greeted or not; each but the engine's is a thread.
const MAX_CONNECTIONS: usize = 8192;
/// Those among them whose greeting is still to come: strangers cannot use up the connections of everybody else.
const MAX_GREETING: usize = 64;
const BACKLOG: i32 = 1024;
/// A tensor thread's buffers live on the heap.
const STACK_BYTES: usize = 512 << 10;
/// A caller that takes nothing, or stops in the middle of what it sends, is hung up on after this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at connections that are to end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// All open connections.
#[derive(Default)]
pub(super) struct Connections {
    /// Connections with a thread, so that a stop can end them.
    threads: DashMap<u64, Tcp>,
    /// Those among them that have not greeted, by number and so by age.
    greeting: Mutex<BTreeSet<u64>>,
    /// Connections that were handed to the control runtime.
    controls: AtomicUsize,
}

impl Connections {
    /// Ends every connection that has a thread.
    pub(super) fn shut_down(&self) {
        for connection in &self.threads {
            connection.shut_down();
        }
    }

    /// Waits until no connection has a thread any more; whether it came to that.
    pub(super) fn wait_until_closed(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.threads.is_empty() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn greeting(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.threads.len() + self.controls.load(Ordering::Relaxed) >= MAX_CONNECTIONS
    }

    /// Adds a connection. Where too many have not greeted, the oldest of those is closed.
    fn register(&self, number: u64, tcp: &Tcp) {
        self.threads.insert(number, tcp.clone());
        let mut greeting = self.greeting();
        greeting.insert(number);
        let slowest = if greeting.len() > MAX_GREETING { greeting.pop_first() } else { None };
        drop(greeting);
        if let Some(slow) = slowest.and_then(|slow| self.threads.get(&slow)) {
            slow.shut_down();
        }
    }

    fn mark_greeted(&self, number: u64) {
        self.greeting().remove(&number);
    }

    fn remove(&self, number: u64) {
        self.mark_greeted(number);
        self.threads.remove(&number);
    }
}

/// Removes a connection that has a thread from [`Connections`] when dropped.
struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.connections.remove(self.number);
    }
}

/// Counts a connection that was handed to the control runtime, until it is dropped.
struct CountedControl(Arc<Shared>);

impl CountedControl {
    fn new(shared: Arc<Shared>) -> Self {
        shared.connections.controls.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for CountedControl {
    fn drop(&mut self) {
        self.0.connections.controls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Binds with large buffers: accepted connections inherit them.
pub(super) fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted shard takes its old port although connections of its past life linger.
    socket.set_reuse_address(true)?;
    size_buffers(&socket);
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Starts the thread that accepts.
pub(super) fn spawn(
    listener: TcpListener,
    shared: Arc<Shared>,
    control: runtime::Handle,
) -> io::Result<JoinHandle<()>> {
    let accept = move || {
        for number in 0u64.. {
            let accepted = listener.accept();
            if shared.stopping().is_err() {
                return;
            }
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: wait for some connection to end.
                    debug!(%error, "accept failed");
                    thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if shared.connections.is_full() {
                debug!(%peer, "too many connections");
                continue;
            }
            let Ok(tcp) = Tcp::new(stream) else { continue };
            // Within reach of a stop before anything can block.
            shared.connections.register(number, &tcp);
            let registered = Registered { shared: shared.clone(), number };
            let control = control.clone();
            let serve = move || {
                if let Err(error) = serve(registered, tcp, &control) {
                    debug!(%peer, %error, "connection ended");
                }
            };
            let started =
                thread::Builder::new().name("ps-tensor".into()).stack_size(STACK_BYTES).spawn(serve);
            if let Err(error) = started {
                debug!(%peer, %error, "no thread for a connection");
            }
        }
    };
    thread::Builder::new().name("ps-accept".into()).spawn(accept)
}

/// Greets one caller and serves it to its end, or hands it to the control runtime.
fn serve(registered: Registered, mut tcp: Tcp, control: &runtime::Handle) -> io::Result<()> {
    let shared = registered.shared.clone();
    let peer = tcp.stream().peer_addr()?;
    shared.stopping()?;
    tcp.stream().set_read_timeout(Some(GREETING_TIMEOUT))?;
    tcp.stream().set_write_timeout(Some(GREETING_TIMEOUT))?;
    let role = hello::receive_blocking(&mut tcp, &shared.token, &[Role::Tensor, Role::Control]).map_err(
        |refused| {
            shared.refusals.log(peer, &refused);
            io::Error::other(refused)
        },
    )?;
    shared.connections.mark_greeted(registered.number);
    if role == Role::Tensor {
        tcp.stream().set_write_timeout(Some(STALL_TIMEOUT))?;
        return tensor::serve(&shared, &mut tcp);
    }
    tcp.stream().set_read_timeout(None)?;
    tcp.stream().set_write_timeout(None)?;
    let counted = CountedControl::new(shared.clone());
    drop(registered);
    let Some(stream) = tcp.into_stream() else { return shared.stopping() };
    stream.set_nonblocking(true)?;
    let _entered = control.enter();
    let stream = tokio::net::TcpStream::from_std(stream)?;
    control.spawn(async move {
        control::serve(shared, stream).await;
        drop(counted);
    });
    Ok(())
}
