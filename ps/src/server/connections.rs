//! All open connections of a shard: counted, and within reach of a stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::{MAX_GREETING, hello::Role, threads::lock};

use super::Shared;
use crate::transport::Socket;

/// Connections at the same time while there is place for one more that transfers tensors; each of these is a
/// thread.
pub(super) const MAX_CONNECTIONS: usize = 8192;
/// So many more are let in to say who they are: without the engine's orders a shard would be given up that is
/// only much in demand.
const CONTROL_PLACES: usize = 256;
/// Memory that all of them may share with callers, 1 GiB. Whoever comes later is served over its socket.
const MAX_SHARED_BYTES: usize = 1 << 30;
/// Pause between two looks at connections that are to end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// All open connections.
#[derive(Default)]
pub(super) struct Connections {
    threads: Mutex<Threads>,
    /// Connections that were handed to the control runtime.
    controls: AtomicUsize,
    /// Those that were accepted so far, on all listeners.
    accepted: AtomicU64,
    /// Bytes of memory shared with callers.
    shared_bytes: AtomicUsize,
}

/// Connections with a thread, by number and so by age.
#[derive(Default)]
struct Threads {
    /// So that a stop can end them.
    sockets: BTreeMap<u64, Socket>,
    /// Those among them that have not greeted.
    greeting: BTreeSet<u64>,
}

impl Connections {
    /// Ends every connection that has a thread.
    pub(super) fn shut_down(&self) {
        self.threads().sockets.values().for_each(Socket::shut_down);
    }

    /// Waits until no connection has a thread any more; whether it came to that.
    pub(super) fn wait_until_closed(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.threads().sockets.is_empty() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        lock(&self.threads)
    }

    /// Those that are open now, greeted or not.
    pub(super) fn open(&self) -> usize {
        self.threads().sockets.len() + self.controls.load(Ordering::Relaxed)
    }

    /// Adds a connection. Where too many have not greeted, the oldest of those is closed: strangers cannot
    /// use up the connections of everybody else.
    fn insert(&self, socket: &Socket) -> u64 {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut threads = self.threads();
        threads.sockets.insert(number, socket.clone());
        threads.greeting.insert(number);
        if threads.greeting.len() > MAX_GREETING
            && let Some(slowest) = threads.greeting.pop_first()
        {
            threads.sockets[&slowest].shut_down();
        }
        number
    }

    /// Counts memory that is to be shared with a caller, unless it were too much.
    pub(super) fn count_shared(&self, bytes: usize) -> Option<CountedMemory<'_>> {
        let before = self.shared_bytes.fetch_add(bytes, Ordering::Relaxed);
        let counted = CountedMemory { connections: self, bytes };
        (before + bytes <= MAX_SHARED_BYTES).then_some(counted)
    }

    /// Connections that came so far.
    #[cfg(test)]
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Bytes that are counted now.
    #[cfg(test)]
    pub(super) fn shared_bytes(&self) -> usize {
        self.shared_bytes.load(Ordering::Relaxed)
    }

    fn mark_greeted(&self, number: u64) {
        self.threads().greeting.remove(&number);
    }

    fn remove(&self, number: u64) {
        let mut threads = self.threads();
        threads.greeting.remove(&number);
        threads.sockets.remove(&number);
    }
}

/// Whether one more may be let in beside `open` others; `role`: what it has greeted as, if it has.
pub(super) fn has_place(open: usize, role: Option<Role>) -> bool {
    let places = if role == Some(Role::Tensor) { MAX_CONNECTIONS } else { MAX_CONNECTIONS + CONTROL_PLACES };
    open < places
}

/// Removes a connection that has a thread from [`Connections`] when dropped.
pub(super) struct ConnectionGuard {
    pub shared: Arc<Shared>,
    number: u64,
}

impl ConnectionGuard {
    pub(super) fn new(shared: Arc<Shared>, socket: &Socket) -> Self {
        let number = shared.connections.insert(socket);
        Self { shared, number }
    }

    pub(super) fn mark_greeted(&self) {
        self.shared.connections.mark_greeted(self.number);
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.shared.connections.remove(self.number);
    }
}

/// Counts a connection that was handed to the control runtime, until it is dropped.
pub(super) struct CountedControl(Arc<Shared>);

impl CountedControl {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.connections.controls.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for CountedControl {
    fn drop(&mut self) {
        self.0.connections.controls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts memory that is shared with a caller, until it is dropped.
pub(super) struct CountedMemory<'a> {
    connections: &'a Connections,
    bytes: usize,
}

impl Drop for CountedMemory<'_> {
    fn drop(&mut self) {
        self.connections.shared_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_finds_a_place_where_callers_with_tensors_find_none_table() {
        let (last, all) = (MAX_CONNECTIONS - 1, MAX_CONNECTIONS + CONTROL_PLACES);
        let roles = [None, Some(Role::Control), Some(Role::Tensor)];
        #[rustfmt::skip]
        let cases = [
            // open, not greeted yet, control, tensors
            (last,            [true,  true,  true]),
            (MAX_CONNECTIONS, [true,  true,  false]),
            (all - 1,         [true,  true,  false]),
            (all,             [false, false, false]),
        ];
        for (open, wanted) in cases {
            assert_eq!(roles.map(|role| has_place(open, role)), wanted, "{open}");
        }
    }

    #[test]
    fn a_thousand_workers_that_come_back_at_once_do_not_drive_each_other_out() {
        let connections = Connections::default();
        let [(first, _), (next, _)] = [Socket::with_peer(), Socket::with_peer()];
        connections.insert(&first);
        let more_come = |count| (0..count).for_each(|_| _ = connections.insert(&next));
        more_come(999);
        assert!(!first.is_shut_down());
        more_come(MAX_GREETING - 999);
        assert!(first.is_shut_down() && !next.is_shut_down());
    }

    #[test]
    fn memory_of_all_connections_together_is_bounded_and_comes_back() {
        let connections = Connections::default();
        let half = connections.count_shared(MAX_SHARED_BYTES / 2).unwrap();
        let rest = connections.count_shared(MAX_SHARED_BYTES / 2).unwrap();
        assert!(connections.count_shared(1).is_none());
        drop(half);
        assert!(connections.count_shared(MAX_SHARED_BYTES / 2 + 1).is_none());
        assert!(connections.count_shared(MAX_SHARED_BYTES / 2).is_some());
        drop(rest);
    }
}
