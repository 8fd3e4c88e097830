//! What a function may give beside a value.

use std::fmt::Display;

use super::TaskHandle;

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

/// What functions may return that give an `O`: the value, a [`Next`], or a `Result` of one of them, whose error fails the
/// attempt.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a function may return that gives `{O}`",
    label = "returns `{Self}`",
    note = "it may return `{O}`, `Next<{O}>`, `Result<{O}, E>` or `Result<Next<{O}>, E>`, where `E: Display`"
)]
pub trait IntoNext<O, Shape> {
    /// The same in one form; the error in words.
    ///
    /// # Errors
    /// If the function returned one.
    fn into_next(self) -> Result<Next<O>, String>;
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
    fn into_next(self) -> Result<Next<O>, String> {
        Ok(Next::Value(self))
    }
}

impl<O> IntoNext<O, InNext> for Next<O> {
    fn into_next(self) -> Result<Next<O>, String> {
        Ok(self)
    }
}

impl<O, E: Display> IntoNext<O, InResult<Plain>> for Result<O, E> {
    fn into_next(self) -> Result<Next<O>, String> {
        self.map(Next::Value).map_err(in_words)
    }
}

impl<O, E: Display> IntoNext<O, InResult<InNext>> for Result<Next<O>, E> {
    fn into_next(self) -> Result<Next<O>, String> {
        self.map_err(in_words)
    }
}

/// In the long form, in which `anyhow` and the like name the causes.
fn in_words(error: impl Display) -> String {
    format!("{error:#}")
}
