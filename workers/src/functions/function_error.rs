//! Why a function gives nothing, where the error says whether to try again.

use std::fmt::Display;

/// Error of a function of whose errors some will come again at every attempt. `?` makes one of any error that
/// can be printed, after which the task is tried again as its [`retries`](super::CallOptions::retries) say;
/// [`no_retry`](Self::no_retry) makes one after which the task has failed for good.
///
/// ```
/// # use syncline_workers::functions::FunctionError;
/// fn lines(path: String, column: String) -> Result<u64, FunctionError> {
///     let column: usize = column.parse().map_err(FunctionError::no_retry)?;
///     let text = std::fs::read_to_string(path)?;
///     Ok(text.lines().filter(|line| line.len() > column).count() as u64)
/// }
/// ```
#[derive(Debug)]
pub struct FunctionError {
    pub(super) reason: String,
    pub(super) is_retryable: bool,
}

impl FunctionError {
    /// The task has failed for good, whatever its `retries` say.
    pub fn no_retry(error: impl Display) -> Self {
        Self { is_retryable: false, ..error.into() }
    }
}

/// It is no `Display` itself, so that this does not meet the conversion of a type into itself.
impl<E: Display> From<E> for FunctionError {
    fn from(error: E) -> Self {
        // In the long form, in which `anyhow` and the like name the causes.
        Self { reason: format!("{error:#}"), is_retryable: true }
    }
}
