//! One end of a connection through shared memory, with its waiting.

use std::{
    hint,
    io::{self, ErrorKind, IoSlice, Read, Write},
    mem::MaybeUninit,
    sync::atomic::{AtomicU32, Ordering, fence},
    time::{Duration, Instant},
};

use super::{
    memory::{Memory, MemorySide},
    ring::{RingReader, RingWriter},
};
use crate::transport::{
    Duplex, Socket,
    socket::{NO_SIGNAL, in_words, no_answer_in},
};

/// Longest time that an end spins before it sleeps: workers may outnumber cores.
const SPIN: Duration = Duration::from_micros(50);
/// Every so many waits an end spins as long as it may, to see whether that has become worth it.
const WAITS_PER_PROBE: u32 = 64;
/// Bytes for which a reader that needs many is woken at once, a chunk: each time costs more than it copies
/// meanwhile.
const WAKE_BYTES: usize = 256 << 10;
/// Looks at the ring between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// A connection through shared memory.
pub struct Shm {
    /// Wakes, and tells of the end.
    bell: Doorbell,
    reader: RingReader,
    writer: RingWriter,
    read_limit: Option<Duration>,
    write_limit: Option<Duration>,
}

/// The unix socket.
struct Doorbell {
    socket: Socket,
    /// How long its reads may take, as it was told last.
    limit: Option<Duration>,
    /// How long the next wait spins: less and less while it is in vain, because where cores are short the
    /// other end cannot run while we do.
    spin: Duration,
    waits: u32,
}

/// Why a wait has ended.
#[derive(PartialEq, Eq)]
enum Waited {
    Ready,
    /// The other end is gone, or this one was shut down.
    Gone,
}

impl Shm {
    /// Goes over to `memory`. No byte of the protocol may come over `socket` any more.
    pub fn new(socket: Socket, memory: Memory, end: MemorySide) -> io::Result<Self> {
        let other = match end {
            MemorySide::Client => MemorySide::Shard,
            MemorySide::Shard => MemorySide::Client,
        };
        socket.set_read_timeout(None)?;
        Ok(Self {
            bell: Doorbell { socket, limit: None, spin: SPIN, waits: 0 },
            reader: RingReader::new(memory.clone(), other),
            writer: RingWriter::new(memory, end),
            read_limit: None,
            write_limit: None,
        })
    }

    pub(in crate::transport) fn socket(&self) -> &Socket {
        &self.bell.socket
    }

    pub(in crate::transport) fn set_read_timeout(&mut self, limit: Option<Duration>) {
        self.read_limit = limit;
    }

    pub(in crate::transport) fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.write_limit = limit;
    }

    /// Waits for `wanted` bytes, at most [`WAKE_BYTES`].
    fn wait_readable(&mut self, wanted: usize, limit: Option<Duration>) -> io::Result<Waited> {
        let Self { bell, reader, .. } = self;
        bell.wait(reader.sleeps(), wanted as u32, limit, || Ok(reader.available()? >= wanted))
    }

    /// Reads what is there. If that is nothing, waits for `wanted` bytes, and reads fewer only at the end.
    fn read_after(&mut self, into: &mut [u8], wanted: usize) -> io::Result<usize> {
        let mut waited = Waited::Ready;
        loop {
            if self.bell.socket.is_shut_down() {
                return Ok(0);
            }
            let Self { bell, reader, .. } = self;
            let count = reader.read(into, &|| bell.ring())?;
            if count > 0 || waited == Waited::Gone {
                return Ok(count);
            }
            waited = self.wait_readable(wanted, self.read_limit)?;
        }
    }

    fn wait_writable(&mut self) -> io::Result<Waited> {
        let Self { bell, writer, write_limit, .. } = self;
        bell.wait(writer.sleeps(), 1, *write_limit, || Ok(writer.room()? > 0))
    }

    /// Writes what fits now of all parts together. A connection that has ended takes nothing, however much
    /// room there is.
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Self { bell, writer, .. } = self;
        let mut written = 0;
        for part in parts {
            if bell.socket.is_shut_down() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let count = writer.write(part, &|| bell.ring())?;
            written += count;
            if count < part.len() {
                break;
            }
        }
        Ok(written)
    }
}

impl Doorbell {
    /// Wakes the other end.
    fn ring(&self) {
        let flags = libc::MSG_DONTWAIT | NO_SIGNAL;
        // If it takes no more, there is more than enough to wake it. If it is gone, the next wait will tell.
        let _ = self.socket.raw().send_with_flags(&[0], flags);
    }

    /// Waits until `ready`; `wanted` in `sleeps` tells the other end when it should ring.
    fn wait(
        &mut self,
        sleeps: &AtomicU32,
        wanted: u32,
        limit: Option<Duration>,
        ready: impl Fn() -> io::Result<bool>,
    ) -> io::Result<Waited> {
        let began = Instant::now();
        if self.spin_until(began, &ready)? {
            return Ok(Waited::Ready);
        }
        let outcome = loop {
            sleeps.store(wanted, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if ready()? {
                break Ok(Waited::Ready);
            }
            if self.socket.is_shut_down() {
                break Ok(Waited::Gone);
            }
            // Somebody may ring without end and say nothing.
            if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
                break Err(no_answer_in(limit));
            }
            match self.sleep(limit) {
                Ok(true) => {}
                // What was written before the end still counts.
                Ok(false) => break ready().map(|ready| if ready { Waited::Ready } else { Waited::Gone }),
                Err(error) => break Err(error),
            }
        };
        sleeps.store(0, Ordering::Relaxed);
        outcome
    }

    /// Spins for a while; whether it came to be `ready`.
    fn spin_until(&mut self, began: Instant, ready: &impl Fn() -> io::Result<bool>) -> io::Result<bool> {
        self.waits = self.waits.wrapping_add(1);
        let spin = if self.waits.is_multiple_of(WAITS_PER_PROBE) { SPIN } else { self.spin };
        while began.elapsed() < spin {
            for _ in 0..LOOKS_PER_CLOCK {
                if ready()? {
                    self.spin = SPIN;
                    return Ok(true);
                }
                hint::spin_loop();
            }
        }
        self.spin = spin / 2;
        Ok(false)
    }

    /// Sleeps until somebody rings (`true`), or the connection is at its end.
    fn sleep(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        if self.limit != limit {
            self.socket.set_read_timeout(limit)?;
            self.limit = limit;
        }
        match self.socket.raw().recv(&mut [MaybeUninit::uninit(); 64]) {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(e) => Err(in_words(e, || Ok(limit))),
        }
    }
}

impl Read for Shm {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.read_after(into, 1)
    }

    fn read_exact(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let wanted = into.len().min(WAKE_BYTES);
            match self.read_after(into, wanted)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => into = &mut into[count..],
            }
        }
        Ok(())
    }
}

impl Write for Shm {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        loop {
            let written = self.write_now(parts)?;
            if written > 0 {
                return Ok(written);
            }
            if self.wait_writable()? == Waited::Gone {
                return Err(ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for Shm {
    fn try_write_vectored(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
        self.write_now(parts)
    }

    fn is_closed_by_peer(&self) -> bool {
        loop {
            // Wake-ups that nobody needs any more stand before the end.
            match self.bell.socket.raw().recv_with_flags(&mut [MaybeUninit::uninit(); 64], libc::MSG_DONTWAIT)
            {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
    }

    fn wait_readable(&mut self) -> io::Result<()> {
        // At the end there is something to read as well: that it is the end.
        self.wait_readable(1, None).map(|_| ())
    }
}
