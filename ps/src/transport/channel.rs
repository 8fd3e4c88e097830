//! One tensor connection, whatever carries it.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    os::fd::OwnedFd,
    time::Duration,
};

use super::{
    Duplex, Memory, MemorySide, Socket, Transport,
    shm::{Shm, receive_descriptor, send_descriptor},
};

/// A connection over a socket, or through shared memory.
pub enum Channel {
    /// Bytes go through the kernel, over TCP or a unix socket.
    Socket(Socket),
    /// Bytes go through two rings in memory that both ends map.
    Shm(Shm),
}

impl Channel {
    /// How the bytes travel.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Socket(socket) => socket.transport(),
            Self::Shm(_) => Transport::Shm,
        }
    }

    /// The socket: whoever shuts it down ends the connection, also one through shared memory.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Socket(socket) => socket,
            Self::Shm(shm) => shm.socket(),
        }
    }

    /// Fails reads that take longer; `None` waits forever.
    pub fn set_read_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.set_read_timeout(limit),
            Self::Shm(shm) => {
                shm.set_read_timeout(limit);
                Ok(())
            }
        }
    }

    /// The same for writes.
    pub fn set_write_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.set_write_timeout(limit),
            Self::Shm(shm) => {
                shm.set_write_timeout(limit);
                Ok(())
            }
        }
    }

    /// Hands out memory over a unix socket. Nothing else may be on its way to the other end.
    pub(crate) fn send_memory(&self, memory: &OwnedFd) -> io::Result<()> {
        send_descriptor(self.unix_socket()?.raw(), memory)
    }

    /// Receives what the other end hands out next.
    pub(crate) fn receive_memory(&self) -> io::Result<OwnedFd> {
        receive_descriptor(self.unix_socket()?.raw())
    }

    fn unix_socket(&self) -> io::Result<&Socket> {
        match self {
            Self::Socket(socket) if socket.transport() == Transport::Unix => Ok(socket),
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }

    /// The shard's side of going over to shared memory: hands out memory for messages of about so many bytes.
    /// Nothing else may be on its way to the client.
    pub fn upgrade_server(&mut self, memory: Memory, descriptor: &OwnedFd) -> io::Result<()> {
        self.send_memory(descriptor)?;
        *self = Self::Shm(Shm::new(self.unix_socket()?.clone(), memory, MemorySide::Shard)?);
        Ok(())
    }

    /// The client's side: receives what the shard hands out next. The limits have to be set anew.
    pub fn upgrade_client(&mut self) -> io::Result<()> {
        let memory = Memory::open(self.receive_memory()?)?;
        *self = Self::Shm(Shm::new(self.unix_socket()?.clone(), memory, MemorySide::Client)?);
        Ok(())
    }
}

macro_rules! either {
    ($self:expr, $inner:ident => $call:expr) => {
        match $self {
            Self::Socket($inner) => $call,
            Self::Shm($inner) => $call,
        }
    };
}

impl Duplex for Channel {
    fn try_write_vectored(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
        either!(self, inner => inner.try_write_vectored(parts))
    }

    fn is_closed_by_peer(&self) -> bool {
        either!(self, inner => inner.is_closed_by_peer())
    }

    fn wait_readable(&mut self) -> io::Result<()> {
        either!(self, inner => inner.wait_readable())
    }
}

impl Read for Channel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, inner => inner.read(into))
    }

    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        either!(self, inner => inner.read_exact(into))
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, inner => inner.write(bytes))
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(self, inner => inner.write_vectored(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, inner => inner.flush())
    }
}
