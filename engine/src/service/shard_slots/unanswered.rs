//! Orders that a process does not answer, though it announces itself.

use std::time::{Duration, Instant};

/// Why orders are repeated.
#[derive(Debug, Clone)]
pub(in crate::service) struct Unanswered {
    pub since: Instant,
    /// What came of the last one, in words.
    pub cause: String,
    pub kind: NoAnswer,
}

/// What an engine gets instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) enum NoAnswer {
    /// Something answers there, and turns the engine away.
    Refusal,
    /// The system says why no connection comes about: nothing listens there, or nobody knows the name.
    NoConnection,
    /// Nothing comes back.
    Silence,
}

/// All of one process. Who answers one order is reached, whatever else takes long there: those that failed
/// before count no more. Those that are given up say nothing, and leave what the others say.
#[derive(Debug, Clone, Default)]
pub(in crate::service) struct UnansweredOrders {
    /// Since when none was answered, and what came of the last one.
    note: Option<Unanswered>,
    /// How many say so.
    count: usize,
    answers: u64,
}

/// After how many answers an order failed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) struct FailedAfter(u64);

impl UnansweredOrders {
    pub(in crate::service) fn note(&self) -> Option<&Unanswered> {
        self.note.as_ref()
    }

    pub(in crate::service) fn answered(&mut self) {
        *self = Self { answers: self.answers + 1, ..Self::default() };
    }

    /// An order has failed for the first time.
    pub(in crate::service) fn failed(&mut self, outcome: Unanswered) -> FailedAfter {
        self.count += 1;
        self.set(outcome);
        FailedAfter(self.answers)
    }

    pub(in crate::service) fn failed_again(&mut self, order: FailedAfter, outcome: Unanswered) {
        if order.0 == self.answers {
            self.set(outcome);
        }
    }

    /// Nobody repeats it any more.
    pub(in crate::service) fn given_up(&mut self, order: FailedAfter) {
        if order.0 == self.answers {
            // A process that was forgotten and came back knows of none.
            self.count = self.count.saturating_sub(1);
            self.note.take_if(|_| self.count == 0);
        }
    }

    /// The first order says since when.
    fn set(&mut self, outcome: Unanswered) {
        let since = self.note.as_ref().map_or(outcome.since, |first| first.since);
        self.note = Some(Unanswered { since, ..outcome });
    }

    /// Does not count `late`.
    pub(super) fn extend_deadlines(&mut self, late: Duration, now: Instant) {
        self.note.iter_mut().for_each(|order| order.since = (order.since + late).min(now));
    }
}
