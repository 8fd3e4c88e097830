//! Whether another process has the name of this engine: a copied state directory, or two that were given one
//! name.
//!
//! An engine that is started again takes the lease that it had before at once, without waiting for its end.
//! Two that live would take it from each other forever, and with it the jobs.

use std::time::Duration;

use syncline_scheduler::ids::EngineEpoch;
use tokio::time::Instant;
use tracing::warn;

use crate::store::{OwnLease, SeenLease};

/// What an engine knows of the lease that stands under its own name.
#[derive(Debug, Default)]
pub(super) struct NameWatch {
    /// The lease that another process took from this one.
    lost: Option<EngineEpoch>,
    /// The lease of that name at another address, and since when it has not been renewed.
    elsewhere: Option<(SeenLease, Instant)>,
    warned: bool,
}

impl NameWatch {
    /// This engine led with `epoch` until somebody else took the lease.
    pub(super) fn was_deposed(&mut self, epoch: EngineEpoch) {
        self.lost = Some(epoch);
    }

    /// Which lease of its own name the engine takes before that ends. An engine renews its lease three times
    /// while it lasts, so one that was not renewed for half of that time belongs to a process that is
    /// gone.
    pub(super) fn takes(&self, lease: Duration, now: Instant) -> OwnLease {
        match &self.elsewhere {
            _ if self.lost.is_some() => OwnLease::Nowhere,
            Some((_, since)) if now.saturating_duration_since(*since) > lease / 2 => OwnLease::Anywhere,
            _ => OwnLease::Here,
        }
    }

    /// Looks at the lease that stands in Redis, held under the name of this engine at that address, if it is.
    pub(super) fn look(
        &mut self,
        seen: SeenLease,
        own_name_at: Option<&str>,
        own_address: &str,
        now: Instant,
    ) {
        let Some(address) = own_name_at else {
            *self = Self::default();
            return;
        };
        // Nobody took it: this engine gave up by itself.
        self.lost.take_if(|lost| seen.epoch == lost.0);
        if self.lost.is_none() && address == own_address {
            self.elsewhere = None;
            return;
        }
        let renewed = match &self.elsewhere {
            Some((before, _)) if *before == seen => return,
            before => before.is_some(),
        };
        self.elsewhere = Some((seen, now));
        if (renewed || self.lost.is_some()) && !self.warned {
            self.warned = true;
            warn!(
                address,
                "another engine of the same name leads, this one stands by: a copied state directory, or one `--instance` for two"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn lease(epoch: u64, until_ms: u64) -> SeenLease {
        SeenLease { epoch, until_ms }
    }

    #[test]
    fn a_lease_of_the_own_name_elsewhere_is_taken_once_nobody_renews_it() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut watch = NameWatch::default();
        assert_eq!(watch.takes(LEASE, began), OwnLease::Here);
        for second in [1, 2, 3] {
            watch.look(lease(5, second * 1_000), Some("there:1"), "here:1", at(second * 1_000));
            let takes = watch.takes(LEASE, at(second * 1_000 + 1_100));
            assert_eq!(takes, OwnLease::Here, "renewed each second: {second}");
        }
        assert!(watch.warned);
        watch.look(lease(5, 3_000), Some("there:1"), "here:1", at(4_600));
        assert_eq!(watch.takes(LEASE, at(4_600)), OwnLease::Anywhere);
        watch.look(lease(6, 4_000), None, "here:1", at(4_700));
        assert_eq!(watch.takes(LEASE, at(9_000)), OwnLease::Here, "another name leads");
    }

    #[test]
    fn who_lost_the_lease_to_its_own_name_waits_for_its_end() {
        let now = Instant::now();
        let mut watch = NameWatch::default();
        watch.was_deposed(EngineEpoch(5));
        assert_eq!(watch.takes(LEASE, now), OwnLease::Nowhere, "before it has looked");
        watch.look(lease(6, 1_000), Some("0.0.0.0:1"), "0.0.0.0:1", now);
        let later = watch.takes(LEASE, now + LEASE);
        assert_eq!(later, OwnLease::Nowhere, "two that listen everywhere have one address");
        assert!(watch.warned);
        watch.look(lease(7, 1_000), None, "0.0.0.0:1", now);
        assert_eq!(watch.takes(LEASE, now), OwnLease::Here);

        let mut gave_up = NameWatch::default();
        gave_up.was_deposed(EngineEpoch(5));
        gave_up.look(lease(5, 1_000), Some("here:1"), "here:1", now);
        assert_eq!(gave_up.takes(LEASE, now), OwnLease::Here, "the lease is still its own");
    }
}
