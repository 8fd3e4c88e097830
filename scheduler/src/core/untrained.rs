//! A training of which every iteration was skipped: its parameters are those that it began with.

use super::{effects::Effect, job::Job, records::Phase};
use crate::fault_code::FaultCode;

const NOTHING_TRAINED: FaultCode = FaultCode::new("E596");

/// Iterations that may be skipped while the loss scales of all workers of a job in float16 are searched, which is at most 24 of
/// each worker.
const SEARCH_ITERATIONS: u64 = 1_000;

impl Job {
    /// Whether no iteration has changed the parameters, and none will: training is over, or a whole epoch was in vain.
    pub(super) fn learns_nothing(&self, is_trained: bool) -> bool {
        let counters = &self.state.counters;
        let all_skipped = counters.done > 0 && counters.skipped == counters.done;
        let is_hopeless = self.state.epochs_complete > 0 && counters.done >= SEARCH_ITERATIONS;
        all_skipped && (is_trained || is_hopeless)
    }

    pub(super) fn end_untrained(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let reason = format!(
            "nothing was trained: all {} iterations were skipped, because their loss or gradient was no finite number; look for NaN in \
             the data, and try on_nan = \"fail\", which says what became NaN",
            self.state.counters.done
        );
        self.end(Phase::Failed { code: NOTHING_TRAINED, reason }, now_us, effects);
    }
}
