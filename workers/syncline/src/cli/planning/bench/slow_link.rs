//! A link that carries so many bits per second each way, between a worker and a shard on this machine: a
//! proxy that waits.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Carried at once: 1 ms at 130 Mbit/s.
const BURST_BYTES: usize = 16 << 10;

/// The way to one shard. It ends with the connections that go through it.
pub(super) struct SlowLink {
    pub address: SocketAddr,
    /// Bytes that went to the shard.
    up_bytes: Arc<AtomicU64>,
}

impl SlowLink {
    /// A way to `target`; without a limit as fast as it goes.
    pub(super) fn start(target: SocketAddr, mbit: Option<u32>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let up_bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&up_bytes);
        thread::spawn(move || {
            // One that cannot be made is noticed by who connected.
            for client in listener.incoming().flatten() {
                let _ = carry(&client, target, mbit, &counted);
            }
        });
        Ok(Self { address, up_bytes })
    }

    /// Bytes that have gone to the shard so far.
    pub(super) fn up_bytes(&self) -> u64 {
        self.up_bytes.load(Ordering::Relaxed)
    }
}

fn carry(
    client: &TcpStream,
    target: SocketAddr,
    mbit: Option<u32>,
    up_bytes: &Arc<AtomicU64>,
) -> io::Result<()> {
    let shard = TcpStream::connect(target)?;
    for end in [client, &shard] {
        end.set_nodelay(true)?;
    }
    let (from, to, counted) = (client.try_clone()?, shard.try_clone()?, Arc::clone(up_bytes));
    thread::spawn(move || pass(from, to, mbit, &counted));
    let (from, to) = (shard, client.try_clone()?);
    thread::spawn(move || pass(from, to, mbit, &AtomicU64::new(0)));
    Ok(())
}

/// Carries one way, until an end is gone.
fn pass(mut from: TcpStream, mut to: TcpStream, mbit: Option<u32>, counted: &AtomicU64) {
    let mut buffer = vec![0; BURST_BYTES];
    let mut free_at = Instant::now();
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if let Some(mbit) = mbit {
            let takes = Duration::from_secs_f64(bytes as f64 * 8.0 / (f64::from(mbit) * 1e6));
            free_at = free_at.max(Instant::now()) + takes;
            thread::sleep(free_at.saturating_duration_since(Instant::now()));
        }
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
        counted.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    for end in [from, to] {
        // It may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_carries_every_byte_and_takes_its_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = SlowLink::start(listener.local_addr().unwrap(), Some(80)).unwrap();
        let mut client = TcpStream::connect(link.address).unwrap();
        let (mut shard, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..200_000).map(|i| i as u8).collect();
        let since = Instant::now();
        let copy = sent.clone();
        let sender = thread::spawn(move || client.write_all(&copy).map(|()| client));
        let mut got = vec![0; sent.len()];
        shard.read_exact(&mut got).unwrap();
        // 10 bytes a microsecond.
        assert!(since.elapsed() >= Duration::from_millis(20), "{:?}", since.elapsed());
        assert!(got == sent);
        drop(sender.join().unwrap().unwrap());
        assert_eq!(shard.read(&mut got).unwrap(), 0, "the end comes through, too");
        assert_eq!(link.up_bytes(), 200_000);
    }
}
