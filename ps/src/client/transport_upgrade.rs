//! The fastest way to a shard: from TCP to its unix socket, and from there to shared memory.

use std::{
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

use syncline_rpc::{ShardPosition, Token};
use tracing::{debug, warn};

use super::{Link, LinkError, lending::LendRequest, unexpected_reply};
use crate::{
    PsError,
    transport::{Channel, Transport, TransportChoice, connect_unix},
    wire::{Reply, Request},
};

/// How a caller wants to be connected.
#[derive(Clone, Copy)]
pub(super) struct ConnectOptions<'a> {
    /// Whose process it must be, if that matters.
    pub shard: Option<ShardPosition>,
    pub token: &'a Token,
    pub limit: Duration,
    pub choice: TransportChoice,
    /// Length of a usual message.
    pub bytes: u64,
    /// What is to be read and written where it lies.
    pub lending: Option<LendRequest<'a>>,
}

/// Why a transport cannot be had from a shard that answers.
enum UpgradeError {
    /// The shard is on another machine.
    Elsewhere(String),
    /// It is not to be had, and will not be.
    Refused(String),
    Failed(LinkError),
}

/// Connects by the transport that `choice` allows, for messages of about `bytes`, and gives the connection to who speaks
/// the protocol itself. `shard`: whose process it must be (E613).
pub fn connect(
    address: &str,
    shard: Option<ShardPosition>,
    token: &Token,
    limit: Duration,
    choice: TransportChoice,
    bytes: u64,
) -> Result<Channel, PsError> {
    let link = open(address, ConnectOptions { shard, token, limit, choice, bytes, lending: None });
    link.map(Link::into_body).map_err(|error| error.into_error(address))
}

/// Opens a connection to the shard at `address`.
pub(super) fn open(address: &str, options: ConnectOptions<'_>) -> Result<Link, LinkError> {
    let mut tcp = match options.shard {
        Some(shard) => Link::open_shard(address, shard, options.token, options.limit)?,
        None => Link::open(address, options.token, options.limit)?,
    };
    if options.choice == TransportChoice::Only(Transport::Tcp) {
        return Ok(tcp);
    }
    let unix = match open_unix(&mut tcp, options)? {
        Ok(unix) => unix,
        Err(obstacle) => return without(Transport::Unix, obstacle, address, options.choice).map(|()| tcp),
    };
    if options.choice == TransportChoice::Only(Transport::Unix) {
        return Ok(unix);
    }
    let mut shared = unix;
    let lent = options.lending.map_or(Ok(()), |lending| shared.lend(lending));
    let obstacle = match lent.and_then(|()| shared.share_memory(options.bytes, options.limit)) {
        Ok(()) => return Ok(shared),
        Err(LinkError::Fault(fault)) => UpgradeError::Refused(fault.to_string()),
        Err(error) => UpgradeError::Failed(error),
    };
    let still_in_step = matches!(obstacle, UpgradeError::Refused(_));
    without(Transport::Shm, obstacle, address, options.choice)?;
    // The socket of a hand-over that failed half way is out of step; the TCP connection has waited.
    Ok(if still_in_step { shared } else { tcp })
}

/// Asks over TCP for the shard's unix socket and greets there, if it is on this machine and belongs to our user.
fn open_unix(tcp: &mut Link, options: ConnectOptions<'_>) -> Result<Result<Link, UpgradeError>, LinkError> {
    tcp.ask(&Request::LocalSocket)?;
    let path = match tcp.answer()? {
        (Reply::LocalSocket { path: Some(path) }, 0) => path,
        (Reply::LocalSocket { path: None }, 0) => {
            return Ok(Err(UpgradeError::Refused("the shard has no unix socket; its log says why".into())));
        }
        (reply, _) => return Err(unexpected_reply(&reply)),
    };
    let socket = match connect_unix(Path::new(&path)) {
        Ok(socket) => socket,
        Err(error) => return Ok(Err(obstacle_to(&path, error))),
    };
    Ok(Link::greet(socket, options.shard, options.token, options.limit).map_err(UpgradeError::Failed))
}

fn obstacle_to(path: &str, error: io::Error) -> UpgradeError {
    match error.kind() {
        ErrorKind::NotFound => UpgradeError::Elsewhere(format!("{path} is not on this machine")),
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported => {
            UpgradeError::Refused(format!("{path}: {error}"))
        }
        _ => UpgradeError::Failed(LinkError::Broken(error)),
    }
}

/// Goes on without `missing`, and says so, or fails if the choice leaves nothing else.
fn without(
    missing: Transport,
    obstacle: UpgradeError,
    address: &str,
    choice: TransportChoice,
) -> Result<(), LinkError> {
    let cause = match (choice, obstacle) {
        (TransportChoice::Only(wanted), UpgradeError::Elsewhere(cause) | UpgradeError::Refused(cause)) => {
            return Err(LinkError::Transport { wanted, cause });
        }
        (TransportChoice::Only(_), UpgradeError::Failed(error)) => return Err(error),
        (TransportChoice::Auto, UpgradeError::Elsewhere(cause)) => {
            debug!(%address, %cause, "no unix socket to this shard");
            return Ok(());
        }
        (TransportChoice::Auto, UpgradeError::Refused(cause)) => cause,
        (TransportChoice::Auto, UpgradeError::Failed(error)) => error.into_error(address).to_string(),
    };
    warn!(%address, without = %missing, %cause, "connected by a slower transport");
    Ok(())
}
