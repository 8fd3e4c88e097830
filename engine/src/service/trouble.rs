//! What is wrong with Redis right now, as the engine sees it: whoever asks is told at once instead of waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clones share it.
#[derive(Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Seen>>);

/// Each is seen, and seen to be over, by one place alone.
#[derive(Default)]
struct Seen {
    /// By the loop, in a commit that it repeats until it succeeds.
    commit: Option<String>,
    /// By the renewal of the lead, which writes every second whether jobs run or not.
    lead: Option<String>,
}

impl Trouble {
    pub(super) fn set(&self, cause: Option<String>) {
        self.seen().commit = cause;
    }

    pub(super) fn set_lead(&self, cause: Option<String>) {
        self.seen().lead = cause;
    }

    pub(super) fn get(&self) -> Option<String> {
        let seen = self.seen();
        seen.commit.clone().or_else(|| seen.lead.clone())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
