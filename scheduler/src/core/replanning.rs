//! A worker takes much longer than was predicted when its superstep was planned: the superstep is planned
//! again with what is known now, so that the others do not wait for iterations that will come late.
//!
//! A roster can only become shorter: iterations that are granted stay, those beyond may be cut, and their
//! samples go back to the pool. No shard can have closed the barrier meanwhile, because the late worker has
//! not reached its old last iteration and will never be granted it.

use std::collections::BTreeMap;

use super::{event::Happening, job::Job, member::Member, superstep::SuperstepPhase, turn::Turn};
use crate::{
    graph::TaskId,
    ids::{Incarnation, Superstep},
    samples::SampleRange,
    sync::{EndRule, Plan, remaining_rows},
};

/// Reports of short iterations are sent together, and on their way for a while: what is not reported yet for
/// that reason is not late.
const GATHERED_US: u64 = 50_000;
const GATHERING_US: f64 = 100_000.0;

impl Job {
    /// Looks for workers that overran their predictions. Cost O(workers) while a planned superstep runs.
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        let Some(factor) = self.state.policy.as_dyn().overrun_factor() else { return };
        let Some(superstep) = self.planned_superstep() else { return };
        let late = self.overrunning(superstep, factor, turn.now_us);
        if late.is_empty() {
            return;
        }
        let roster = &self.supersteps[&superstep].roster;
        let last = |w| roster.get(&w).and_then(|entry| entry.last);
        let mut seen = self.worker_progress(superstep);
        let rows = remaining_rows(self.state.policy.as_dyn(), turn.now_us, &mut seen, &late, last);
        turn.effects.push(self.plan_request_for(superstep, rows, self.supersteps[&superstep].revision));
    }

    /// The planned superstep that runs, if nothing behind it depends on where it ends.
    fn planned_superstep(&self) -> Option<Superstep> {
        let (&superstep, record) = self.supersteps.iter().find(|(_, s)| !s.is_closed())?;
        let planned = record.phase == SuperstepPhase::Ordered && !record.predicted.is_empty();
        let mut later = self.supersteps.range(Superstep(superstep.0 + 1)..);
        let free = later.all(|(_, s)| matches!(s.phase, SuperstepPhase::Open(EndRule::Monitor { .. })));
        (planned && free).then_some(superstep)
    }

    /// Workers with iterations still to be granted whose present one takes more than `factor` times its
    /// prediction, and for how long it has run.
    fn overrunning(&self, superstep: Superstep, factor: f64, now_us: u64) -> BTreeMap<Incarnation, u64> {
        let record = &self.supersteps[&superstep];
        let predicted: BTreeMap<_, _> =
            record.predicted.iter().map(|row| (row.worker, row.points.interval_us)).collect();
        let late = |worker: &Incarnation, last: u64| {
            let member = self.members.get(worker)?;
            let next = TaskId::Iteration { worker: *worker, seq: member.finished + 1 };
            // What it was not granted before a gate opened, it could not begin.
            let granted_us = self.tasks.get(&next).map_or(0, |task| task.created_ms * 1000);
            let elapsed_us = now_us.saturating_sub(member.last_end_us.max(granted_us));
            let predicted_us = *predicted.get(worker)?;
            let gathering_us = if predicted_us < GATHERED_US { GATHERING_US } else { 0.0 };
            let limit_us = predicted_us as f64 * factor + gathering_us;
            let open = member.granted < last && member.outstanding() > 0;
            (open && elapsed_us as f64 > limit_us).then_some((*worker, elapsed_us))
        };
        record.roster.iter().filter_map(|(w, entry)| late(w, entry.last?)).collect()
    }

    /// Takes over a plan made for late workers.
    pub(super) fn apply_replan(&mut self, superstep: Superstep, plan: Plan, turn: &mut Turn<'_>) {
        // A worker may have been granted more since, or the next superstep may have gone on.
        if self.planned_superstep() != Some(superstep) {
            return;
        }
        let mut cut = Vec::new();
        for (worker, entry) in &self.supersteps[&superstep].roster {
            let (Some(last), Some(&wanted)) = (entry.last, plan.last.get(worker)) else { continue };
            let wanted = wanted.max(self.members[worker].granted);
            if wanted < last {
                cut.push((*worker, wanted, entry.batch));
            }
        }
        if cut.is_empty() {
            return;
        }
        for &(worker, last, batch) in &cut {
            let returned = self.member_mut(worker).truncate_reserved(last, batch);
            for range in returned {
                self.samples_set_aside -= u64::from(range.len);
                self.miss(superstep, range);
                self.put_back(range);
            }
            for (n, record) in &mut self.supersteps {
                if let Some(entry) = record.roster.get_mut(&worker) {
                    match n.0.cmp(&superstep.0) {
                        std::cmp::Ordering::Equal => entry.last = Some(last),
                        std::cmp::Ordering::Greater => entry.base = last,
                        std::cmp::Ordering::Less => continue,
                    }
                    self.changes.supersteps.insert(*n);
                }
            }
        }
        self.state.counters.replanned += 1;
        let names: Vec<String> =
            cut.iter().map(|(w, last, _)| format!("{} ends at {last}", self.display_name(*w))).collect();
        let replanned = Happening::SuperstepReplanned { barrier: superstep, shortened: names.join(", ") };
        self.tell(replanned, turn.now_us);
        self.superstep_mut(superstep).follow(plan);
        self.reissue_barrier(superstep, turn.effects);
    }
}

impl Member {
    /// Gives up reserved iterations beyond `last`; returns their samples.
    fn truncate_reserved(&mut self, last: u64, batch: u32) -> Vec<SampleRange> {
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
