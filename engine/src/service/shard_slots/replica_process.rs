//! One process of a shard, as it has announced itself.

use std::time::Instant;

use syncline_rpc::{ReplicaRole, ShardHello};

use super::{SILENCE_SHOWN_AFTER, STANDBY_GONE_AFTER, Unanswered, UnansweredOrders};

/// One process. `C` is how it is reached.
#[derive(Debug, Clone)]
pub(in crate::service) struct ReplicaProcess<C> {
    pub hello: ShardHello,
    pub term: u64,
    pub seen: Instant,
    pub unanswered: UnansweredOrders,
    /// The term under which this standby was told to serve: it may do so, or begin to later, without that
    /// being heard.
    pub offered: Option<u64>,
    pub client: C,
}

impl<C> ReplicaProcess<C> {
    pub(super) fn is(&self, hello: &ShardHello) -> bool {
        (self.hello.boot, &self.hello.address) == (hello.boot, &hello.address)
    }

    /// Takes note of what this standby says. What it held before it was told to follow under this term, it
    /// drops: until it says that it does, it has nothing of what the primary has.
    pub(super) fn update(&mut self, hello: &ShardHello, now: Instant) {
        (self.hello, self.seen) = (hello.clone(), now);
        if !self.follows() {
            (self.hello.jobs, self.hello.mirrored) = (0, false);
        }
    }

    /// Whether this standby has said that it follows under its present term.
    pub(in crate::service) fn follows(&self) -> bool {
        self.hello.role == Some(ReplicaRole::Standby { term: self.term })
    }

    /// Another process serves, of which this standby has nothing: it is told to drop what it has.
    pub(super) fn begin_anew(&mut self, term: u64) {
        (self.term, self.offered) = (term, None);
        (self.hello.jobs, self.hello.mirrored) = (0, false);
    }

    /// Whether it has said nothing for so long that people are told.
    pub(in crate::service) fn is_silent(&self) -> bool {
        self.seen.elapsed() > SILENCE_SHOWN_AFTER
    }

    /// That it has answered no order for so long that people are told.
    pub(in crate::service) fn unanswered_shown(&self) -> Option<&Unanswered> {
        self.unanswered.note().filter(|order| order.since.elapsed() > SILENCE_SHOWN_AFTER)
    }

    /// Whether a primary is to go on without this standby.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        now.duration_since(self.seen) > STANDBY_GONE_AFTER
    }

    /// Whether it could serve.
    pub(super) fn is_ready(&self) -> bool {
        self.hello.jobs > 0 || self.hello.mirrored
    }

    /// Whether this standby has all jobs of the process that serves.
    pub(super) fn could_replace(&self, primary: &Self) -> bool {
        self.is_ready() && self.hello.jobs >= primary.hello.jobs
    }

    /// Whether this standby has at least what a process has that has just come.
    pub(super) fn has_what(&self, fresh: &ShardHello) -> bool {
        self.is_ready() && self.hello.jobs >= fresh.jobs && (self.hello.jobs > 0 || fresh.set_aside == 0)
    }
}
