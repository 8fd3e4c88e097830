//! What the tensor connection needs of a transport beyond reading and writing.

use std::io::{self, IoSlice, Read, Write};

/// A transport that can say how much fits right now, so that nothing blocks while a chunk is locked.
pub trait Duplex: Read + Write {
    /// Sends what fits of all parts together without blocking, possibly nothing; returns the bytes sent. More
    /// will follow at once: small pieces may be held back.
    fn try_write_vectored(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize>;

    /// Whether the peer has hung up. Does not block and takes no byte.
    fn is_closed_by_peer(&self) -> bool;

    /// Waits until there is something to read, or the end, however long reads may take otherwise.
    fn wait_readable(&mut self) -> io::Result<()>;
}
