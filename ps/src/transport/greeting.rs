//! A socket on which nobody has proved yet who they are.

use std::{
    io::{self, Read, Write},
    time::{Duration, Instant},
};

use super::Socket;

/// The shortest limit that a system takes for one.
const SHORTEST: Duration = Duration::from_millis(1);

/// A socket whose greeting ends in time as a whole: one that sends a byte now and then would hold us with a
/// limit for each read.
pub(crate) struct Greeting<'s> {
    socket: &'s mut Socket,
    ends_at: Instant,
}

impl<'s> Greeting<'s> {
    /// Leaves the limits of the socket as the last read and write had them.
    pub(crate) fn within(socket: &'s mut Socket, limit: Duration) -> Self {
        Self { socket, ends_at: Instant::now() + limit }
    }

    /// What is left of its time.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.ends_at.saturating_duration_since(Instant::now());
        match left >= SHORTEST {
            true => Ok(Some(left)),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, "the greeting did not end in time")),
        }
    }
}

impl Read for Greeting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for Greeting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_a_byte_at_a_time_has_no_more_time_than_others() {
        let (mut socket, mut peer) = Socket::with_peer();
        peer.write_all(b"ab").unwrap();
        let mut greeting = Greeting::within(&mut socket, Duration::from_secs(60));
        let mut byte = [0];
        assert_eq!(greeting.read(&mut byte).unwrap(), 1);
        greeting.ends_at = Instant::now();
        assert_eq!(greeting.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(greeting.write(&byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
