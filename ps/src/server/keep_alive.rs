//! Work that may take longer than a caller listens for.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::threads;

use super::connection::Connection;
use crate::{transport::Duplex, wire::Reply};

/// Who works for somebody says so this often: it would be hung up on.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// What is done with all parameters of a shard of fewer bytes is done within a moment.
pub(super) const LARGE_BYTES: u64 = 64 << 20;

/// Signs of life between the steps of what the thread of the connection does itself, work or waiting.
pub(super) struct KeepAlive {
    last: Instant,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { last: Instant::now() }
    }
}

impl KeepAlive {
    /// Tells the caller that the work goes on, if it has not heard of it for a while. Whether it was told.
    pub(super) fn send_if_due<D: Duplex>(&mut self, connection: &mut Connection<'_, D>) -> io::Result<bool> {
        if self.last.elapsed() < KEEP_ALIVE_INTERVAL {
            return Ok(false);
        }
        self.last = Instant::now();
        connection.reply(&Reply::Waiting, 0)?;
        Ok(true)
    }
}

/// Does the work in a thread of its own, and tells the caller every `interval` that it goes on.
pub(super) fn with_keep_alive<D: Duplex, T: Send>(
    connection: &mut Connection<'_, D>,
    interval: Duration,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let (done, ends) = mpsc::channel();
        let run = move || drop(done.send(work()));
        threads::spawn_scoped(scope, "ps-work", run)?;
        loop {
            match ends.recv_timeout(interval) {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout) => connection.reply(&Reply::Waiting, 0)?,
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
            }
        }
    })
}
