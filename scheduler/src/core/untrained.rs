//! A training of which every iteration is skipped: its parameters stay what they are.

use super::{job::Job, records::Phase, turn::Turn};
use crate::fault_code::FaultCode;

const NOTHING_TRAINED: FaultCode = FaultCode::new("E596");

/// So many iterations in a row are no accident, as of one batch that is the whole epoch.
const LEAST_IN_A_ROW: u64 = 10;

impl Job {
    /// Why it is in vain to go on, or was to train at all, in words; `None` if something was learned lately.
    pub(super) fn why_in_vain(&self, is_trained: bool) -> Option<String> {
        let (train, counters) = (self.train(), &self.state.counters);
        // What another job has done before was not skipped here.
        let before = train.resume.as_ref().map_or(0, |resume| resume.iterations - resume.iterations_torn);
        let done = counters.done.saturating_sub(before);
        let (row, epoch) = (counters.skipped_in_a_row, train.epoch_samples());
        let skipped = match row >= LEAST_IN_A_ROW && counters.samples_skipped_in_a_row >= epoch {
            true => format!("the last {row} iterations, a whole epoch, were skipped"),
            // Scales of the loss that are too large end by themselves, but not in time here.
            false if is_trained && done > 0 && counters.skipped == done && row == 0 => {
                return Some(format!(
                    "nothing is trained: in all {done} iterations the loss was scaled by too much for float16, and each halves the scale; \
                     train for more iterations, or in bfloat16 or float32"
                ));
            }
            false if is_trained && done > 0 && counters.skipped == done => {
                format!("all {done} iterations were skipped")
            }
            false => return None,
        };
        Some(format!(
            "nothing is trained: {skipped}, because their loss or gradient was no finite number; try a smaller learning rate, look for NaN \
             in the data, or set on_nan = \"fail\", which says what became NaN first"
        ))
    }

    pub(super) fn end_in_vain(&mut self, reason: String, turn: &mut Turn<'_>) {
        self.end(Phase::Failed { code: NOTHING_TRAINED, reason }, turn);
    }
}
