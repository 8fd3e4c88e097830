//! All children of `up`, and the order in which they stop.

use tokio::sync::mpsc;

use super::program::{Event, Kept, Program};

/// Who stops when: first those who still need the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Worker,
    Engine,
    Shard,
}

/// The children that were started.
pub(super) struct Crew {
    events: mpsc::UnboundedSender<Event>,
    members: Vec<(Rank, Kept)>,
}

impl Crew {
    pub(super) fn new(events: mpsc::UnboundedSender<Event>) -> Self {
        Self { events, members: Vec::new() }
    }

    pub(super) fn start(&mut self, rank: Rank, program: Program) {
        self.members.push((rank, Kept::start(program, self.events.clone())));
    }

    /// Workers say goodbye while engine and shards are there. Shards come last: they keep the jobs they hold for the
    /// next start, and an engine that still ran would take them for lost meanwhile.
    pub(super) async fn stop(mut self) {
        for rank in [Rank::Worker, Rank::Engine, Rank::Shard] {
            let (these, others): (Vec<_>, Vec<_>) = self.members.into_iter().partition(|(r, _)| *r == rank);
            self.members = others;
            these.iter().for_each(|(_, kept)| kept.tell());
            for (_, kept) in these {
                kept.ended().await;
            }
        }
    }
}
