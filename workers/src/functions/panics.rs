//! Panics of functions, with the location where they happened.

use std::{
    any::Any,
    cell::RefCell,
    io, mem,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::Once,
};

thread_local! {
    /// Where this thread panicked last.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked at {location}: {message}")]
pub(crate) struct Caught {
    /// File and line.
    pub location: String,
    pub message: String,
}

/// What the standard library and Tokio say where they panic because the system gives them no thread.
const NO_THREAD: [&str; 2] = ["failed to spawn thread: ", "OS can't spawn worker thread: "];

impl Caught {
    /// What the system said if it gave no thread.
    pub(crate) fn no_thread(&self) -> Option<io::Error> {
        let cause = NO_THREAD.iter().find_map(|said| self.message.split_once(said))?.1;
        Some(io::Error::new(io::ErrorKind::WouldBlock, cause.to_owned()))
    }
}

/// Calls `work` and catches a panic. Whatever hook the program has is called as well.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Caught> {
    note_locations();
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let location = LOCATION.take().unwrap_or_else(|| "an unknown location".to_owned());
        let caught = Caught { location, message: message(payload.as_ref()) };
        // What somebody panics with may panic as it is dropped, and so may what that panics with.
        if let Err(next) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            mem::forget(next);
        }
        caught
    })
}

/// Puts in front of the program's panic hook one that notes the location.
fn note_locations() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            LOCATION.set(info.location().map(|at| format!("{}:{}", at.file(), at.line())));
            earlier(info);
        }));
    });
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_place_and_its_text() {
        assert_eq!(catch(|| 7), Ok(7));
        let line = line!() + 1;
        let caught = catch(|| panic!("no {}", "luck")).unwrap_err();
        assert_eq!((caught.message.as_str(), caught.location), ("no luck", format!("{}:{line}", file!())));
        let caught = catch(|| panic::panic_any(7)).unwrap_err();
        assert_eq!(caught.message, "a value that is no text");
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                panic::panic_any(PanicsAgain);
            }
        }
        assert_eq!(catch(|| panic::panic_any(PanicsAgain)).unwrap_err().message, "a value that is no text");
    }

    #[test]
    fn a_panic_for_want_of_a_thread_is_told_from_others_as_the_standard_library_and_tokio_word_it() {
        // No system has room for such a stack, and says what it says at the limit on processes.
        let stack_bytes = 1 << 60;
        let of_std = || {
            let refused = std::thread::Builder::new().stack_size(stack_bytes).spawn(|| ());
            refused.expect("failed to spawn thread");
        };
        let of_tokio = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.thread_stack_size(stack_bytes).build().unwrap();
            drop(runtime.spawn_blocking(|| ()));
        };
        for caught in [catch(of_std), catch(of_tokio)].map(Result::unwrap_err) {
            assert!(caught.no_thread().is_some(), "{caught}");
        }
        assert!(catch(|| panic!("no luck")).unwrap_err().no_thread().is_none());
    }
}
