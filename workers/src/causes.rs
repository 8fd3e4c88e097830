//! What is behind an error.

use std::{error::Error, iter::successors};

/// The error and its causes, outermost first.
pub fn error_chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}
