//! For how long shards that are away are waited for.

use std::time::{Duration, Instant};

/// Before the shards are asked again.
pub(super) const SHARD_PAUSE: Duration = Duration::from_millis(200);

/// For how long shards have prevented something: since the first failure behind the last progress. What was
/// done before, which may take long, is no absence.
#[derive(Debug)]
pub(super) struct ShardAbsence {
    limit: Duration,
    since: Option<Instant>,
    /// How many values or blobs had got through at the last failure.
    moved: usize,
}

impl ShardAbsence {
    pub(super) fn of_at_most(limit: Duration) -> Self {
        Self { limit, since: None, moved: 0 }
    }

    /// Whether to go on waiting after a failure, with so many values or blobs through by now.
    pub(super) fn is_short(&mut self, moved: usize, now: Instant) -> bool {
        if std::mem::replace(&mut self.moved, moved) != moved {
            self.since = None;
        }
        now.duration_since(*self.since.get_or_insert(now)) < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patience_with_a_shard_begins_at_the_first_failure_and_anew_after_progress() {
        let (limit, second) = (Duration::from_secs(20), Duration::from_secs(1));
        let (start, mut absence) = (Instant::now(), ShardAbsence::of_at_most(limit));
        let begun = start + 10 * limit;
        assert!(absence.is_short(0, begun), "the upload took long, and this is its first failure");
        assert!(absence.is_short(0, begun + limit - second));
        let again = begun + limit + second;
        assert!(absence.is_short(1, again), "a blob got through");
        assert!(!absence.is_short(1, again + limit));
    }
}
