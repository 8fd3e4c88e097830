//! The run of a job that is still open when the next one is to be.

use syncline_scheduler::ids::RunId;

use super::{EntryState, JobTable, lock};

impl JobTable {
    /// Ends whichever run of the job is open in place of `run`: there is no memory for both. Whether there was one. Called by what
    /// [`JobTable::open`] loads with, which has refused a later run by then.
    pub(crate) fn end_run_before(&self, run: &RunId) -> bool {
        let Some(entry) = self.entry(&run.job) else { return false };
        let mut state = lock(&entry.state);
        let EntryState::Open(before) = &*state else { return false };
        let before = before.clone();
        *state = EntryState::Empty;
        drop(state);
        before.replace(run.generation);
        true
    }
}
