//! The run of a job that is still open when the next one is to be.

use std::sync::Arc;

use syncline_rpc::threads::lock;
use syncline_scheduler::ids::RunId;

use super::{EntryState, JobShard, JobTable};

impl JobTable {
    /// Ends the run of this very job that is open in place of `run`: there is no memory for both. Whether
    /// there was one. Another job of the name is kept. Called by what [`JobTable::open`] loads with,
    /// which has refused a later run by then.
    pub(crate) fn end_run_before(&self, run: &RunId) -> bool {
        let Some(entry) = self.entry(&run.job) else { return false };
        let mut held = lock(&entry.held);
        let same_job = |open: &&Arc<JobShard>| open.run().generation.nonce() == run.generation.nonce();
        let Some(before) = held.open().filter(same_job).cloned() else { return false };
        held.state = EntryState::Empty;
        drop(held);
        before.replace(run.generation);
        true
    }
}
