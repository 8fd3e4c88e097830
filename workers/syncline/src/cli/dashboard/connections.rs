//! The open connections: where there are too many, the one that has waited longest for a request of its other
//! side ends for a new one, so that those who say nothing keep nobody out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use syncline_rpc::threads::lock;
use tokio::sync::oneshot;

/// Most at a time; a browser opens up to six.
const MOST_CONNECTIONS: usize = 64;

#[derive(Default)]
pub(super) struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// Counts what happens, in place of a clock.
    turn: u64,
    /// By the turn in which they came.
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    /// The turn since which it waits for a request; `None` while one is answered.
    idle_since: Option<u64>,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

/// One of them, until it is dropped.
pub(super) struct Seat {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Adds one, and tells when it has to end. `None`: all others are just being answered.
    pub(super) fn enter(self: &Arc<Self>) -> Option<(Seat, oneshot::Receiver<()>)> {
        let mut open = self.open();
        if open.connections.len() >= MOST_CONNECTIONS {
            let idle = open.connections.iter().filter_map(|(&number, it)| Some((it.idle_since?, number)));
            let (_, longest) = idle.min()?;
            open.connections.remove(&longest);
        }
        let (end, ended) = oneshot::channel();
        let number = open.next_turn();
        open.connections.insert(number, Connection { idle_since: Some(number), _end: end });
        Some((Seat { connections: self.clone(), number }, ended))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        lock(&self.0)
    }
}

impl Open {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }
}

impl Seat {
    /// Gives an answer, during which the connection is not idle.
    pub(super) async fn answering<T>(&self, answer: impl Future<Output = T>) -> T {
        self.set_idle(false);
        let answer = answer.await;
        self.set_idle(true);
        answer
    }

    fn set_idle(&self, is_idle: bool) {
        let mut open = self.connections.open();
        let turn = open.next_turn();
        if let Some(own) = open.connections.get_mut(&self.number) {
            own.idle_since = is_idle.then_some(turn);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.open().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_to_end(ended: &mut oneshot::Receiver<()>) -> bool {
        ended.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[tokio::test]
    async fn the_one_that_has_said_nothing_for_longest_ends_for_a_new_one() {
        let connections = Arc::new(Connections::default());
        let mut seats: Vec<_> = (0..MOST_CONNECTIONS).map(|_| connections.enter().unwrap()).collect();
        // The oldest has just asked for something.
        seats[0].0.answering(async {}).await;
        let _new = connections.enter().unwrap();
        let ended: Vec<bool> = seats.iter_mut().map(|(_, ended)| has_to_end(ended)).collect();
        assert_eq!(ended.iter().position(|ended| *ended), Some(1));
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
        drop(seats.pop());
        assert!(!has_to_end(&mut seats[2].1));
        let _another = connections.enter().unwrap();
        assert!(!has_to_end(&mut seats[2].1));
    }

    #[tokio::test]
    async fn nobody_ends_while_an_answer_comes() {
        let connections = Arc::new(Connections::default());
        let seats: Vec<_> = (0..MOST_CONNECTIONS).map(|_| connections.enter().unwrap()).collect();
        seats.iter().for_each(|(seat, _)| seat.set_idle(false));
        assert!(connections.enter().is_none());
        seats[7].0.set_idle(true);
        assert!(connections.enter().is_some());
    }
}
