//! What this process does at the moment, for whoever watches it: when native code ends it, this is the last
//! that is known.

use std::sync::{Mutex, PoisonError};

type Watcher = Box<dyn Fn(&str) + Send>;

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Has every stage from now on reported to `watcher`, in the place of the one before.
pub fn watch(watcher: impl Fn(&str) + Send + 'static) {
    *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(watcher));
}

/// Says what comes next, as in "load the training graph". Nothing happens if nobody watches.
pub fn enter(stage: &str) {
    if let Some(watcher) = WATCHER.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        watcher(stage);
    }
}
