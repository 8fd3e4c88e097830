//! Locks of the worker's threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; what a panicking thread left behind is still whole, because no code under these locks can panic
/// half way.
pub(in crate::worker) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
