//! What a new leader says of the general tasks that this worker was given. It may need several answers for
//! it.

use std::collections::HashMap;

use syncline_scheduler::{
    ids::SubmissionId,
    tasks::{Order, TaskIndex},
};

/// Attempts that an engine has named since the worker first heard of it.
#[derive(Debug)]
pub(in crate::worker) struct Retelling {
    /// How many orders tell it.
    retold: u64,
    attempts: HashMap<SubmissionId, HashMap<TaskIndex, u16>>,
}

impl Retelling {
    /// Of an engine that tells it with so many orders.
    pub(in crate::worker) fn of(retold: u64) -> Self {
        Self { retold, attempts: HashMap::new() }
    }

    /// How many of `count` orders, of which the first has number `first`, tell it.
    pub(in crate::worker) fn part_of(&self, first: u64, count: usize) -> usize {
        count.min(usize::try_from(self.retold.saturating_sub(first)).unwrap_or(usize::MAX))
    }

    /// Notes what is to be run.
    pub(in crate::worker) fn note(&mut self, orders: &[Order]) {
        for order in orders {
            if let Order::Run(group) = order {
                let attempts = group.tasks.iter().map(|order| (order.task, order.attempt));
                self.attempts.entry(group.submission.clone()).or_default().extend(attempts);
            }
        }
    }

    /// Whether that is everything, once the orders in front of number `next` are noted.
    pub(in crate::worker) fn is_whole(&self, next: u64) -> bool {
        next >= self.retold
    }

    /// Whether this attempt was named.
    pub(super) fn names(&self, submission: &SubmissionId, task: TaskIndex, attempt: u16) -> bool {
        self.attempts.get(submission).and_then(|tasks| tasks.get(&task)) == Some(&attempt)
    }
}
