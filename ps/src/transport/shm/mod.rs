//! Shared memory: two rings of bytes, one for each direction, in memory that shard and client both map.
//!
//! The shard makes the memory (a memfd, sealed against every change of its size, its pages taken at once),
//! maps it, and hands the descriptor to the client over their unix socket. From then on that socket carries
//! no bytes of the protocol: a byte on it wakes an end that sleeps, and its end is the end of the connection.
//!
//! ```text
//! page 0: client to shard: head | tail | reader sleeps | writer sleeps;  shard to client: the same
//! then:   bytes from client to shard, bytes from shard to client; a power of two each
//! ```
//!
//! `head` counts bytes ever written and `tail` bytes ever read; each is written by one end alone, which never
//! reads its own back. What the other end says is checked at each use: more bytes than the ring has places
//! end the connection. The bytes themselves are copied out before anything looks at them, and are trusted no
//! more than those from a socket.
//!
//! **Sleeping.** An end that finds nothing to do for 50 us, or less if that was in vain lately, raises its
//! flag, looks once more, and waits for a byte on the socket. The flag of one that reads says how many bytes
//! it needs: it is not woken for a part of a chunk. The other end looks at the flag after it has moved its
//! index. Between the two steps of either end stands a sequentially consistent fence, so that one of them
//! sees what the other did: no wake-up is lost.

mod descriptor;
mod endpoint;
mod mapping;
mod memory;
mod ring;
#[cfg(test)]
mod tests;

pub use descriptor::{receive as receive_descriptor, send as send_descriptor};
pub use endpoint::Shm;
pub(crate) use mapping::{
    Access, Mapping, PAGE_BYTES, Pages, readable_memory, sealed_bytes, sealed_memory, take_pages,
};
pub use memory::{Memory, MemorySide};
