//! A worker takes much longer than was predicted when its superstep was planned: the superstep is planned again with
//! what is known now, so that the others do not wait for iterations that will come late.
//!
//! A roster can only become shorter: iterations that are granted stay, those beyond may be cut, and their samples go
//! back to the pool. No shard can have closed the barrier meanwhile, because the late worker has not reached its old
//! last iteration and will never be granted it.

use std::collections::BTreeMap;

use super::{
    io::Effect,
    job::Job,
    state::{End, Member},
};
use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep},
    samples::SampleRange,
    sync::{Ending, Plan, rows_left},
};

impl Job {
    /// Looks for workers that overran their predictions. Cost O(workers) while a planned superstep runs.
    pub(super) fn tick(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let Some(factor) = self.central.policy.as_dyn().overrun_factor() else { return };
        let Some(superstep) = self.planned_superstep() else { return };
        let late = self.late(superstep, factor, now_us);
        if late.is_empty() {
            return;
        }
        let roster = &self.spans[&superstep].roster;
        let last = |w| roster.get(&w).and_then(|share| share.last);
        let mut seen = self.seen(superstep);
        let rows = rows_left(self.central.policy.as_dyn(), now_us, &mut seen, &late, last);
        fx.push(self.request(superstep, rows, self.spans[&superstep].revision));
    }

    /// The planned superstep that runs, if nothing behind it depends on where it ends.
    fn planned_superstep(&self) -> Option<Superstep> {
        let (&superstep, span) = self.spans.iter().find(|(_, s)| !s.is_closed())?;
        let planned = span.end == End::Ordered && !span.predicted.is_empty();
        let mut later = self.spans.range(Superstep(superstep.0 + 1)..);
        let free = later.all(|(_, s)| matches!(s.end, End::Open(Ending::Monitor { .. })));
        (planned && free).then_some(superstep)
    }

    /// Workers with iterations still to be granted whose present one takes more than `factor` times its prediction,
    /// and for how long it has run.
    fn late(&self, superstep: Superstep, factor: f64, now_us: u64) -> BTreeMap<Incarnation, u64> {
        let span = &self.spans[&superstep];
        let predicted: BTreeMap<_, _> =
            span.predicted.iter().map(|row| (row.worker, row.points.interval_us)).collect();
        let late = |worker: &Incarnation, last: u64| {
            let member = self.members.get(worker)?;
            let next = TaskId::Iteration { worker: *worker, seq: member.finished + 1 };
            // What it was not granted before a gate opened, it could not begin.
            let granted_us = self.tasks.get(&next).map_or(0, |task| task.created_ms * 1000);
            let elapsed_us = now_us.saturating_sub(member.last_end_us.max(granted_us));
            let limit_us = *predicted.get(worker)? as f64 * factor;
            let open = member.granted < last && member.outstanding() > 0;
            (open && elapsed_us as f64 > limit_us).then_some((*worker, elapsed_us))
        };
        span.roster.iter().filter_map(|(w, share)| late(w, share.last?)).collect()
    }

    /// Takes over a plan made for late workers.
    pub(super) fn shorten(&mut self, superstep: Superstep, plan: &Plan, now_us: u64, fx: &mut Vec<Effect>) {
        // A worker may have been granted more since, or the next superstep may have gone on.
        if self.planned_superstep() != Some(superstep) {
            return;
        }
        let mut cut = Vec::new();
        for (worker, share) in &self.spans[&superstep].roster {
            let (Some(last), Some(&wanted)) = (share.last, plan.last.get(worker)) else { continue };
            let wanted = wanted.max(self.members[worker].granted);
            if wanted < last {
                cut.push((*worker, wanted, share.batch));
            }
        }
        if cut.is_empty() {
            return;
        }
        for &(worker, last, batch) in &cut {
            let returned = self.member(worker).give_up(last, batch);
            for range in returned {
                self.put_back(range);
            }
            for (n, span) in &mut self.spans {
                if let Some(share) = span.roster.get_mut(&worker) {
                    match n.0.cmp(&superstep.0) {
                        std::cmp::Ordering::Equal => share.last = Some(last),
                        std::cmp::Ordering::Greater => share.base = last,
                        std::cmp::Ordering::Less => continue,
                    }
                    self.touched.spans.insert(*n);
                }
            }
        }
        self.central.counters.replanned += 1;
        let names: Vec<String> =
            cut.iter().map(|(w, last, _)| format!("{} ends at {last}", self.called(*w))).collect();
        let fields = vec![("barrier", superstep.to_string()), ("shortened", names.join(", "))];
        self.event("superstep_replanned", now_us, fields);
        let span = self.span(superstep);
        span.sync_at_us = Some(plan.sync_at_us);
        self.amend(superstep, fx);
    }
}

impl Member {
    /// Gives up reserved iterations beyond `last`; returns their samples.
    fn give_up(&mut self, last: u64, batch: u32) -> Vec<SampleRange> {
        let mut kept = last.saturating_sub(self.granted);
        let mut returned = Vec::new();
        let mut reserved = std::mem::take(&mut self.reserved);
        while let Some(mut range) = reserved.pop_front() {
            let iterations = u64::from(range.len.div_ceil(batch));
            if iterations <= kept {
                kept -= iterations;
                self.reserved.push_back(range);
                continue;
            }
            let len = (kept * u64::from(batch)) as u32;
            if len > 0 {
                self.reserved.push_back(SampleRange { len, ..range });
            }
            kept = 0;
            range.start += u64::from(len);
            range.len -= len;
            returned.push(range);
        }
        self.planned = last;
        returned
    }
}
