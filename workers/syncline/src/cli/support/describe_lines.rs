//! Lines of a name and a text, below each other.

use crate::cli::one_line;

pub(crate) type Line = (&'static str, String);

/// What is shown where a damaged job does not say.
pub(super) const UNKNOWN: &str = "-";

pub(super) fn align(pairs: &[Line]) -> String {
    let line = |(name, value): &Line| format!("{name:<13} {}", one_line(value));
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}
