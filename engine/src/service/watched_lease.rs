//! The lease of the engine that leads, as one sees it that stands by.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::{cluster_watch::ClusterWatch, leadership::LEASE_DURATION, name_watch::NameWatch};
use crate::store::SeenLease;

/// How long the lease is left to the engine that had it where Redis has gone back to before that: it knows
/// what was lost since, and no other does. It renews it each second, and may first have to connect again.
const LOSS_PATIENCE: Duration = Duration::from_secs(9);

/// The lease of the engine that leads, as one sees it that stands by.
#[derive(Default)]
pub(super) struct WatchedLease {
    last: SeenLease,
    /// Since when Redis shows one from before that; the time in which it could not be asked is left out.
    lost_since: Option<Instant>,
    /// Since when it cannot be asked.
    away_since: Option<Instant>,
    /// Until when the lease is left to who had it before Redis was away.
    left_until: Option<Instant>,
    /// Whether the engine that leads has the name of this one.
    pub name: NameWatch,
    /// Whether it belongs to another cluster.
    pub cluster: ClusterWatch,
}

impl WatchedLease {
    /// What Redis must not be behind of for the lease to be free.
    pub(super) fn that_counts(&self) -> SeenLease {
        match self.lost_since {
            Some(since) if self.away_since.is_none() && since.elapsed() > LOSS_PATIENCE => {
                SeenLease::default()
            }
            _ => self.last,
        }
    }

    /// Whether another engine had the lease before Redis was away, and may not have come to renew it yet.
    /// Redis may have lost its last commits without a renewal, which nobody but that engine can tell; it
    /// asks several times a second.
    pub(super) fn is_left_to_another(&self) -> bool {
        let is_back = self.away_since.is_some() && self.last != SeenLease::default();
        is_back || self.left_until.is_some_and(|until| Instant::now() < until)
    }

    /// Redis cannot be asked: the engine that leads cannot renew its lease there, either.
    pub(super) fn cannot_look(&mut self) {
        self.away_since.get_or_insert_with(Instant::now);
    }

    /// Takes note of the lease that Redis shows now.
    pub(super) fn look(&mut self, now: SeenLease) {
        if let Some(away) = self.away_since.take() {
            self.left_until = (self.last != SeenLease::default()).then(|| Instant::now() + LEASE_DURATION);
            if let Some(lost) = &mut self.lost_since {
                *lost += away.max(*lost).elapsed();
            }
        } else if self.last.is_before(&now) {
            self.left_until = None;
        }
        if !now.is_before(&self.last) {
            (self.last, self.lost_since) = (now, None);
        } else if self.lost_since.is_none() {
            warn!(
                "Redis has gone back to before the engine that leads renewed its lease: it is left to that one for a while"
            );
            self.lost_since = Some(Instant::now());
        }
    }
}
