//! What another engine says of the general tasks that this worker was given. It may need several answers for it.

use std::collections::HashMap;

use syncline_scheduler::tasks::{Order, TaskIndex};

use crate::functions::JobKey;

/// Attempts that an engine has named since the worker first heard of it.
#[derive(Debug)]
pub(in crate::worker) struct Retelling {
    /// How many orders there were when the worker first heard of the engine.
    order_count: u64,
    attempts: HashMap<JobKey, HashMap<TaskIndex, u16>>,
}

impl Retelling {
    /// Of an engine that had this many orders for the worker when it was first heard of.
    pub(in crate::worker) fn of(order_count: u64) -> Self {
        Self { order_count, attempts: HashMap::new() }
    }

    /// Notes what is to be run.
    pub(in crate::worker) fn note(&mut self, orders: &[Order]) {
        for order in orders {
            if let Order::Run(group) = order {
                let key = JobKey { job: group.job.clone(), nonce: group.nonce };
                let attempts = group.tasks.iter().map(|order| (order.task, order.attempt));
                self.attempts.entry(key).or_default().extend(attempts);
            }
        }
    }

    /// Whether that is everything, once the orders in front of number `next` are noted.
    pub(in crate::worker) fn is_whole(&self, next: u64) -> bool {
        next >= self.order_count
    }

    /// Whether this attempt was named.
    pub(super) fn names(&self, job: &JobKey, task: TaskIndex, attempt: u16) -> bool {
        self.attempts.get(job).and_then(|tasks| tasks.get(&task)) == Some(&attempt)
    }
}
