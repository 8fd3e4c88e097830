//! Whether the engine that leads belongs to another cluster: it has another token, or another number of
//! shards.
//!
//! One that takes over from such an engine has nothing of its jobs, and would end them.

use crate::store::SeenLease;

/// What an engine that stands by knows of the cluster that it would take over.
#[derive(Debug, Default)]
pub(super) struct ClusterWatch {
    /// The lease of an engine of another cluster, as it was seen last.
    seen: Option<SeenLease>,
    /// Whether that engine has renewed it since: the lease of one that is gone only has to end.
    lives: bool,
}

impl ClusterWatch {
    /// Looks at the lease that stands in Redis. `cluster` of an earlier release is empty, and taken for the
    /// own one.
    pub(super) fn look(&mut self, now: SeenLease, cluster: &str, own: &str) {
        if cluster.is_empty() || cluster == own {
            *self = Self::default();
            return;
        }
        self.lives |= self.seen.is_some_and(|seen| seen.is_before(&now));
        self.seen = Some(now);
    }

    /// Whether another cluster uses this Redis database. True from when it was seen alive, even when its
    /// engine is away.
    pub(super) fn is_of_others(&self) -> bool {
        self.lives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(until_ms: u64) -> SeenLease {
        SeenLease { epoch: 5, until_ms }
    }

    #[test]
    fn a_database_is_of_others_once_their_engine_was_seen_alive() {
        let mut watch = ClusterWatch::default();
        for _ in 0..3 {
            watch.look(lease(1_000), "theirs/2", "ours/2");
            assert!(!watch.is_of_others(), "it may be gone");
        }
        watch.look(lease(2_000), "theirs/2", "ours/2");
        assert!(watch.is_of_others());
        watch.look(lease(2_000), "theirs/2", "ours/2");
        assert!(watch.is_of_others(), "a pause of theirs makes it none of ours");
        watch.look(lease(3_000), "ours/2", "ours/2");
        assert!(!watch.is_of_others(), "somebody of ours leads");
        for until_ms in [4_000, 5_000] {
            watch.look(lease(until_ms), "", "ours/2");
        }
        assert!(!watch.is_of_others(), "an earlier release does not say");
    }
}
