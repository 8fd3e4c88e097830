//! The searches by name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Points, Window, grid_scan, heap_merge, narrowest_window, zipline, zipline_opt};
use crate::suggestion::did_you_mean;

/// How a window is searched. Text and serde form is its [`name`](Self::name); `leap` is another word for
/// `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Algorithm {
    /// Skips the meeting times that cannot be better: exact, O(n log n + V log n), V ≤ nR. See
    /// [`narrowest_window`].
    #[default]
    Skipping,
    /// ZipLine as published in 2019: exact, O(Rn²).
    ZipLine,
    /// ZipLine with a shortcut for the earliest point (2021): exact, O(Rn²) with a smaller constant.
    ZipLineOpt,
    /// ZipLine with that shortcut, and a binary search for the other points (2021).
    ZipLineOptBs,
    /// Merge with a binary heap: exact, O(nR log n).
    HeapMerge,
    /// Nearest points to those of one worker (2019): not exact, O(R²n).
    GridScan,
    /// Nearest points to those of every worker (2019): not exact, O(R²n²).
    FullGridScan,
}

/// Why a text names no search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "[E560] `{0}` is no search: expected default, zipline, zipline-opt, zipline-opt-bs, heap, grid-scan or full-grid-scan{meant}",
    meant = did_you_mean(.0, Algorithm::ALL.map(Algorithm::name))
)]
pub struct InvalidAlgorithm(pub String);

impl InvalidAlgorithm {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        "E560"
    }

    /// What the user can do about it: the text says all there is.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl Algorithm {
    /// All of them, the default first.
    pub const ALL: [Self; 7] = [
        Self::Skipping,
        Self::ZipLine,
        Self::ZipLineOpt,
        Self::ZipLineOptBs,
        Self::HeapMerge,
        Self::GridScan,
        Self::FullGridScan,
    ];

    /// The word that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipping => "default",
            Self::ZipLine => "zipline",
            Self::ZipLineOpt => "zipline-opt",
            Self::ZipLineOptBs => "zipline-opt-bs",
            Self::HeapMerge => "heap",
            Self::GridScan => "grid-scan",
            Self::FullGridScan => "full-grid-scan",
        }
    }

    /// Whether it always finds the narrowest window.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::GridScan | Self::FullGridScan)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = InvalidAlgorithm;

    fn from_str(text: &str) -> Result<Self, InvalidAlgorithm> {
        let named =
            Self::ALL.into_iter().find(|a| a.name() == text || (*a == Self::Skipping && text == "leap"));
        named.ok_or_else(|| InvalidAlgorithm(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for Algorithm {
    type Error = InvalidAlgorithm;

    fn try_from(text: String) -> Result<Self, InvalidAlgorithm> {
        text.parse()
    }
}

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.name().into()
    }
}

/// The window that `algorithm` finds; see the [module](super) for ties, indices and cost.
///
/// `None` if there is no row, if a row has no point, or if its points are not ascending.
///
/// ```
/// use syncline_scheduler::sync::search::{Algorithm, search};
/// let rows = [[3, 7], [1, 6], [2, 3], [6, 7]];
/// assert_eq!(search(Algorithm::ZipLine, &rows).unwrap().span_us, 3);
/// assert_eq!(search(Algorithm::FullGridScan, &rows).unwrap().span_us, 4);
/// ```
pub fn search<P: Points>(algorithm: Algorithm, rows: &[P]) -> Option<Window> {
    match algorithm {
        Algorithm::Skipping => narrowest_window(rows),
        Algorithm::ZipLine => zipline::zipline(rows),
        Algorithm::ZipLineOpt => zipline_opt::zipline_opt(rows),
        Algorithm::ZipLineOptBs => zipline_opt::zipline_opt_bs(rows),
        Algorithm::HeapMerge => heap_merge::heap_merge(rows),
        Algorithm::GridScan => grid_scan::grid_scan(rows),
        Algorithm::FullGridScan => grid_scan::full_grid_scan(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_its_search_in_text_and_json() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            let json = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(json, format!("\"{}\"", algorithm.name()));
            assert_eq!(serde_json::from_str::<Algorithm>(&json).unwrap(), algorithm);
        }
    }

    #[test]
    fn leap_is_another_word_for_the_default() {
        assert_eq!("leap".parse(), Ok(Algorithm::default()));
        assert!("zip-line".parse::<Algorithm>().is_err());
        assert!("".parse::<Algorithm>().is_err());
    }
}
