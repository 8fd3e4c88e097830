//! One tensor connection to one shard.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{
    GREETING_TIMEOUT, ShardFault, ShardPosition, Token,
    hello::{self, HelloError, Role},
};

use super::{CancelToken, lending::LentSlots};
use crate::{
    PsError,
    error::unreached,
    transport::{Channel, Greeting, Socket, Transport, connect_tcp},
    wire::{Reply, Request, WireError},
};

/// An open connection. Any error leaves it out of step: drop it.
pub(crate) struct Link {
    channel: Channel,
    /// Head of the frame being read or written.
    scratch: Vec<u8>,
    read_limit: Option<Duration>,
    /// Where the shard lends parameters.
    pub(super) lent: Option<Arc<LentSlots>>,
    /// The shard maps the gradients of this caller.
    pub(super) takes_gradients: bool,
    /// It could not go over to a faster transport, and the next one may.
    pub(super) upgrade_failed: bool,
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
    /// The one transport that may be used is not to be had.
    Transport {
        wanted: Transport,
        cause: String,
    },
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
            garbled if garbled.is_garbled() => Self::Broken(garbled.into()),
            other => Self::Protocol(other),
        }
    }
}

impl LinkError {
    /// The error for a caller who does not try again.
    pub(crate) fn into_error(self, address: &str) -> PsError {
        let address = address.to_owned();
        match self {
            Self::Broken(error) => PsError::Unreachable { address, after_ms: 0, cause: unreached(&error) },
            Self::Fault(fault) => fault.into(),
            Self::Greeting(source) => PsError::Greeting { address, source },
            Self::Protocol(source) => PsError::Protocol { address, source },
            Self::Transport { wanted, cause } => PsError::NoTransport { address, wanted, cause },
        }
    }
}

impl Link {
    /// Connects over TCP to whichever shard is there, and greets: enough for what is known by its digest.
    /// `limit` bounds each of connecting, greeting as a whole, sending, and reading what must come at
    /// once.
    pub(crate) fn open(address: &str, token: &Token, limit: Duration) -> Result<Self, LinkError> {
        Self::open_under(&CancelToken::default(), address, token, limit)
    }

    /// The same, unless it is canceled. The token has its socket until [`CancelToken::let_go`].
    pub(super) fn open_under(
        cancel_token: &CancelToken,
        address: &str,
        token: &Token,
        limit: Duration,
    ) -> Result<Self, LinkError> {
        let socket = connect_tcp(address, limit, &|socket| cancel_token.hold(socket))?;
        Self::greet(socket, None, token, limit)
    }

    /// The same, to a process of this shard: where another one has the address by now, the connection counts
    /// as broken.
    pub(crate) fn open_shard(
        address: &str,
        shard: ShardPosition,
        token: &Token,
        limit: Duration,
    ) -> Result<Self, LinkError> {
        Self::greet(connect_tcp(address, limit, &|_| {})?, Some(shard), token, limit)
    }

    /// Greets on a connected socket.
    pub(super) fn greet(
        mut socket: Socket,
        shard: Option<ShardPosition>,
        token: &Token,
        limit: Duration,
    ) -> Result<Self, LinkError> {
        let must_come_within = limit.min(GREETING_TIMEOUT);
        let mut greeting = Greeting::within(&mut socket, must_come_within);
        match hello::greet_blocking(&mut greeting, Role::Tensor, shard, token) {
            Ok(()) => {
                let read_limit = Some(must_come_within);
                socket.set_write_timeout(Some(limit))?;
                socket.set_read_timeout(read_limit)?;
                Ok(Self {
                    channel: Channel::Socket(socket),
                    scratch: Vec::new(),
                    read_limit,
                    lent: None,
                    takes_gradients: false,
                    upgrade_failed: false,
                })
            }
            Err(HelloError::Io(error)) => Err(LinkError::Broken(error)),
            // The shard that is meant announces where it is now.
            Err(moved @ HelloError::OtherShard(_)) => Err(LinkError::Broken(io::Error::other(moved))),
            Err(refused) => Err(LinkError::Greeting(refused)),
        }
    }

    /// A link whose greeting is over.
    #[cfg(test)]
    pub(crate) fn over(socket: Socket) -> Self {
        let (channel, scratch) = (Channel::Socket(socket), Vec::new());
        Self { channel, scratch, read_limit: None, lent: None, takes_gradients: false, upgrade_failed: false }
    }

    /// Asks to go on in shared memory, in messages of about so many bytes. After a fault the connection goes
    /// on as it was.
    pub(super) fn share_memory(&mut self, bytes: u64, limit: Duration) -> Result<(), LinkError> {
        self.ask(&Request::ShareMemory { bytes })?;
        match self.answer()? {
            (Reply::SharedMemory, 0) => {}
            (reply, _) => return Err(unexpected_reply(&reply)),
        }
        self.channel.upgrade_client()?;
        self.channel.set_write_timeout(Some(limit))?;
        Ok(self.channel.set_read_timeout(self.read_limit)?)
    }

    /// How long one write may take from now on.
    pub(super) fn set_write_limit(&mut self, limit: Duration) -> io::Result<()> {
        self.channel.set_write_timeout(Some(limit))
    }

    /// How its bytes travel.
    pub(crate) fn transport(&self) -> Transport {
        self.channel.transport()
    }

    /// What ends the connection when it is shut down.
    pub(crate) fn socket(&self) -> &Socket {
        self.channel.socket()
    }

