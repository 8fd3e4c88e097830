//! What a search answers: when to meet, and where each worker stops.

use serde::{Deserialize, Serialize};

use super::Points;

/// The narrowest window and who stops where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Predicted wait of the worker that waits longest.
    pub span_us: u64,
    /// When the last worker arrives.
    pub sync_at_us: u64,
    /// Per row, the index of the point at which that worker stops.
    pub index: Vec<u32>,
}

/// A window without its indices: one that a search weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alternative {
    /// Predicted wait of the worker that waits longest.
    pub span_us: u64,
    /// When the last worker arrives.
    pub sync_at_us: u64,
}

impl Window {
    /// The window that ends at `sync_at_us`, every worker at its latest point that is not later: of all
    /// points that keep the span this is the most work and the least waiting.
    ///
    /// `None` if some row has no point that early. Cost: one [`Points::latest`] per row.
    pub(super) fn ending_at<P: Points>(rows: &[P], span_us: u64, sync_at_us: u64) -> Option<Self> {
        let index = rows.iter().map(|row| row.latest(sync_at_us)).collect::<Option<_>>()?;
        Some(Self { span_us, sync_at_us, index })
    }
}
