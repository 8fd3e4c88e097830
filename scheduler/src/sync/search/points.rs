//! The points that a search chooses from: predicted end times of one worker's next iterations.

use serde::{Deserialize, Serialize};

/// Predicted end points of one worker: `first_us + i · interval_us` for `i` in `0..count`.
///
/// A point beyond `u64::MAX` counts as `u64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The earliest point at which this worker may be told to stop.
    pub first_us: u64,
    /// Predicted time of one iteration. Zero is allowed: all points coincide.
    pub interval_us: u64,
    /// R, the number of predicted points.
    pub count: u32,
}

/// Ascending (not strictly) time points of one worker: a [`Row`], or any slice of them such as `Vec<u64>`.
pub trait Points {
    /// Number of points.
    fn count(&self) -> u32;
    /// Point `i`, for `i < count()`.
    fn at(&self, i: u32) -> u64;
    /// Index of the latest point ≤ `until_us`; `None` if all are later (or there is none).
    fn latest(&self, until_us: u64) -> Option<u32>;
    /// The longest distance between neighbors, 0 for a single point; `None` if there is no point, or if the
    /// points are not ascending.
    fn longest_gap(&self) -> Option<u64>;
}

impl Points for Row {
    fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, i: u32) -> u64 {
        self.first_us.saturating_add(self.interval_us.saturating_mul(u64::from(i)))
    }

    fn latest(&self, until_us: u64) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        let ahead = until_us.checked_sub(self.first_us)?;
        // At u64::MAX every point has come, also those that were cut off there.
        let i = if until_us == u64::MAX { None } else { ahead.checked_div(self.interval_us) };
        Some(i.map_or(last, |i| u32::try_from(i).unwrap_or(last).min(last)))
    }

    fn longest_gap(&self) -> Option<u64> {
        (self.count > 0).then_some(self.interval_us)
    }
}

impl<T: AsRef<[u64]>> Points for T {
    fn count(&self) -> u32 {
        u32::try_from(self.as_ref().len()).unwrap_or(u32::MAX)
    }

    fn at(&self, i: u32) -> u64 {
        self.as_ref()[i as usize]
    }

    fn latest(&self, until_us: u64) -> Option<u32> {
        let come = self.as_ref().partition_point(|&e| e <= until_us);
        u32::try_from(come).unwrap_or(u32::MAX).checked_sub(1)
    }

    fn longest_gap(&self) -> Option<u64> {
        let points = self.as_ref();
        let none = (!points.is_empty()).then_some(0);
        points.windows(2).fold(none, |longest, pair| Some(longest?.max(pair[1].checked_sub(pair[0])?)))
    }
}
