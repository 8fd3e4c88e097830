//! What a function may give beside a value.

use std::error::Error;

use super::{FunctionError, TaskHandle};
use crate::error_chain;

/// What a task gives: return it in place of the value where that is not all there is to say.
#[derive(Debug, Clone)]
pub enum Next<O> {
    /// This value.
    Value(O),
    /// What a task gives that this one has added with [`Context::call`](super::Context::call).
    Of(TaskHandle<O>),
    /// Nothing: whatever needs it is skipped, too. Tasks that this one has added are not added then.
    Skip,
}

/// What functions may return that give an `O`: the value, a [`Next`], or a `Result` of one of them, whose
/// error fails the attempt: any that can be printed, or a [`FunctionError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a function may return that gives `{O}`",
    label = "returns `{Self}`",
    note = "it may return `{O}`, `Next<{O}>`, `Result<{O}, E>` or `Result<Next<{O}>, E>`, where `E` is `Display` or a `FunctionError`"
)]
pub trait IntoNext<O, Shape> {
    /// What was returned, in one form.
    ///
    /// # Errors
    /// If the function returned one.
    fn into_next(self) -> Result<Next<O>, FunctionError>;
}

/// Tells apart what functions return.
#[derive(Debug)]
pub enum Plain {}
/// A [`Next`].
#[derive(Debug)]
pub enum InNext {}
/// A `Result` of something else.
#[derive(Debug)]
pub struct InResult<Shape>(Shape);

impl<O> IntoNext<O, Plain> for O {
    fn into_next(self) -> Result<Next<O>, FunctionError> {
        Ok(Next::Value(self))
    }
}

impl<O> IntoNext<O, InNext> for Next<O> {
    fn into_next(self) -> Result<Next<O>, FunctionError> {
        Ok(self)
    }
}

impl<O, E: Into<FunctionError>> IntoNext<O, InResult<Plain>> for Result<O, E> {
    fn into_next(self) -> Result<Next<O>, FunctionError> {
        self.map(Next::Value).map_err(Into::into)
    }
}

impl<O, E: Into<FunctionError>> IntoNext<O, InResult<InNext>> for Result<Next<O>, E> {
    fn into_next(self) -> Result<Next<O>, FunctionError> {
        self.map_err(Into::into)
    }
}

/// An error with the errors behind it, outermost first: `.map_err(with_causes)` where a function returns one
/// whose `Display` leaves its `source()` out, as those of `thiserror` do. What a task shows is what `Display`
/// writes, and no more.
///
/// ```
/// # use syncline_workers::functions::with_causes;
/// fn price(text: &str) -> Result<u32, String> {
///     text.parse().map_err(with_causes::<std::num::ParseIntError>)
/// }
/// assert!(price("x").is_err());
/// ```
pub fn with_causes<E: Error + 'static>(error: E) -> String {
    let mut all: Vec<String> = error_chain(&error).map(ToString::to_string).collect();
    // Some write what is behind them themselves.
    all.dedup_by(|inner, outer| outer.contains(inner.as_str()));
    all.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("order {0} cannot be priced")]
    struct Unpriced(u32, #[source] std::num::ParseIntError);

    #[test]
    fn an_error_is_told_with_what_is_behind_it() {
        let cause = || "x".parse::<u32>().unwrap_err();
        let told = with_causes(Unpriced(1, cause()));
        assert_eq!(told, "order 1 cannot be priced: invalid digit found in string");
        assert_eq!(with_causes(cause()), "invalid digit found in string");
    }
}
