use std::{
    io::{ErrorKind, IoSlice, Read, Write},
    os::fd::OwnedFd,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::transport::{Channel, Duplex, Socket, Transport};

/// The smallest ring.
const RING: usize = 512 << 10;

/// Both ends of a connection, the client's first.
fn pair() -> (Shm, Shm) {
    let (memory, _) = Memory::create(1).unwrap();
    let (a, b) = sockets();
    let end = |socket, end| Shm::new(socket, memory.clone(), end).unwrap();
    (end(a, MemorySide::Client), end(b, MemorySide::Shard))
}

fn sockets() -> (Socket, Socket) {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket =
        |stream: std::os::unix::net::UnixStream| Socket::new(OwnedFd::from(stream).into(), Transport::Unix);
    (socket(a), socket(b))
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn memory_travels_over_the_socket_and_carries_bytes_both_ways() {
    let (a, b) = sockets();
    let (mut client, mut shard) = (Channel::Socket(a), Channel::Socket(b));
    let (memory, descriptor) = Memory::create(3 << 20).unwrap();
    shard.upgrade_server(memory, &descriptor).unwrap();
    client.upgrade_client().unwrap();
    assert_eq!((client.transport(), shard.transport()), (Transport::Shm, Transport::Shm));
    client.write_all(b"question").unwrap();
    let mut got = [0; 8];
    shard.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"question");
    shard.write_all(b"answered").unwrap();
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"answered");
}

