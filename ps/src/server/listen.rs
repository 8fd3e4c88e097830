//! Accepting connections and sorting them by role.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Type};
use syncline_rpc::{
    GREETING_TIMEOUT,
    hello::{self, Role},
    threads,
};
use tokio::runtime;
use tracing::debug;

use super::{
    Shared,
    connections::{ConnectionGuard, CountedControl, MAX_CONNECTIONS, has_place},
    control, tensor,
};
use crate::transport::{Channel, Greeting, Socket, Transport, is_same_user_or_root, size_buffers};

const BACKLOG: i32 = 1024;
/// A tensor thread's buffers live on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Binds with large buffers: accepted connections inherit them.
pub(super) fn bind(address: SocketAddr) -> io::Result<(socket2::Socket, SocketAddr)> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted shard takes its old port although connections to its predecessor linger.
    socket.set_reuse_address(true)?;
    size_buffers(&socket);
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, bound))
}

/// Starts the thread that accepts on one listener, once the shard has begun.
pub(super) fn spawn(
    listener: Arc<socket2::Socket>,
    transport: Transport,
    shared: Arc<Shared>,
    control: runtime::Handle,
) -> io::Result<JoinHandle<()>> {
    let accept = move || {
        shared.begun.wait();
        while shared.stopping().is_ok() {
            let accepted = listener.accept();
            if shared.stopping().is_err() {
                return;
            }
            match accepted {
                Ok((socket, peer)) => start(&shared, &control, socket, transport, &peer),
                Err(error) => {
                    // Out of descriptors, most likely: wait for some connection to end.
                    shared.refusals.log_accept(&error);
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    };
    Ok(threads::spawn("ps-accept", accept)?)
}

/// Starts the thread of one connection, or drops it.
fn start(
    shared: &Arc<Shared>,
    control: &runtime::Handle,
    socket: socket2::Socket,
    transport: Transport,
    peer: &SockAddr,
) {
    let peer = peer.as_socket().map_or_else(|| transport.to_string(), |address| address.to_string());
    let open = shared.connections.open();
    if !has_place(open, None) {
        return shared.refusals.log_full(&peer, open, MAX_CONNECTIONS);
    }
    if transport != Transport::Tcp && !is_same_user_or_root(&socket).unwrap_or(false) {
        debug!(%peer, "a caller of another user");
        return;
    }
    let Ok(socket) = Socket::accepted(socket, transport) else { return };
    // Within reach of a stop before anything can block.
    let registered = ConnectionGuard::new(shared.clone(), &socket);
    let (control, name) = (control.clone(), peer.clone());
    let serve = move || {
        if let Err(error) = serve(registered, socket, &name, &control) {
            debug!(peer = name, %error, "connection ended");
        }
    };
    let started = thread::Builder::new().name("ps-tensor".into()).stack_size(STACK_BYTES).spawn(serve);
    if let Err(error) = started {
        shared.refusals.log_no_thread(&peer, &error);
    }
}

/// Greets one caller and serves it to its end, or hands it to the control runtime.
fn serve(
    registered: ConnectionGuard,
    mut socket: Socket,
    peer: &str,
    control: &runtime::Handle,
) -> io::Result<()> {
    let shared = registered.shared.clone();
    shared.stopping()?;
    let served: &[Role] = match socket.transport() {
        Transport::Tcp => &[Role::Tensor, Role::Control],
        Transport::Unix | Transport::Shm => &[Role::Tensor],
    };
    let mut greeting = Greeting::within(&mut socket, GREETING_TIMEOUT);
    let greeted = hello::receive_blocking(&mut greeting, &shared.token, served, Some(shared.here));
    let role = greeted.map_err(|refused| {
        shared.refusals.log(peer, &refused);
        io::Error::other(refused)
    })?;
    registered.mark_greeted();
    // Without the connection itself, which is open.
    let others = shared.connections.open().saturating_sub(1);
    if !has_place(others, Some(role)) {
        shared.refusals.log_full(peer, others, MAX_CONNECTIONS);
        return Ok(());
    }
    if role == Role::Tensor {
        return tensor::serve(&shared, Channel::Socket(socket));
    }
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    let counted = CountedControl::new(shared.clone());
    drop(registered);
    let Some(socket) = socket.into_raw() else { return shared.stopping() };
    socket.set_nonblocking(true)?;
    let _entered = control.enter();
    let stream = tokio::net::TcpStream::from_std(socket.into())?;
    control.spawn(async move {
        control::serve(shared, stream).await;
        drop(counted);
    });
    Ok(())
}
