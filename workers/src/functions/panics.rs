//! Panics of functions, with the location where they happened.

use std::{
    any::Any,
    cell::RefCell,
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

/// Calls `work` and catches a panic. Whatever hook the program has is called as well.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Caught> {
    note_locations();
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Caught {
        location: LOCATION.take().unwrap_or_else(|| "an unknown location".to_owned()),
        message: message(payload.as_ref()),
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
    }
}
