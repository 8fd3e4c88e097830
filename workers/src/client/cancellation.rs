//! How a job is canceled.

use std::time::Duration;

/// How a job is canceled: why, and how long what runs may take to end by itself.
///
/// ```
/// use std::time::Duration;
/// # use syncline_workers::client::Cancellation;
/// let at_once = Cancellation::new().reason("the input was wrong").grace(Duration::ZERO);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    pub(super) reason: String,
    pub(super) grace: Duration,
}

impl Default for Cancellation {
    fn default() -> Self {
        Self { reason: String::new(), grace: Self::GRACE }
    }
}

impl Cancellation {
    /// What functions that run get to end by themselves, if nothing else is said.
    pub const GRACE: Duration = Duration::from_secs(10);

    /// Without a reason, with the usual grace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For people: whoever looks at the job or waits for it reads it. At most 1,000 characters are kept.
    #[must_use]
    pub fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..self }
    }

    /// How long functions that run may take to end by themselves; zero: nobody waits for them.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }
}
