//! Orders to end a run of a job that shards have not answered yet. Whoever opens another job of its name waits
//! for them: a shard that is told to open it first takes the one that is open for a job that no engine knows,
//! and sets it aside.

use std::{collections::HashMap, sync::Arc};

use syncline_scheduler::ids::JobId;
use tokio::sync::watch;

/// How many are under way, by name; clones share it.
#[derive(Clone, Default)]
pub(super) struct Closings(Arc<watch::Sender<HashMap<JobId, usize>>>);

/// An order that is under way until this is dropped.
pub(super) struct Closing {
    of: Closings,
    job: JobId,
}

impl Closings {
    pub(super) fn begin(&self, job: &JobId) -> Closing {
        self.0.send_modify(|under_way| *under_way.entry(job.clone()).or_default() += 1);
        Closing { of: self.clone(), job: job.clone() }
    }

    /// Waits until none is under way for a job of this name.
    pub(super) async fn until_over(&self, job: &JobId) {
        // Whoever sends is held by `self`.
        let _ = self.0.subscribe().wait_for(|under_way| !under_way.contains_key(job)).await;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.of.0.send_modify(|under_way| {
            if let Some(left) = under_way.get_mut(&self.job) {
                *left -= 1;
                if *left == 0 {
                    under_way.remove(&self.job);
                }
            }
        });
    }
}
