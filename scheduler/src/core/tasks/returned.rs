//! Ready tasks of a class that came back from workers, and who may have each. Many may wait for others, some
//! for hours: each turn looks at a few of them, and the next turn at those that follow.

use std::collections::{BTreeMap, BTreeSet};

use super::avoidance::Standing;

/// Most that are looked at for one worker, or in one turn.
const MOST_LOOKED_AT: usize = 32;

/// Those of one class.
#[derive(Debug, Clone, Default)]
pub(super) struct ReturnedTasks {
    /// Some of them are not ready any more.
    tasks: BTreeSet<u32>,
    /// The last in the line that may have each of those that this turn looks at.
    last: BTreeMap<u32, Standing>,
    /// Where this turn begins, and the next one.
    begin: u32,
    next: u32,
}

impl ReturnedTasks {
    pub fn insert(&mut self, task: u32) {
        self.tasks.insert(task);
    }

    pub fn remove(&mut self, task: u32) {
        self.tasks.remove(&task);
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Begins a turn, and gives the tasks that it looks at: the oldest where that is all of them.
    pub fn begin_turn(&mut self) -> Vec<u32> {
        self.last.clear();
        self.begin = if self.tasks.len() > MOST_LOOKED_AT { self.next } else { 0 };
        let looked_at: Vec<u32> = self.in_turn().collect();
        self.next = looked_at.last().map_or(0, |last| last + 1);
        looked_at
    }

    /// Says who may have a task in this turn.
    pub fn set_last(&mut self, task: u32, last: Standing) {
        self.last.insert(task, last);
    }

    /// The last in the line that may have a task in this turn: none but those against whom nothing speaks
    /// where it was not looked at. `None`: it is not among these.
    pub fn last(&self, task: u32) -> Option<Standing> {
        let last = || self.last.get(&task).copied().unwrap_or(Standing::First);
        self.tasks.contains(&task).then(last)
    }

    /// Those that are looked at for one worker in this turn.
    pub fn in_turn(&self) -> impl Iterator<Item = u32> {
        let (from, before) = (self.tasks.range(self.begin..), self.tasks.range(..self.begin));
        from.chain(before).take(MOST_LOOKED_AT).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_more_than_one_turn_looks_at_all_have_their_turn_whichever_are_taken() {
        let mut returned = ReturnedTasks::default();
        (0..100).for_each(|task| returned.insert(task));
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            let looked_at = returned.begin_turn();
            assert_eq!(looked_at.len(), MOST_LOOKED_AT);
            returned.set_last(looked_at[1], Standing::Last);
            returned.remove(looked_at[0]);
            let next = returned.in_turn().next().unwrap();
            assert_eq!((next, returned.last(next)), (looked_at[1], Some(Standing::Last)));
            seen.extend(looked_at);
        }
        assert_eq!(seen.len(), 100);
        assert_eq!((returned.last(0), returned.last(1)), (None, Some(Standing::First)));
        (2..90).for_each(|task| returned.remove(task));
        assert_eq!(returned.begin_turn()[..2], [1, 90], "the oldest first where one turn looks at all");
    }
}
