//! Messages as frames: what goes one way over a connection, and how much may follow it.

use std::io::Read;

use serde::{Serialize, de::DeserializeOwned};

use super::{
    WireError,
    frame::{self, Frame},
};

/// What goes one way: questions, or answers.
pub(super) trait Message: Serialize + DeserializeOwned {
    /// Kind of its frames, by which one direction is told from the other.
    const KIND: u8;

    /// Most bytes that may follow it.
    fn body_limit(&self) -> u64;
}

/// Writes the frame of a message into `out`, whose old content is dropped. `body`: bytes that will follow.
pub(super) fn encode<M: Message>(message: &M, body: u64, out: &mut Vec<u8>) {
    frame::encode(out, M::KIND, body, |head| {
        postcard::to_io(message, head).expect("memory takes every message");
    });
}

/// Reads the next message and the length of its body; `None` if the peer hung up between two frames.
pub(super) fn read<M: Message>(
    from: &mut impl Read,
    scratch: &mut Vec<u8>,
) -> Result<Option<(M, u64)>, WireError> {
    let Some(Frame { kind, body, .. }) = Frame::read(from, scratch)? else { return Ok(None) };
    if kind != M::KIND {
        return Err(WireError::Kind(kind));
    }
    let Ok((message, [])) = postcard::take_from_bytes::<M>(scratch) else {
        return Err(WireError::Head { kind });
    };
    if body > message.body_limit() {
        return Err(WireError::TooLong { kind, bytes: body });
    }
    Ok(Some((message, body)))
}
