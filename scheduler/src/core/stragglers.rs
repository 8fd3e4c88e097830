//! Names workers that are persistently much slower than the others.

use super::job::Job;
use crate::ids::Incarnation;

/// A worker this many times as slow as the median is slow; below the second factor it is not any more.
const SLOW: f64 = 1.5;
const NOT_SLOW: f64 = 1.3;
/// Who was slow stays so at least this long: short steps on a busy machine would change it many times a second.
const SLOW_AT_LEAST_US: u64 = 1_000_000;
/// Iterations of each worker, on average, between two looks.
const LOOK_EVERY: u64 = 4;

impl Job {
    /// Looks at the speeds now and then. Amortized cost per iteration O(log n).
    pub(super) fn detect_stragglers(&mut self, now_us: u64) {
        let workers = self.clocks.len() as u64;
        if workers < 2 || !self.state.counters.done.is_multiple_of(LOOK_EVERY * workers) {
            return;
        }
        let speed = |w: Incarnation| Some((w, 1e6 / self.members[&w].speed.samples_per_s()?));
        let mut each: Vec<(Incarnation, f64)> = self.active().filter_map(speed).collect();
        each.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(_, median)) = each.get((each.len().saturating_sub(1)) / 2) else { return };
        for (worker, us_per_sample) in each {
            let factor = us_per_sample / median;
            let slow = self.members[&worker].straggler;
            let now_slow = match slow {
                Some(s) => factor >= NOT_SLOW || now_us < s.since_us + SLOW_AT_LEAST_US,
                None => factor >= SLOW,
            };
            if !now_slow && slow.is_none() {
                continue;
            }
            let since_us = slow.map_or(now_us, |s| s.since_us);
            if now_slow != slow.is_some() {
                let what = if now_slow { "worker_slow" } else { "worker_recovered" };
                let mut fields = self.about_worker(worker);
                fields.push(("factor", format!("{factor:.2}")));
                self.event(what, now_us, fields);
            }
            self.member_mut(worker).straggler = now_slow.then_some(super::Straggler { since_us, factor });
        }
    }
}
