//! The set of sealed incarnations, in little memory however many come and go.
//!
//! Incarnations are numbered as they come, and all but the living ones are sealed sooner or later: so they
//! are kept as runs of numbers. Their push filters are kept for the last of them only: an engine that asks
//! again asks soon, though of all workers of a job at a time. Their watermarks, which each push looks
//! through, are kept for fewer.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::Incarnation;

use super::job::MAX_PUSHING_WORKERS;

/// Number of sealed incarnations whose watermarks are kept. The engine counts on so many.
const KEPT_WATERMARKS: usize = 256;
/// The same of filters.
const KEPT_FILTERS: usize = MAX_PUSHING_WORKERS;

/// A set that only grows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SealedSet {
    /// Last number of each run, by its first. Runs do not touch.
    runs: BTreeMap<u64, u64>,
    /// Those whose filters are kept, in the order of their seals.
    recent: VecDeque<Incarnation>,
    /// So many of these, from the first on, have no watermark any more. Told again after a restart.
    #[serde(skip)]
    without_watermark: usize,
}

/// Those of whom something may go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outdated {
    pub watermarks: Vec<Incarnation>,
    pub filters: Vec<Incarnation>,
}

impl SealedSet {
    pub(super) fn contains(&self, worker: Incarnation) -> bool {
        self.runs.range(..=worker.0).next_back().is_some_and(|(_, last)| worker.0 <= *last)
    }

    /// How many there are whose filters are kept.
    pub(super) fn kept(&self) -> usize {
        self.recent.len()
    }

    /// Adds one. Returns those whose watermarks and filters may go now; `needed` ones stay.
    pub(super) fn insert(&mut self, worker: Incarnation, needed: impl Fn(Incarnation) -> bool) -> Outdated {
        let mut outdated = Outdated::default();
        if self.contains(worker) {
            return outdated;
        }
        self.add(worker.0);
        self.recent.push_back(worker);
        while self.recent.len() - self.without_watermark > KEPT_WATERMARKS
            && let Some(oldest) = self.recent.get(self.without_watermark)
            && !needed(*oldest)
        {
            outdated.watermarks.push(*oldest);
            self.without_watermark += 1;
        }
        while self.recent.len() > KEPT_FILTERS && self.without_watermark > 0 {
            outdated.filters.extend(self.recent.pop_front());
            self.without_watermark -= 1;
        }
        outdated
    }

    fn add(&mut self, number: u64) {
        let (mut first, mut last) = (number, number);
        if let Some((&before, &end)) = self.runs.range(..number).next_back()
            && end.checked_add(1) == Some(number)
        {
            first = before;
        }
        if let Some(next) = number.checked_add(1)
            && let Some(end) = self.runs.remove(&next)
        {
            last = end;
        }
        self.runs.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_was_put_in_and_nothing_else(numbers in prop::collection::vec(0u64..64, 0..80)) {
            let (mut sealed, mut set) = (SealedSet::default(), BTreeSet::new());
            for number in numbers {
                sealed.insert(Incarnation(number), |_| false);
                set.insert(number);
                for asked in 0..70 {
                    prop_assert_eq!(sealed.contains(Incarnation(asked)), set.contains(&asked));
                }
                let gaps = set.iter().filter(|n| !set.contains(&(**n + 1))).count();
                prop_assert_eq!(sealed.runs.len(), gaps, "runs that touch are one");
            }
        }
    }

    #[test]
    fn a_hundred_thousand_that_come_and_go_take_the_room_of_a_few() {
        let mut sealed = SealedSet::default();
        let (mut watermarks, mut filters) = (0, 0);
        let mut insert = |sealed: &mut SealedSet, number, needed| {
            let outdated = sealed.insert(Incarnation(number), |worker| Some(worker.0) == needed);
            watermarks += outdated.watermarks.len();
            filters += outdated.filters.len();
            (watermarks, filters)
        };
        let mut gone = (0, 0);
        for number in (0..100_000).filter(|n| n % 10_000 != 77) {
            gone = insert(&mut sealed, number, Some(500));
        }
        // One in the middle is needed: it and those behind it stay until it is not.
        assert_eq!((sealed.runs.len(), gone), (11, (499, 499)));
        gone = insert(&mut sealed, 200_000, None);
        assert_eq!(gone, (99_991 - KEPT_WATERMARKS, 99_991 - KEPT_FILTERS));
        assert_eq!(sealed.kept(), KEPT_FILTERS);
        assert_eq!(insert(&mut sealed, 3, None), gone, "it was sealed before");
        assert!(!sealed.contains(Incarnation(77)));
        assert!(sealed.contains(Incarnation(u64::MAX - 1)) == sealed.contains(Incarnation(u64::MAX)));
    }
}
