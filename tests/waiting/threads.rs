//! Waiting in tests for what another thread is to do.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Looks until something is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // Generous, because test machines are busy.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for too long: {what}");
        thread::yield_now();
    }
}
