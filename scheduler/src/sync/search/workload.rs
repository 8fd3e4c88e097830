//! Rows to measure with: what the ElasticBSP authors' generator makes.

use super::Row;
use crate::samples::splitmix64;

/// Pushes that the generator lets every worker make before it predicts.
const PUSHES: u64 = 20;

/// Predictions for `workers` workers in ms, as the data generator beside the ElasticBSP papers draws them:
/// each worker starts within the first `workers` ms and takes a constant 1000 to 1500 ms per iteration; after
/// 20 iterations of the slowest the others go on until all have come that far, and `lookahead` further
/// iterations are predicted.
///
/// The same for the same seed.
pub fn papers_rows(workers: u32, lookahead: u32, seed: u64) -> Vec<Row> {
    let mut state = seed;
    let mut below = |limit: u64| splitmix64(&mut state) % limit;
    let drawn: Vec<(u64, u64)> =
        (0..workers).map(|_| (below(u64::from(workers)), 1000 + below(501))).collect();
    let horizon_ms = drawn.iter().map(|(start, interval)| start + interval * PUSHES).max().unwrap_or(0);
    let row = |&(start, interval): &(u64, u64)| {
        let last = start + interval * (horizon_ms - start).div_ceil(interval);
        Row { first_us: last + interval, interval_us: interval, count: lookahead }
    };
    drawn.iter().map(row).collect()
}
