//! What carries the bytes of a tensor connection: TCP, a unix socket, or memory that both ends map.
//!
//! Everything above speaks one protocol to a [`Channel`] and does not know which of the three it is. A shard
//! is reached over TCP first; a client on the same machine then moves to the shard's unix socket, and over
//! that to shared memory (`client::transport_upgrade`).
//!
//! | | bytes go | waiting | the other end's death |
//! |---|---|---|---|
//! | TCP | through the kernel | in the kernel | end of stream, keep-alive |
//! | unix | through the kernel, without segments | in the kernel | end of stream |
//! | shm | into a ring that both ends map | spins 50 us, then in the kernel on the unix socket | end of that stream |
//!
//! A process that is stopped, but not dead, is noticed by the limits on reading and writing, on every
//! transport.

mod channel;
mod duplex;
mod greeting;
mod kind;
mod peer;
mod shm;
mod socket;
mod tcp;
mod unix;

pub use channel::Channel;
pub use duplex::Duplex;
pub(crate) use greeting::Greeting;
pub use kind::{Transport, TransportChoice, UnknownTransport};
pub(crate) use peer::is_same_user_or_root;
pub(crate) use shm::{
    Access, Mapping, PAGE_BYTES, Pages, readable_memory, sealed_bytes, sealed_memory, take_pages,
};
pub use shm::{Memory, MemorySide};
pub use socket::Socket;
pub use tcp::connect as connect_tcp;
pub(crate) use tcp::size_buffers;
pub use unix::connect as connect_unix;
pub use unix::{MAX_SOCKET_PATH_BYTES, SocketFolder, socket_folder};
pub(crate) use unix::{SocketFile, bind as bind_unix};

/// The machine that an address names, without its port.
pub(crate) fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
