//! Which job the core was at when it panicked.

use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use crate::ids::JobId;

thread_local! {
    static BLAMED: RefCell<Option<JobId>> = const { RefCell::new(None) };
}

/// Stands where one job is handled: a panic is blamed on it. Costs next to nothing otherwise, and copies no
/// name.
pub(super) struct Handling<'a>(pub &'a JobId);

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The innermost one knows best, and is dropped first.
            BLAMED.with_borrow_mut(|blamed| _ = blamed.get_or_insert_with(|| self.0.clone()));
        }
    }
}

/// A panic of the core. What is left of the core must not be used any more.
pub struct CorePanic {
    /// The job that was being handled; `None`: it was at none.
    pub job: Option<JobId>,
    /// As [`catch_unwind`] gives it.
    pub payload: Box<dyn Any + Send>,
}

/// Runs what the core does; a panic says at which job it was.
pub fn catch_panic<T>(act: impl FnOnce() -> T) -> Result<T, CorePanic> {
    BLAMED.take();
    catch_unwind(AssertUnwindSafe(act)).map_err(|payload| CorePanic { job: BLAMED.take(), payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_blamed_on_the_innermost_job_and_on_none_where_none_is_handled() {
        let [outer, inner, done] = ["outer", "inner", "done"].map(|name| name.parse::<JobId>().unwrap());
        let panicked = catch_panic(|| {
            drop(Handling(&done));
            let _outer = Handling(&outer);
            let _inner = Handling(&inner);
            panic!("here")
        });
        assert_eq!(panicked.err().and_then(|panic: CorePanic| panic.job), Some(inner));
        let panicked: Result<(), _> = catch_panic(|| panic!("elsewhere"));
        assert_eq!(panicked.err().map(|panic| panic.job), Some(None), "the last one is forgotten");
        assert_eq!(catch_panic(|| 7).ok(), Some(7));
    }
}
