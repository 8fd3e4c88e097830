//! Whether the way to a shard carries more than small messages: a path that loses packets of full size lets
//! every greeting through.

use std::time::Duration;

use syncline_rpc::{ShardPosition, Token};

use super::{
    Link, LinkError,
    transport_upgrade::{ConnectOptions, open},
    unexpected_reply,
};
use crate::{
    PsError,
    transport::{Socket, Transport, TransportChoice},
    wire::{ECHO_BYTES, Reply, Request},
};

/// Connects as a worker does, moves [`ECHO_BYTES`] both ways, and says by which transport. `limit` bounds
/// each of connecting, sending and waiting.
///
/// # Errors
/// E594 if the shard answers and so many bytes do not pass; else as [`connect`](super::connect).
pub fn try_path(
    address: &str,
    shard: ShardPosition,
    token: &Token,
    limit: Duration,
    choice: TransportChoice,
) -> Result<Transport, PsError> {
    let connected = &|_: &Socket| {};
    let options = ConnectOptions {
        shard: Some(shard),
        token,
        limit,
        choice,
        bytes: ECHO_BYTES,
        lending: None,
        connected,
    };
    let mut link = open(address, options).map_err(|error| error.into_error(address))?;
    match echo(&mut link) {
        Ok(()) => Ok(link.transport()),
        Err(LinkError::Broken(cause)) => {
            Err(PsError::SmallOnly { address: address.into(), bytes: ECHO_BYTES, cause: cause.to_string() })
        }
        Err(error) => Err(error.into_error(address)),
    }
}

fn echo(link: &mut Link) -> Result<(), LinkError> {
    let mut body = [0xa5; ECHO_BYTES as usize];
    link.ask_with(&Request::Echo, &body)?;
    match link.answer()? {
        (Reply::Echo, ECHO_BYTES) => link.read_body(&mut body),
        (reply, _) => Err(unexpected_reply(&reply)),
    }
}
