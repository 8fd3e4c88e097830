//! Batch sizes by prediction: the exact answer to LB-BSP's problem, in whole samples.
//!
//! The plain form gives one sample after the other to whoever would finish it earliest. Because no time falls
//! as a batch grows, that is the same as taking the cheapest (time, worker) pairs of all that are left, so
//! the time at which they run out can be bisected instead. Splitting in proportion to speed and rounding is
//! not optimal.

use super::{Bounds, Cost};

/// Batch sizes, one per worker, that make the longest predicted time as short as it can be.
///
/// They add up to `total` as far as bounds allow: to the sum of all `min` if that is more, to the sum of all
/// `max` if that is less. Among equal times the first worker gets the sample. Cost O(n) for each of at most
/// 64 bisections: a third of a millisecond for 1000 workers.
pub fn assign(total: u64, workers: &[(Cost, Bounds)]) -> Vec<u32> {
    let within = |us: f64| -> Vec<u32> {
        workers.iter().map(|(cost, bounds)| cost.most_within(us, bounds.min, bounds.most())).collect()
    };
    let sum = |batches: &[u32]| batches.iter().map(|&batch| u64::from(batch)).sum::<u64>();
    let least: Vec<u32> = workers.iter().map(|(_, bounds)| bounds.min).collect();
    let most: Vec<u32> = workers.iter().map(|(_, bounds)| bounds.most()).collect();
    if sum(&least) >= total {
        return least;
    }
    if sum(&most) <= total {
        return most;
    }
    // Times are not negative, so their bits are ordered as they are: the least time within which `total`
    // fits.
    let (mut low, mut high) = (0, f64::INFINITY.to_bits());
    while low < high {
        let middle = low + (high - low) / 2;
        if sum(&within(f64::from_bits(middle))) >= total { high = middle } else { low = middle + 1 }
    }
    // All that takes less; then, of what takes just as long, as much as is left.
    let mut batches = if high == 0 { least } else { within(f64::from_bits(high - 1)) };
    let mut left = total.saturating_sub(sum(&batches));
    for (batch, most) in batches.iter_mut().zip(within(f64::from_bits(high))) {
        let more = u64::from(most - *batch).min(left);
        *batch += more as u32;
        left -= more;
    }
    batches
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use proptest::prelude::*;

    use super::*;

    const ANY: Bounds = Bounds { min: 1, max: u32::MAX };

    fn longest_us(batches: &[u32], workers: &[(Cost, Bounds)]) -> f64 {
        batches.iter().zip(workers).map(|(&batch, (cost, _))| cost.us(batch)).fold(0.0, f64::max)
    }

    fn speeds(of: &[f64]) -> Vec<(Cost, Bounds)> {
        of.iter().map(|v| (Cost::Proportional { us_per_sample: 1.0 / v }, ANY)).collect()
    }

    /// One sample after the other to whoever finishes it earliest.
    fn by_greed(total: u64, workers: &[(Cost, Bounds)]) -> Vec<u32> {
        let mut batches: Vec<u32> = workers.iter().map(|(_, bounds)| bounds.min).collect();
        let next = |i: usize, batch: u32| {
            (batch < workers[i].1.most()).then(|| Reverse((workers[i].0.us(batch + 1).to_bits(), i)))
        };
        let mut heap: BinaryHeap<_> = batches.iter().enumerate().filter_map(|(i, &b)| next(i, b)).collect();
        let mut sum: u64 = batches.iter().map(|&b| u64::from(b)).sum();
        while sum < total
            && let Some(Reverse((_, i))) = heap.pop()
        {
            batches[i] += 1;
            sum += 1;
            heap.extend(next(i, batches[i]));
        }
        batches
    }

    /// The shortest longest time over all ways to hand out `total`.
    fn by_brute_force(total: u64, workers: &[(Cost, Bounds)]) -> Option<f64> {
        let Some(((cost, bounds), others)) = workers.split_first() else {
            return (total == 0).then_some(0.0);
        };
        (bounds.min..=bounds.most())
            .filter(|&batch| u64::from(batch) <= total)
            .filter_map(|b| Some(cost.us(b).max(by_brute_force(total - u64::from(b), others)?)))
            .min_by(f64::total_cmp)
    }

    /// In proportion to `1 / us_per_sample`, rounded by largest remainder.
    fn by_proportion(total: u64, speeds: &[f64]) -> Vec<u32> {
        let sum: f64 = speeds.iter().sum();
        let exact: Vec<f64> = speeds.iter().map(|v| total as f64 * v / sum).collect();
        let mut batches: Vec<u32> = exact.iter().map(|x| x.floor() as u32).collect();
        let mut order: Vec<usize> = (0..speeds.len()).collect();
        order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
        let left = total - batches.iter().map(|&b| u64::from(b)).sum::<u64>();
        order.into_iter().take(left as usize).for_each(|i| batches[i] += 1);
        batches
    }

    #[test]
    fn batches_table() {
        let flat = |flat_us| Cost::Curve { flat_us, fixed_us: 0.0, us_per_sample: 1.0 };
        let one = Cost::Proportional { us_per_sample: 1.0 };
        let bounds = |min, max| Bounds { min, max };
        #[rustfmt::skip]
        let cases = [
            ("no worker",                8,   vec![],                                          vec![]),
            ("one worker",               8,   vec![(one, ANY)],                                vec![8]),
            ("equal speeds",             8,   speeds(&[1.0; 4]),                               vec![2; 4]),
            ("ties go to the first",     10,  speeds(&[1.0; 4]),                               vec![3, 3, 2, 2]),
            ("one at half speed",        256, speeds(&[1.0, 1.0, 1.0, 0.5]),                   vec![74, 73, 73, 36]),
            ("memory cap",               9,   vec![(one, bounds(1, 2)), (one, ANY)],           vec![2, 7]),
            ("too few samples",          3,   vec![(one, bounds(2, 9)), (one, bounds(4, 9))],  vec![2, 4]),
            ("too many samples",         99,  vec![(one, bounds(2, 9)), (one, bounds(4, 8))],  vec![9, 8]),
            ("bounds crossed",           9,   vec![(one, bounds(3, 1)), (one, ANY)],           vec![3, 6]),
            ("fills what is flat first", 10,  vec![(one, bounds(0, 99)), (flat(6.0), ANY)],    vec![6, 4]),
            ("flat costs nothing more",  10,  vec![(flat(9.0), ANY), (one, ANY)],              vec![2, 8]),
        ];
        for (name, total, workers, want) in cases {
            assert_eq!(assign(total, &workers), want, "{name}");
            assert_eq!(by_greed(total, &workers), want, "{name}, greedy");
        }
    }

    #[test]
    fn equal_batches_take_mean_over_least_speed_times_as_long() {
        for (v, ratio) in
            [([1.0, 1.0, 1.0, 0.5], 1.75), ([1.0, 0.9, 0.8, 0.7], 0.85 / 0.7), ([1.0, 0.75, 0.5, 0.25], 2.5)]
        {
            let workers = speeds(&v);
            let ratio_at = |total: u64| {
                let equal = longest_us(&[(total / 4) as u32; 4], &workers);
                equal / longest_us(&assign(total, &workers), &workers)
            };
            assert!((ratio_at(4_000_000) / ratio - 1.0).abs() < 1e-5, "{v:?}");
            assert!((ratio_at(256) / ratio - 1.0).abs() < 0.05, "{v:?}");
        }
    }

    #[test]
    fn proportional_shares_rounded_by_largest_remainder_are_not_optimal() {
        // Shares of 5.4 and 0.6: the larger remainder is the slow worker's, whose only sample takes longer
        // than six.
        let v = [9.0, 1.0];
        let (rounded, exact) = (by_proportion(6, &v), assign(6, &with_least(0, &v)));
        assert_eq!((rounded.as_slice(), exact.as_slice()), (&[5, 1][..], &[6, 0][..]));
        let workers = with_least(0, &v);
        assert!(longest_us(&rounded, &workers) > 1.4 * longest_us(&exact, &workers));
    }

    fn with_least(min: u32, v: &[f64]) -> Vec<(Cost, Bounds)> {
        let bounds = Bounds { min, max: u32::MAX };
        speeds(v).into_iter().map(|(cost, _)| (cost, bounds)).collect()
    }

    #[test]
    fn a_thousand_workers_and_one_time_for_all() {
        let v: Vec<f64> = (0..1000).map(|i| 1.0 + f64::from(i % 7)).collect();
        let workers = speeds(&v);
        let batches = assign(128_000, &workers);
        assert_eq!(batches.iter().map(|&b| u64::from(b)).sum::<u64>(), 128_000);
        assert_eq!(batches, by_greed(128_000, &workers));
    }

    fn any_workers(max_workers: usize, max_batch: u32) -> impl Strategy<Value = Vec<(Cost, Bounds)>> {
        // Small whole numbers make many ties.
        let slope = || prop_oneof![(0u32..5).prop_map(f64::from), 0.0f64..3.0];
        let cost = prop_oneof![
            slope().prop_map(|us_per_sample| Cost::Proportional { us_per_sample }),
            (0u32..20, -9i32..9, slope()).prop_map(|(flat, fixed, us_per_sample)| Cost::Curve {
                flat_us: f64::from(flat),
                fixed_us: f64::from(fixed),
                us_per_sample
            }),
        ];
        let bounds = (0..=max_batch, 0..=max_batch).prop_map(|(min, max)| Bounds { min: min / 3, max });
        prop::collection::vec((cost, bounds), 0..max_workers)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn bisection_agrees_with_greed(workers in any_workers(12, 200), total in 0u64..1500) {
            prop_assert_eq!(assign(total, &workers), by_greed(total, &workers));
        }

        #[test]
        fn no_other_batches_are_faster(workers in any_workers(5, 9), total in 0u64..30) {
            let batches = assign(total, &workers);
            if let Some(best) = by_brute_force(total, &workers) {
                prop_assert_eq!(longest_us(&batches, &workers), best);
            }
        }
    }
}