#[test]
fn a_socket_without_memory_on_it_hands_over_nothing() {
    let (a, mut b) = sockets();
    b.write_all(b"m").unwrap();
    assert_eq!(Channel::Socket(a).upgrade_client().unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn an_end_that_dies_leaves_what_it_has_written_and_then_the_end() {
    let (mut client, mut shard) = pair();
    client.write_all(b"last words").unwrap();
    assert!(!shard.is_closed_by_peer());
    drop(client);
    assert!(shard.is_closed_by_peer());
    let mut got = Vec::new();
    shard.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last words");
    let mut room = vec![0; RING];
    shard.write_all(&room).unwrap();
    assert_eq!(shard.write(&room).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(shard.read(&mut room).unwrap(), 0);
    shard.wait_readable().unwrap();
}

#[test]
fn a_wake_up_that_nobody_needed_does_not_hide_the_end() {
    let (client, mut shard) = pair();
    client.socket().raw().send(&[0; 100]).unwrap();
    assert!(!shard.is_closed_by_peer());
    client.socket().raw().send(&[0; 100]).unwrap();
    drop(client);
    assert!(shard.is_closed_by_peer());
    assert_eq!(shard.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_shut_down_from_another_thread_ends_both_kinds_of_waiting_at_once() {
    for writes in [false, true] {
        let (mut client, _shard) = pair();
        let socket = client.socket().clone();
        let blocked = thread::spawn(move || {
            if writes {
                client.write_all(&vec![0; 2 * RING]).err()
            } else {
                client.read_exact(&mut [0]).err()
            }
        });
        socket.shut_down();
        assert!(blocked.join().unwrap().is_some());
    }
}

#[test]
fn a_connection_that_was_shut_down_takes_and_gives_nothing_though_there_is_room() {
    let (mut client, mut shard) = pair();
    shard.write_all(b"too late").unwrap();
    client.socket().shut_down();
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(
        client.try_write_vectored(&mut [IoSlice::new(b"x")]).unwrap_err().kind(),
        ErrorKind::BrokenPipe
    );
}

#[test]
fn an_end_that_stops_is_given_up_after_the_limit_though_it_rings_without_end() {
    let (mut client, shard) = pair();
    let limit = Duration::from_millis(100);
    client.set_read_timeout(Some(limit));
    client.set_write_timeout(Some(limit));
    let ringing = thread::spawn(move || {
        while shard.socket().raw().send(&[0]).is_ok() {
            thread::yield_now();
        }
    });
    let since = Instant::now();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    client.write_all(&vec![0; RING]).unwrap();
    assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(
        since.elapsed() >= 2 * limit && since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    drop(client);
    ringing.join().unwrap();
}

#[test]
fn a_reader_that_takes_a_little_at_a_time_lets_the_writer_go_on() {
    let (mut client, mut shard) = pair();
    let sent = pattern(5 * RING + 77);
    let want = sent.clone();
    let writing = thread::spawn(move || client.write_all(&sent).map(|()| client));
    let mut got = vec![0; want.len()];
    for part in got.chunks_mut(1000) {
        shard.read_exact(part).unwrap();
    }
    assert!(got == want);
    writing.join().unwrap().unwrap();
}

#[test]
fn a_reader_that_needs_more_than_is_there_gets_all_of_it_or_the_end() {
    let (mut client, mut shard) = pair();
    let sent = pattern(RING);
    let want = sent.clone();
    let reading = thread::spawn(move || {
        let mut got = vec![0; RING];
        shard.read_exact(&mut got).map(|()| (got, shard))
    });
    for part in sent.chunks(10_000) {
        client.write_all(part).unwrap();
    }
    let (got, mut shard) = reading.join().unwrap().unwrap();
    assert!(got == want);
    let reading = thread::spawn(move || shard.read_exact(&mut [0; 100]));
    client.write_all(&[1; 99]).unwrap();
    drop(client);
    assert_eq!(reading.join().unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn memory_of_another_size_or_that_can_shrink_is_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len((4096 + 2 * RING) as u64).unwrap();
    assert!(Memory::open(file.into()).is_err(), "a file has no seals");
    let (memory, descriptor) = Memory::create(u64::MAX).unwrap();
    assert_eq!(memory.bytes(), 4096 + 2 * (4 << 20), "no wish makes it larger");
    assert!(std::fs::File::from(descriptor.try_clone().unwrap()).set_len(0).is_err());
    assert_eq!(Memory::open(descriptor).unwrap().bytes(), memory.bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_cut(
        bytes in 0usize..3 * RING,
        writes in prop::collection::vec(1usize..200_000, 1..6),
        reads in prop::collection::vec(1usize..200_000, 1..6),
    ) {
        let (mut client, mut shard) = pair();
        let sent = pattern(bytes);
        let got = thread::scope(|scope| {
            let (sent, writes) = (&sent, &writes);
            scope.spawn(move || {
                let mut rest = &sent[..];
                for length in writes.iter().cycle() {
                    let now = &rest[..rest.len().min(*length)];
                    let (a, b) = now.split_at(now.len() / 3);
                    let count = client.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]).unwrap();
                    rest = &rest[count..];
                    if rest.is_empty() {
                        return;
                    }
                }
            });
            let mut got = Vec::new();
            for length in reads.iter().cycle() {
                let mut part = vec![0; *length];
                match shard.read(&mut part).unwrap() {
                    0 => break,
                    count => got.extend_from_slice(&part[..count]),
                }
            }
            got
        });
        prop_assert!(got == sent);
    }

    #[test]
    fn whatever_a_peer_writes_over_the_indices_is_an_error_or_bytes_and_nothing_else(
        head in prop_oneof![any::<u64>(), 0u64..4 * RING as u64],
        tail in prop_oneof![any::<u64>(), 0u64..4 * RING as u64],
        sleeps in any::<u32>(),
    ) {
        let (memory, _) = Memory::create(1).unwrap();
        let (a, _peer) = sockets();
        let mut shard = Shm::new(a, memory.clone(), MemorySide::Shard).unwrap();
        shard.set_read_timeout(Some(Duration::from_millis(1)));
        shard.set_write_timeout(Some(Duration::from_millis(1)));
        for end in [MemorySide::Client, MemorySide::Shard] {
            let indices = memory.indices(end);
            indices.head.0.store(head, Ordering::SeqCst);
            indices.tail.0.store(tail, Ordering::SeqCst);
            indices.reader_sleeps.0.store(sleeps, Ordering::SeqCst);
            indices.writer_sleeps.0.store(sleeps, Ordering::SeqCst);
        }
        let mut into = vec![0; RING + 1];
        match shard.read(&mut into) {
            Ok(count) => prop_assert!(count as u64 == head && count <= RING),
            Err(e) if e.kind() == ErrorKind::TimedOut => prop_assert_eq!(head, 0),
            Err(e) => prop_assert!(head > RING as u64 && e.to_string().contains("[E438]"), "{}", e),
        }
        let written = shard.write(&into);
        prop_assert_eq!(written.is_ok(), tail == 0, "nothing was written that could have been read");
    }
}
