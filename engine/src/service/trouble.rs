//! What is wrong with Redis right now, as the loop sees it: whoever asks is told at once instead of waiting.

use std::sync::{Arc, Mutex, PoisonError};

/// Clones share it.
#[derive(Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(super) fn set(&self, cause: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
