//! Says in the log that something is away: soon, now and then as long as it is, and when it is back.

use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

/// What is over sooner is not worth a word.
const SOON: Duration = Duration::from_secs(2);
/// A trouble that lasts is said again after this long.
const AGAIN: Duration = Duration::from_secs(60);

/// How long something has been away, and when that was said last.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<Instant>,
    said: Option<Instant>,
}

impl Outage {
    /// It is away, or still is.
    pub fn goes_on(&mut self, error: &dyn std::fmt::Display, hint: &str) {
        match self.is_to_be_said(Instant::now()) {
            true => warn!(%error, hint, "waiting"),
            false => debug!(%error, "still waiting"),
        }
    }

    fn is_to_be_said(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = self.said.map_or(since + SOON, |said| said + AGAIN);
        if now >= due {
            self.said = Some(now);
        }
        now >= due
    }

    /// It is there.
    pub fn is_over(&mut self, what: &str) {
        let Self { since, said } = std::mem::take(self);
        if let (Some(since), Some(_)) = (since, said) {
            info!(waited_s = since.elapsed().as_secs(), "{what} again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_said_soon_and_once_a_minute() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let said = (0..200).filter(|s| outage.is_to_be_said(start + Duration::from_secs(*s)));
        assert_eq!(said.collect::<Vec<_>>(), [2, 62, 122, 182]);
    }

    #[test]
    fn what_passes_at_once_is_not_said() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        for second in 0..100 {
            assert!(!outage.is_to_be_said(start + Duration::from_secs(second)));
            outage.is_over("the engine is there");
        }
    }
}
