//! One tensor connection to one shard.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use syncline_engine::rpc::{
    GREETING_TIMEOUT, ShardFault, Token,
    hello::{self, HelloError, Role},
};

use crate::{
    PsError,
    wire::{Digest, Reply, Request, Tcp, WireError},
};

/// An open connection. Any error leaves it out of step: drop it.
pub(crate) struct Link {
    socket: Tcp,
    /// Head of the frame being read or written.
    scratch: Vec<u8>,
    read_limit: Option<Duration>,
}

/// What went wrong on one connection.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// Connect again and try again.
    Broken(io::Error),
    /// The shard refuses; trying again changes nothing.
    Fault(ShardFault),
    /// The peer cannot be talked to at all.
    Greeting(HelloError),
    Protocol(WireError),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<WireError> for LinkError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Io(error) => Self::Broken(error),
            other => Self::Protocol(other),
        }
    }
}

impl LinkError {
    /// The error for a caller who does not try again.
    pub(crate) fn into_error(self, address: &str) -> PsError {
        let address = address.to_owned();
        match self {
            Self::Broken(error) => PsError::Unreachable { address, after_ms: 0, cause: error.to_string() },
            Self::Fault(fault) => fault.into(),
            Self::Greeting(source) => PsError::Greeting { address, source },
            Self::Protocol(source) => PsError::Protocol { address, source },
        }
    }
}

impl Link {
    /// Connects and greets. `limit` bounds each of connecting, sending, and reading what must come at once.
    pub(crate) fn open(address: &str, token: &Token, limit: Duration) -> Result<Self, LinkError> {
        let mut socket = Tcp::connect(address, limit)?;
        socket.stream().set_write_timeout(Some(limit))?;
        let mut link = Self { socket: socket.clone(), scratch: Vec::new(), read_limit: None };
        link.limit_reads(Some(limit.min(GREETING_TIMEOUT)))?;
        match hello::greet_blocking(&mut socket, Role::Tensor, token) {
            Ok(()) => Ok(link),
            Err(HelloError::Io(error)) => Err(LinkError::Broken(error)),
            Err(refused) => Err(LinkError::Greeting(refused)),
        }
    }

    pub(crate) fn socket(&self) -> &Tcp {
        &self.socket
    }

    /// The connection alone, when nothing but a body is still to come.
    pub(crate) fn into_body(self) -> Tcp {
        self.socket
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Tcp {
        &mut self.socket
    }

    /// Fails reads that take longer; `None` waits for ever.
    pub(crate) fn limit_reads(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if self.read_limit != limit {
            self.socket.stream().set_read_timeout(limit)?;
            self.read_limit = limit;
        }
        Ok(())
    }

    /// Sends a question without a body.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<(), LinkError> {
        request.encode(0, &mut self.scratch);
        Ok(self.socket.write_all(&self.scratch)?)
    }

    /// Reads an answer, and passes over those that say that it is still to come; a fault is an error here.
    pub(crate) fn answer(&mut self) -> Result<(Reply, u64), LinkError> {
        loop {
            match Reply::read(&mut self.socket, &mut self.scratch)? {
                (Reply::Waiting, _) => {}
                (Reply::Fault(fault), _) => return Err(LinkError::Fault(fault)),
                reply => return Ok(reply),
            }
        }
    }

    /// The next part of a body.
    pub(crate) fn read_body(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        Ok(self.socket.read_exact(into)?)
    }

    /// Size of a blob on this shard, if it is there.
    pub(crate) fn stat_blob(&mut self, digest: Digest) -> Result<Option<u64>, LinkError> {
        self.ask(&Request::StatBlob { digest })?;
        match self.answer()? {
            (Reply::BlobStat { bytes }, 0) => Ok(bytes),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }

    /// Asks for a piece of a blob that is known to be there; its bytes must be read next.
    pub(crate) fn ask_blob(&mut self, digest: Digest, offset: u64, length: u64) -> Result<(), LinkError> {
        self.ask(&Request::GetBlob { digest, offset, length })?;
        match self.answer()? {
            (Reply::Blob { .. }, body) if body == length => Ok(()),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }
}

/// An answer that does not belong to the question.
pub(crate) fn unexpected_reply(reply: &Reply) -> LinkError {
    LinkError::Protocol(WireError::Unexpected(format!("{reply:?}")))
}
