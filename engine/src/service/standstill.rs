//! Time in which nothing could be decided, because Redis took no writes or this process was not awake: it
//! counts for no limit of a job. A turn that takes long is none. What it would move is written by the next
//! turn, which would take as long again.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use syncline_rpc::threads::lock;
use tokio::time::Instant;

/// Whoever wakes later than it was to by so much has slept. Shorter times are put together until they are as
/// long, because each time limits of all jobs are moved.
const COUNTED_FROM: Duration = Duration::from_secs(2);
/// Most times that are remembered as seen, the latest: far more than come between two that overlap.
const MAX_SEEN: usize = 64;

/// What has come together; clones share it.
#[derive(Clone, Default)]
pub(super) struct Standstill(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    /// When it was seen, from and until, without an overlap: who sees a long one notes it behind those who
    /// have seen parts of it.
    seen: Vec<(Instant, Instant)>,
    total: Duration,
}

impl Standstill {
    /// Nothing could be decided in this time. Of what several saw at once, each moment counts once.
    pub(super) fn note(&self, from: Instant, until: Instant) {
        if until <= from {
            return;
        }
        let mut counted = lock(&self.0);
        let Counted { seen, total } = &mut *counted;
        let (mut whole, mut known) = ((from, until), Duration::ZERO);
        seen.retain(|&(seen_from, seen_until)| {
            let is_apart = seen_until < from || until < seen_from;
            if !is_apart {
                known += seen_until.min(until) - seen_from.max(from);
                whole = (whole.0.min(seen_from), whole.1.max(seen_until));
            }
            is_apart
        });
        *total += until - from - known;
        seen.push(whole);
        if seen.len() > MAX_SEEN {
            seen.remove(0);
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
        note(40, 43);
        note(50, 52);
        note(30, 60);
        note(59, 61);
        assert_eq!(standstill.take(), Some(31 * SECOND), "also what began before what was seen first");
        note(30, 61);
        assert_eq!(standstill.take(), None);
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
