//! The leanest loop that does the work of a push: bytes to another thread, an optimizer step on each chunk,
//! an answer. No headers, no locks that anybody waits for, no accounts of what was applied: the limit for
//! whoever needs these.

use std::{
    hint,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use socket2::SockRef;
use syncline_ps::{
    optim::{self, OptimizerState},
    shard::CHUNK_ELEMENTS,
    transport::Transport,
};
use syncline_rpc::threads::lock;

use super::training_step::{LEARNING_RATE, RULE};

const BUFFER_BYTES: usize = 4 << 20;
/// Chunks of the ring: 4 MiB, as many as Syncline's own ring holds.
const RING_CHUNKS: usize = 16;
/// Looks at a counter before the thread lets others run.
const SPINS: u32 = 2_000;

/// The pushing side; the other one is a thread that ends with it.
pub(super) enum Lean {
    Tcp(TcpStream),
    Unix(UnixStream),
    Ring(Arc<Ring>),
}

impl Lean {
    /// A peer that holds so many parameters.
    pub(super) fn start(transport: Transport, elements: usize) -> io::Result<Self> {
        match transport {
            Transport::Tcp => {
                let (stream, peer) = tcp_pair()?;
                thread::spawn(move || serve(peer, elements));
                Ok(Self::Tcp(stream))
            }
            Transport::Unix => {
                let (stream, peer) = UnixStream::pair()?;
                SockRef::from(&stream).set_send_buffer_size(BUFFER_BYTES)?;
                SockRef::from(&peer).set_recv_buffer_size(BUFFER_BYTES)?;
                thread::spawn(move || serve(peer, elements));
                Ok(Self::Unix(stream))
            }
            Transport::Shm => {
                let ring = Arc::new(Ring::new());
                let peer = Arc::clone(&ring);
                thread::spawn(move || peer.serve(elements));
                Ok(Self::Ring(ring))
            }
        }
    }

    /// Returns when everything has been applied.
    pub(super) fn push(&mut self, gradient: &[f32]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => push_bytes(stream, gradient),
            Self::Unix(stream) => push_bytes(stream, gradient),
            Self::Ring(ring) => {
                ring.push(gradient);
                Ok(())
            }
        }
    }
}

impl Drop for Lean {
    fn drop(&mut self) {
        // The others see that their socket is closed.
        if let Self::Ring(ring) = self {
            ring.closed.store(true, Ordering::Release);
        }
    }
}

/// Both ends of one connection, with buffers as large as those of a shard.
pub(super) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // What is accepted takes over the size of the buffer.
    SockRef::from(&listener).set_recv_buffer_size(BUFFER_BYTES)?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    for end in [&stream, &peer] {
        end.set_nodelay(true)?;
        SockRef::from(end).set_send_buffer_size(BUFFER_BYTES)?;
        SockRef::from(end).set_recv_buffer_size(BUFFER_BYTES)?;
    }
    Ok((stream, peer))
}

fn push_bytes(stream: &mut (impl Read + Write), gradient: &[f32]) -> io::Result<()> {
    stream.write_all(bytemuck::cast_slice(gradient))?;
    stream.read_exact(&mut [0])
}

/// The peer's side of a socket, until its only caller hangs up.
fn serve(mut stream: impl Read + Write, elements: usize) {
    let mut peer = Peer::new(elements);
    let mut buffer = vec![0.0; CHUNK_ELEMENTS];
    loop {
        for start in (0..elements).step_by(CHUNK_ELEMENTS) {
            let gradient = &mut buffer[..CHUNK_ELEMENTS.min(elements - start)];
            if stream.read_exact(bytemuck::cast_slice_mut(gradient)).is_err() {
                return;
            }
            peer.apply(start, gradient);
        }
        if stream.write_all(&[1]).is_err() {
            return;
        }
    }
}

/// What is at the other end.
struct Peer {
    values: Vec<f32>,
    state: OptimizerState,
}

impl Peer {
    fn new(elements: usize) -> Self {
        Self { values: vec![0.0; elements], state: OptimizerState::new(&RULE, 0) }
    }

    fn apply(&mut self, start: usize, gradient: &[f32]) {
        let values = &mut self.values[start..start + gradient.len()];
        optim::step(&RULE, values, &mut self.state, gradient, LEARNING_RATE, 1.0);
    }
}

/// Chunks in memory that both sides see. Each has a lock that nobody ever waits for: the counters say whose
/// it is.
pub(super) struct Ring {
    chunks: Vec<Mutex<Vec<f32>>>,
    written: AtomicU64,
    applied: AtomicU64,
    closed: AtomicBool,
}

impl Ring {
    fn new() -> Self {
        let chunks = (0..RING_CHUNKS).map(|_| Mutex::new(Vec::with_capacity(CHUNK_ELEMENTS))).collect();
        Self {
            chunks,
            written: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn push(&self, gradient: &[f32]) {
        let mut written = self.written.load(Ordering::Relaxed);
        for part in gradient.chunks(CHUNK_ELEMENTS) {
            self.wait(|| written - self.applied.load(Ordering::Acquire) < RING_CHUNKS as u64);
            let mut chunk = self.lock(written);
            chunk.clear();
            chunk.extend_from_slice(part);
            drop(chunk);
            written += 1;
            self.written.store(written, Ordering::Release);
        }
        self.wait(|| self.applied.load(Ordering::Acquire) == written);
    }

    fn serve(&self, elements: usize) {
        let mut peer = Peer::new(elements);
        let mut applied = 0;
        loop {
            for start in (0..elements).step_by(CHUNK_ELEMENTS) {
                if !self.wait(|| self.written.load(Ordering::Acquire) > applied) {
                    return;
                }
                peer.apply(start, &self.lock(applied));
                applied += 1;
                self.applied.store(applied, Ordering::Release);
            }
        }
    }

    fn lock(&self, number: u64) -> std::sync::MutexGuard<'_, Vec<f32>> {
        let chunk = &self.chunks[number as usize % RING_CHUNKS];
        lock(chunk)
    }

    /// Waits until `holds`; false if the ring was closed before.
    fn wait(&self, holds: impl Fn() -> bool) -> bool {
        let mut looks = 0;
        while !holds() {
            if self.closed.load(Ordering::Acquire) {
                return false;
            }
            looks += 1;
            match looks % SPINS {
                0 => thread::yield_now(),
                _ => hint::spin_loop(),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lean_loop_returns_from_pushes_of_several_chunks_and_a_part_of_one() {
        let gradient = vec![1.0; 20 * CHUNK_ELEMENTS + 3];
        for transport in [Transport::Tcp, Transport::Unix, Transport::Shm] {
            let mut lean = Lean::start(transport, gradient.len()).unwrap();
            for _ in 0..3 {
                lean.push(&gradient).unwrap();
            }
        }
    }
}
