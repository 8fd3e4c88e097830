//! What the tensor connection needs of a transport beyond reading and writing, and TCP's answer to it.

use std::{
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    sync::{Arc, OnceLock},
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Asked of the kernel for each direction.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// A peer that vanished without a word is noticed after about this long, whether something is on its way to it or not.
const VANISHED_TIMEOUT: Duration = Duration::from_secs(20);

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(VANISHED_TIMEOUT / 4).with_interval(VANISHED_TIMEOUT / 4).with_retries(3)
}

/// What is sent and not acknowledged in time ends the connection, as a silence does.
fn notice_vanished(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_keepalive(&keepalive())?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(VANISHED_TIMEOUT))?;
    Ok(())
}

/// A transport that can say how much fits right now, so that nothing blocks while a chunk is locked.
pub trait Duplex: Read + Write {
    /// Sends what fits of all parts together without blocking, possibly nothing; returns the bytes sent. More will
    /// follow at once: small pieces may be held back.
    fn send_now(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize>;

    /// Whether the peer has hung up. Does not block and takes no byte.
    fn hung_up(&self) -> bool;

    /// Waits until there is something to read, or the end, however long reads may take otherwise.
    fn wait_for_bytes(&self) -> io::Result<()>;
}

/// A TCP connection that may be shut down from another thread.
#[derive(Debug, Clone)]
pub struct Tcp(Arc<TcpStream>);

impl Tcp {
    /// Connects within `limit`, trying every address the name stands for.
    pub fn connect(address: &str, limit: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("no address behind {address}"));
        for target in address.to_socket_addrs()? {
            match Self::connect_one(target, limit) {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_one(target: SocketAddr, limit: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
        // Before connecting: the window's scale is agreed on with the first packet.
        size_buffers(&socket);
        socket.connect_timeout(&target.into(), limit)?;
        Self::new(socket.into())
    }

    /// Takes a connected stream.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        notice_vanished(&SockRef::from(&stream))?;
        Ok(Self(Arc::new(stream)))
    }

    /// The stream itself, if nobody else holds it.
    pub fn into_stream(self) -> Option<TcpStream> {
        Arc::into_inner(self.0)
    }

    /// The shared stream.
    pub fn stream(&self) -> &Arc<TcpStream> {
        &self.0
    }

    /// Ends both directions; calls that block on this connection return an error.
    pub fn shut_down(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Asks for large socket buffers, where the kernel grants them. A fixed size ends its own tuning, which is better
/// than the few hundred kilobytes that an untouched `net.core.rmem_max` allows.
pub(crate) fn size_buffers(socket: &Socket) {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    let granted = GRANTED.get_or_init(|| {
        let probe = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        probe.and_then(|probe| ask_buffers(&probe)).unwrap_or(false)
    });
    if *granted {
        let _ = ask_buffers(socket);
    }
}

/// Asks, and says whether all of it was granted.
fn ask_buffers(socket: &Socket) -> io::Result<bool> {
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    Ok(socket.send_buffer_size()?.min(socket.recv_buffer_size()?) >= SOCKET_BUFFER_BYTES)
}

#[cfg(target_os = "linux")]
const SEND_NOW: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
#[cfg(not(target_os = "linux"))]
const SEND_NOW: libc::c_int = libc::MSG_DONTWAIT;

impl Duplex for Tcp {
    fn send_now(&mut self, mut parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while !parts.is_empty() {
            match SockRef::from(&*self.0).send_vectored_with_flags(parts, SEND_NOW) {
                Ok(n) => {
                    sent += n;
                    IoSlice::advance_slices(&mut parts, n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    fn hung_up(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&*self.0).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    fn wait_for_bytes(&self) -> io::Result<()> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            match self.0.peek(&mut [0]) {
                Ok(_) => return Ok(()),
                Err(e) if matches!(e.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Read for Tcp {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(into)
    }
}

impl Write for Tcp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self.0).write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
