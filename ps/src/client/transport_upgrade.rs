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
    transport::{Channel, Socket, Transport, TransportChoice, connect_tcp, connect_unix},
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
    /// Is told of each connection before anything is waited for on it: it may be one to a stranger that says
    /// nothing.
    pub connected: &'a dyn Fn(&Socket),
}

/// Why a transport cannot be had from a shard that answers.
enum UpgradeError {
    /// The shard is on another machine.
    Elsewhere(String),
    /// It is not to be had, and will not be.
    Refused(String),
    Failed(LinkError),
}

impl UpgradeError {
    /// Whether another try may go well: what failed may have had too little time.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Connects by the transport that `choice` allows, for messages of about `bytes`, and gives the connection to
/// who speaks the protocol itself. `shard`: whose process it must be (E613).
pub fn connect(
    address: &str,
    shard: Option<ShardPosition>,
    token: &Token,
    limit: Duration,
    choice: TransportChoice,
    bytes: u64,
) -> Result<Channel, PsError> {
    let connected = &|_: &Socket| {};
    let options = ConnectOptions { shard, token, limit, choice, bytes, lending: None, connected };
    let link = open(address, options);
    link.map(Link::into_body).map_err(|error| error.into_error(address))
}

/// Opens a connection to the shard at `address`.
pub(super) fn open(address: &str, options: ConnectOptions<'_>) -> Result<Link, LinkError> {
    let mut tcp = greet(connect_tcp(address, options.limit, options.connected)?, options)?;
    if options.choice == TransportChoice::Only(Transport::Tcp) {
        return Ok(tcp);
    }
    let unix = match open_unix(&mut tcp, options)? {
        Ok(unix) => unix,
        Err(obstacle) => {
            tcp.upgrade_failed = obstacle.may_pass();
            return without(Transport::Unix, obstacle, address, options.choice).map(|()| tcp);
        }
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
    let out_of_step = obstacle.may_pass();
    without(Transport::Shm, obstacle, address, options.choice)?;
    // The socket of a hand-over that failed half way is out of step; the TCP connection has waited.
    tcp.upgrade_failed = out_of_step;
    Ok(if out_of_step { tcp } else { shared })
}

/// Asks over TCP for the shard's unix socket and greets there, if it is on this machine and belongs to our
/// user.
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
    (options.connected)(&socket);
    Ok(greet(socket, options).map_err(UpgradeError::Failed))
}

fn greet(socket: Socket, options: ConnectOptions<'_>) -> Result<Link, LinkError> {
    Link::greet(socket, options.shard, options.token, options.limit)
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

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Write, net::TcpListener, thread};

    use syncline_rpc::hello::{self, Role};

    use super::*;

    fn options(token: &Token) -> ConnectOptions<'_> {
        let (limit, choice) = (Duration::from_secs(60), TransportChoice::Auto);
        ConnectOptions { shard: None, token, limit, choice, bytes: 0, lending: None, connected: &|_| {} }
    }

    #[test]
    fn a_connection_remembers_whether_its_upgrade_failed_and_not_where_there_is_none() {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let nobody_listens = dir.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&nobody_listens).unwrap());
        let elsewhere = dir.path().join("elsewhere");
        for (path, failed) in [(&nobody_listens, true), (&elsewhere, false)] {
            let shard = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = shard.local_addr().unwrap().to_string();
            let link = thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, mut scratch) = (shard.accept().unwrap().0, Vec::new());
                    hello::receive_blocking(&mut stream, &token, &[Role::Tensor], None).unwrap();
                    let asked = Request::read(&mut stream, &mut scratch).unwrap();
                    assert!(matches!(asked, Some((Request::LocalSocket, 0))));
                    let path = Some(path.to_str().unwrap().to_owned());
                    Reply::LocalSocket { path }.encode(0, &mut scratch);
                    stream.write_all(&scratch).unwrap();
                });
                open(&address, options(&token)).unwrap_or_else(|_| panic!("no connection"))
            });
            assert_eq!((link.transport(), link.upgrade_failed), (Transport::Tcp, failed), "{path:?}");
        }
    }

    #[test]
    fn a_connection_to_a_stranger_that_says_nothing_can_be_ended_before_its_greeting() {
        let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
        let ended = Cell::new(false);
        let token = Token::generate();
        let connected = &|socket: &Socket| {
            socket.shut_down();
            ended.set(true);
        };
        let options = ConnectOptions { connected, ..options(&token) };
        let opened = open(&stranger.local_addr().unwrap().to_string(), options);
        assert!(ended.get() && matches!(opened, Err(LinkError::Broken(_))));
    }
}
