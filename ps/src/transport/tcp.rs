//! TCP: to a shard on another machine, and the way on which a shard on this one is asked for a faster way.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::OnceLock,
    time::Duration,
};

use socket2::{Domain, Protocol, TcpKeepalive, Type};
use syncline_rpc::{NoDescriptor, refuse_ourselves};

use super::{Socket, Transport};

/// Asked of the kernel for each direction.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A peer that vanished without a word is noticed after about this long, whether something is on its way to
/// it or not.
const VANISHED_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects within `limit`, trying every address the name stands for. `connecting` is told of each socket
/// before it is waited for: on Linux whoever shuts it down ends that, too.
pub fn connect(address: &str, limit: Duration, connecting: &dyn Fn(&Socket)) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("no address behind {address}"));
    for target in address.to_socket_addrs()? {
        match connect_one(target, limit, connecting) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = NoDescriptor::explain(error),
        }
    }
    Err(last)
}

fn connect_one(target: SocketAddr, limit: Duration, connecting: &dyn Fn(&Socket)) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    // Before connecting: the window's scale is agreed on with the first packet.
    size_buffers(&socket);
    let socket = Socket::new(socket, Transport::Tcp);
    connecting(&socket);
    socket.raw().connect_timeout(&target.into(), limit)?;
    refuse_ourselves(socket.raw())?;
    configure(socket.raw())?;
    Ok(socket)
}

/// Makes a connected TCP socket one as the tensor connection needs it.
pub(super) fn configure(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    set_keepalive(socket)
}

/// What is sent and not acknowledged in time ends the connection, as a silence does.
fn set_keepalive(socket: &socket2::Socket) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(VANISHED_TIMEOUT / 4)
        .with_interval(VANISHED_TIMEOUT / 4)
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    set_vanished_timeout(socket, Some(VANISHED_TIMEOUT))
}

/// How long something may be on its way to the other end; `None`: as long as the system has it, and forever
/// to one that takes nothing and answers probes.
pub(super) fn set_vanished_timeout(socket: &socket2::Socket, limit: Option<Duration>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(limit)?;
    #[cfg(not(target_os = "linux"))]
    let _ = (socket, limit);
    Ok(())
}

/// Asks for large socket buffers, where the kernel grants them. A fixed size ends its own tuning, which is
/// better than the few hundred kilobytes that an untouched `net.core.rmem_max` allows.
pub(crate) fn size_buffers(socket: &socket2::Socket) {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    let granted = GRANTED.get_or_init(|| {
        let probe = socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        probe.and_then(|probe| ask_buffers(&probe)).unwrap_or(false)
    });
    if *granted {
        let _ = ask_buffers(socket);
    }
}

/// Asks, and says whether all of it was granted.
pub(super) fn ask_buffers(socket: &socket2::Socket) -> io::Result<bool> {
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    Ok(socket.send_buffer_size()?.min(socket.recv_buffer_size()?) >= SOCKET_BUFFER_BYTES)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_connection_that_nobody_takes_is_waited_for_until_it_is_shut_down() {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let full = TcpListener::from(socket);
        let address = full.local_addr().unwrap().to_string();
        // What the kernel takes for a listener that does not, until it takes no more.
        let taken = |_: usize| connect(&address, Duration::from_millis(100), &|_| {}).ok();
        let waiting: Vec<Socket> = (0..64).map_while(taken).collect();
        assert!(waiting.len() < 64, "the kernel takes more than it was told to");
        let day = Duration::from_secs(24 * 3600);
        thread::scope(|scope| {
            let connecting = |socket: &Socket| {
                let socket = socket.clone();
                scope.spawn(move || socket.shut_down());
            };
            assert!(connect(&address, day, &connecting).is_err());
        });
    }
}
