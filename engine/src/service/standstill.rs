//! Time in which nothing could be decided, because Redis took no writes or this process was not awake: it counts for no limit of a job.
//! A turn that takes long is none. What it would move is written by the next turn, which would take as long again.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::sessions::lock;

/// Whoever wakes later than it was to by so much has slept. Shorter times are put together until they are as long, because each time
/// limits of all jobs are moved.
const COUNTED_FROM: Duration = Duration::from_secs(2);

/// What has come together; clones share it.
#[derive(Clone, Default)]
pub(super) struct Standstill(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    /// Until when it was seen.
    until: Option<Instant>,
    total: Duration,
}

impl Standstill {
    /// Nothing could be decided in this time. Of what several saw at once, each moment counts once.
    pub(super) fn note(&self, from: Instant, until: Instant) {
        let mut counted = lock(&self.0);
        let from = counted.until.map_or(from, |before| before.max(from));
        if until > from {
            counted.total += until - from;
            counted.until = Some(until);
        }
    }

    /// Whoever rested since then was to be woken `after` so long, and is awake now.
    pub(super) fn note_rest(&self, since: Instant, after: Duration) {
        let now = Instant::now();
        if now - since > after + COUNTED_FROM {
            self.note(since + after, now);
        }
    }

    /// Takes what has come together, if that is worth it.
    pub(super) fn take(&self) -> Option<Duration> {
        let mut counted = lock(&self.0);
        (counted.total > COUNTED_FROM).then(|| mem::take(&mut counted.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_several_see_counts_once_and_what_is_short_waits_for_more() {
        let (standstill, begin) = (Standstill::default(), Instant::now());
        let note = |from_s, until_s| standstill.note(begin + from_s * SECOND, begin + until_s * SECOND);
        note(0, 1);
        assert_eq!(standstill.take(), None);
        note(0, 3);
        note(1, 2);
        note(2, 5);
        assert_eq!(standstill.take(), Some(5 * SECOND));
        note(4, 5);
        note(7, 9);
        assert_eq!(standstill.take(), None);
        note(20, 21);
        assert_eq!(standstill.take(), Some(3 * SECOND), "and nothing twice");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wakes_much_later_than_it_was_to_has_slept() {
        let (standstill, since) = (Standstill::default(), Instant::now());
        tokio::time::advance(7 * SECOND).await;
        standstill.note_rest(since, 5 * SECOND);
        assert_eq!(standstill.take(), None, "the machine is busy");
        tokio::time::advance(3_600 * SECOND).await;
        standstill.note_rest(since, 7 * SECOND);
        assert_eq!(standstill.take(), Some(3_600 * SECOND));
    }
}
