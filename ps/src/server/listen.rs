//! Accepting connections and sorting them by role.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use syncline_engine::rpc::{
    GREETING_TIMEOUT,
    hello::{self, Role},
};
use tokio::runtime;
use tracing::debug;

use super::{Shared, control, tensor};
use crate::wire::{Tcp, size_buffers};

/// Tensor and control connections at the same time; each of the former is a thread.
const MAX_CONNECTIONS: usize = 8192;
const BACKLOG: i32 = 1024;
/// A tensor thread's buffers live on the heap.
const STACK_BYTES: usize = 512 << 10;

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
        let numbers = AtomicU64::new(0);
        loop {
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
            if shared.connections.len() >= MAX_CONNECTIONS {
                debug!(%peer, "too many connections");
                continue;
            }
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            let (shared, control) = (shared.clone(), control.clone());
            let serve = move || {
                if let Err(error) = serve(&shared, &control, number, stream) {
                    debug!(%peer, %error, "connection ended");
                }
                shared.connections.remove(&number);
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
fn serve(shared: &Arc<Shared>, control: &runtime::Handle, number: u64, stream: TcpStream) -> io::Result<()> {
    let peer = stream.peer_addr()?;
    let mut tcp = Tcp::new(stream)?;
    // Within reach of a stop before anything can block.
    shared.connections.insert(number, tcp.clone());
    shared.stopping()?;
    tcp.stream().set_read_timeout(Some(GREETING_TIMEOUT))?;
    let role = hello::receive_blocking(&mut tcp, &shared.token, &[Role::Tensor, Role::Control]).map_err(
        |refused| {
            shared.refusals.note(peer, &refused);
            io::Error::other(refused)
        },
    )?;
    tcp.stream().set_read_timeout(None)?;
    if role == Role::Tensor {
        return tensor::serve(shared, &mut tcp);
    }
    shared.connections.remove(&number);
    let Some(stream) = tcp.into_stream() else { return shared.stopping() };
    stream.set_nonblocking(true)?;
    let _entered = control.enter();
    let stream = tokio::net::TcpStream::from_std(stream)?;
    control.spawn(control::serve(shared.clone(), stream));
    Ok(())
}
