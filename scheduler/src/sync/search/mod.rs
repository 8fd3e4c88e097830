//! The search for the next moment at which all workers should meet.
//!
//! In: for each worker the predicted end times of its next iterations, in µs on the scheduler's clock. Out:
//! one point per worker such that the span (latest − earliest) is smallest, hence the longest wait is
//! shortest. Pure. Source: Zhao et al., ElasticBSP, ICDM 2019, arXiv:2001.01347; ZipLine, Machine Learning
//! 2021, doi:10.1007/s10994-021-06064-w.
//!
//! Among equal spans the earliest meeting wins. Where several points of a worker fit (only if some are at the
//! same time, or as early as the window begins), `default` and `heap` take the latest that is not later than
//! the meeting; the published forms take what they met on their way, in the order of time, then row, then
//! index.
//!
//! | [`Algorithm`] | exact | time | memory |
//! |---|---|---|---|
//! | `default` | yes | O(n log n + V log n), V ≤ nR | O(n) |
//! | `zipline` | yes | O(Rn²) | O(Rn) |
//! | `zipline-opt`, `zipline-opt-bs` | yes | O(Rn²), smaller constant | O(Rn) |
//! | `heap` | yes | O(nR log n) | O(n) |
//! | `grid-scan` | no | O(R²n) | O(n) |
//! | `full-grid-scan` | no | O(R²n²) | O(n) |
//!
//! `benches/zipline.rs` measures them all.

mod algorithm;
mod grid_scan;
mod heap_merge;
mod narrowest;
mod points;
mod skipping;
mod ticks;
mod timeline;
mod tournament;
mod window;
mod within;
mod workload;
mod zipline;
mod zipline_opt;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, InvalidAlgorithm, search};
pub use narrowest::{alternatives, narrowest_window};
pub use points::{Points, Row};
pub use ticks::{Ticks, Time};
pub use window::{Alternative, Window};
pub use within::{InvalidSlack, Slack, earliest_within};
pub use workload::papers_rows;
