//! A connected stream socket, TCP or unix.

use std::{
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Duplex, Transport, tcp, unix};

/// A socket that may be shut down from another thread. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: socket2::Socket,
    transport: Transport,
    /// Shut down on this end. Memory that goes with the socket does not know of it otherwise.
    shut: AtomicBool,
}

#[cfg(target_os = "linux")]
pub(super) const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
pub(super) const NO_SIGNAL: libc::c_int = 0;
#[cfg(target_os = "linux")]
const MORE_FOLLOWS: libc::c_int = libc::MSG_MORE;
#[cfg(not(target_os = "linux"))]
const MORE_FOLLOWS: libc::c_int = 0;

impl Socket {
    /// Takes a connected socket.
    pub(super) fn new(socket: socket2::Socket, transport: Transport) -> Self {
        Self(Arc::new(Inner { socket, transport, shut: AtomicBool::new(false) }))
    }

    /// Takes one that a listener has accepted.
    pub fn accepted(socket: socket2::Socket, transport: Transport) -> io::Result<Self> {
        match transport {
            Transport::Tcp => tcp::configure(&socket).map(|()| Self::new(socket, transport)),
            Transport::Unix | Transport::Shm => unix::connected(socket),
        }
    }

    /// One end of a connection on this machine, as a shard has it, and the other end.
    #[cfg(test)]
    pub(crate) fn with_peer() -> (Self, std::os::unix::net::UnixStream) {
        let (own, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = std::os::fd::OwnedFd::from(own).into();
        (Self::accepted(own, Transport::Unix).unwrap(), peer)
    }

    /// Whether both are the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// TCP or unix.
    pub fn transport(&self) -> Transport {
        self.0.transport
    }

    /// The socket itself.
    pub fn raw(&self) -> &socket2::Socket {
        &self.0.socket
    }

    /// The socket itself, if nobody else holds it.
    pub fn into_raw(self) -> Option<socket2::Socket> {
        Arc::into_inner(self.0).map(|inner| inner.socket)
    }

    /// Ends both directions; calls that block on this connection return an error.
    pub fn shut_down(&self) {
        self.0.shut.store(true, Ordering::SeqCst);
        let _ = self.raw().shutdown(Shutdown::Both);
    }

    /// Whether [`Socket::shut_down`] was called.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.0.shut.load(Ordering::SeqCst)
    }

    /// Keeps a TCP connection whose other end takes nothing for long, for whoever notices by himself that it
    /// is gone: Linux counts one that is too busy to read among those that vanished, although it answers
    /// every probe.
    pub(crate) fn keep_while_nothing_is_taken(&self) -> io::Result<()> {
        match self.transport() {
            Transport::Tcp => tcp::set_vanished_timeout(self.raw(), None),
            Transport::Unix | Transport::Shm => Ok(()),
        }
    }

    /// Fails reads that take longer; `None` waits forever.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.raw().set_read_timeout(limit)
    }

    /// The same for writes.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.raw().set_write_timeout(limit)
    }
}

/// What a limit of time means: the system says `Resource temporarily unavailable` for it.
pub(super) fn in_words(error: io::Error, limit: impl FnOnce() -> io::Result<Option<Duration>>) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => match limit() {
            Ok(Some(limit)) => no_answer_in(limit),
            _ => error,
        },
        _ => error,
    }
}

/// The other end did nothing for so long.
pub(super) fn no_answer_in(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", limit.as_secs_f64()))
}

impl Duplex for Socket {
    fn try_write_vectored(&mut self, mut parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while !parts.is_empty() {
            let flags = libc::MSG_DONTWAIT | NO_SIGNAL | MORE_FOLLOWS;
            match self.raw().send_vectored_with_flags(parts, flags) {
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

    fn is_closed_by_peer(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match self.raw().recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    fn wait_readable(&mut self) -> io::Result<()> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let mut byte = [MaybeUninit::uninit()];
        loop {
            match self.raw().peek(&mut byte) {
                Ok(_) => return Ok(()),
                Err(e) if matches!(e.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.raw().read(into).map_err(|e| in_words(e, || self.raw().read_timeout()))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.raw().send_with_flags(bytes, NO_SIGNAL).map_err(|e| in_words(e, || self.raw().write_timeout()))
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = self.raw().send_vectored_with_flags(bytes, NO_SIGNAL);
        sent.map_err(|e| in_words(e, || self.raw().write_timeout()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