    /// The connection alone, when nothing but a body is still to come.
    pub(crate) fn into_body(self) -> Channel {
        self.channel
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// Fails reads that take longer; `None` waits forever.
    pub(crate) fn set_read_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if self.read_limit != limit {
            self.channel.set_read_timeout(limit)?;
            self.read_limit = limit;
        }
        Ok(())
    }

    /// Sends a question without a body.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<(), LinkError> {
        request.encode(0, &mut self.scratch);
        Ok(self.channel.write_all(&self.scratch)?)
    }

    /// Sends a question with a short body.
    pub(crate) fn ask_with(&mut self, request: &Request, body: &[u8]) -> Result<(), LinkError> {
        request.encode(body.len() as u64, &mut self.scratch);
        self.scratch.extend_from_slice(body);
        Ok(self.channel.write_all(&self.scratch)?)
    }

    /// Reads an answer, and passes over those that say that it is still to come; a fault is an error here.
    pub(crate) fn answer(&mut self) -> Result<(Reply, u64), LinkError> {
        loop {
            if let Some(reply) = self.answer_or_sign()? {
                return Ok(reply);
            }
        }
    }

    /// The same; `None` if the shard says that the answer is still to come.
    pub(crate) fn answer_or_sign(&mut self) -> Result<Option<(Reply, u64)>, LinkError> {
        match Reply::read(&mut self.channel, &mut self.scratch)? {
            (Reply::Waiting, _) => Ok(None),
            // The question, not what it asks for, was refused: it is asked again over another connection.
            (Reply::Fault(fault @ ShardFault::Garbled { .. }), _) => {
                Err(LinkError::Broken(io::Error::new(io::ErrorKind::InvalidData, fault)))
            }
            (Reply::Fault(fault), _) => Err(LinkError::Fault(fault)),
            reply => Ok(Some(reply)),
        }
    }

    /// The next part of a body.
    pub(crate) fn read_body(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        Ok(self.channel.read_exact(into)?)
    }

    /// Size of a blob on this shard, if it is there.
    pub(crate) fn stat_blob(&mut self, digest: ContentDigest) -> Result<Option<u64>, LinkError> {
        self.blob_size(&Request::StatBlob { digest })
    }

    /// The same, once the shard has read all of the blob. A damaged one is removed there.
    pub(crate) fn check_blob(&mut self, digest: ContentDigest) -> Result<Option<u64>, LinkError> {
        self.blob_size(&Request::CheckBlob { digest })
    }

    fn blob_size(&mut self, question: &Request) -> Result<Option<u64>, LinkError> {
        self.ask(question)?;
        match self.answer()? {
            (Reply::BlobStat { bytes }, 0) => Ok(bytes),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }

    /// The same; an error where the other process of the shard may have it. A stat does not tell, so that it
    /// is asked for the blob itself.
    pub(crate) fn find_blob(&mut self, digest: ContentDigest) -> Result<Option<u64>, LinkError> {
        if let Some(bytes) = self.stat_blob(digest)? {
            return Ok(Some(bytes));
        }
        match self.ask_blob(digest, 0, 0) {
            Ok(()) | Err(LinkError::Fault(ShardFault::MissingBlob { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`find_blob`](Self::find_blob), of a blob that the shard has read, and found whole.
    pub(crate) fn find_whole_blob(&mut self, digest: ContentDigest) -> Result<Option<u64>, LinkError> {
        match self.check_blob(digest)? {
            None => self.find_blob(digest),
            found => Ok(found),
        }
    }

    /// Stores a blob of so many bytes by this `request`; `send` writes them, unless it is there already, and
    /// whole. The shard brings it to disk before it answers, which takes `limit` at most; `None`: as long
    /// as it may.
    pub(crate) fn put_blob(
        &mut self,
        request: &Request,
        digest: ContentDigest,
        bytes: u64,
        limit: Option<Duration>,
        send: impl FnOnce(&mut Channel) -> io::Result<()>,
    ) -> Result<(), LinkError> {
        if self.check_blob(digest)?.is_some() {
            return Ok(());
        }
        request.encode(bytes, &mut self.scratch);
        self.channel.write_all(&self.scratch)?;
        send(&mut self.channel)?;
        self.set_read_timeout(limit)?;
        match self.answer()? {
            (Reply::BlobStored, 0) => Ok(()),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }

    /// Asks for a piece of a blob that is known to be there; its bytes must be read next.
    pub(crate) fn ask_blob(
        &mut self,
        digest: ContentDigest,
        offset: u64,
        length: u64,
    ) -> Result<(), LinkError> {
        self.ask(&Request::GetBlob { digest, offset, length })?;
        match self.answer()? {
            (Reply::Blob { .. }, body) if body == length => Ok(()),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }

    /// Asks for a blob that should have `length` bytes, and says how many of them come: fewer of one that the
    /// shard's disk has cut short.
    pub(crate) fn ask_whole_blob(&mut self, digest: ContentDigest, length: u64) -> Result<u64, LinkError> {
        self.ask(&Request::GetBlob { digest, offset: 0, length })?;
        match self.answer()? {
            (Reply::Blob { .. }, body) if body <= length => Ok(body),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }
}

/// An answer that does not belong to the question.
pub(crate) fn unexpected_reply(reply: &Reply) -> LinkError {
    LinkError::Protocol(WireError::Unexpected(format!("{reply:?}")))
}
