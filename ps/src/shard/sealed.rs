//! The set of sealed incarnations, in little memory however many come and go.
//!
//! Incarnations are numbered as they come, and all but the living ones are sealed sooner or later: so they are kept as
//! runs of numbers. Their push filters are kept for the last of them only: an engine that asks again asks soon.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use syncline_scheduler::ids::Incarnation;

/// Number of sealed incarnations whose filters and watermarks are kept.
const KEPT_FILTERS: usize = 256;

/// A set that only grows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SealedSet {
    /// Last number of each run, by its first. Runs do not touch.
    runs: BTreeMap<u64, u64>,
    /// Those whose filters are kept, in the order of their seals.
    recent: VecDeque<Incarnation>,
}

impl SealedSet {
    pub(super) fn contains(&self, worker: Incarnation) -> bool {
        self.runs.range(..=worker.0).next_back().is_some_and(|(_, last)| worker.0 <= *last)
    }

    /// How many there are whose filters are kept.
    pub(super) fn kept(&self) -> usize {
        self.recent.len()
    }

    /// Adds one. Returns those whose filters may go now; `needed` ones stay.
    pub(super) fn insert(
        &mut self,
        worker: Incarnation,
        needed: impl Fn(Incarnation) -> bool,
    ) -> Vec<Incarnation> {
        if self.contains(worker) {
            return Vec::new();
        }
        self.add(worker.0);
        self.recent.push_back(worker);
        let mut gone = Vec::new();
        while self.recent.len() > KEPT_FILTERS && self.recent.front().is_some_and(|oldest| !needed(*oldest)) {
            gone.extend(self.recent.pop_front());
        }
        gone
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
        let mut gone = 0;
        for number in (0..100_000).filter(|n| n % 10_000 != 77) {
            gone += sealed.insert(Incarnation(number), |worker| worker.0 == 500).len();
        }
        // One in the middle is needed: it and those behind it stay until it is not.
        assert_eq!((sealed.runs.len(), gone), (11, 499));
        gone += sealed.insert(Incarnation(200_000), |_| false).len();
        assert_eq!(sealed.recent.len(), KEPT_FILTERS);
        assert_eq!(gone + KEPT_FILTERS, 99_990 + 1);
        assert!(sealed.insert(Incarnation(3), |_| false).is_empty() && !sealed.contains(Incarnation(77)));
        assert!(sealed.contains(Incarnation(u64::MAX - 1)) == sealed.contains(Incarnation(u64::MAX)));
    }
}
