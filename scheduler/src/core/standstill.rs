//! A training that runs and comes no further: who it waits for, in words that stay the same as long as it
//! stands.

use super::{job::Job, member::Membership, superstep::SuperstepPhase};
use crate::{ids::Incarnation, sync::EndRule};

/// Without a sample for so long, and for several times the longest step, a job stands.
const STANDS_AFTER_US: u64 = 10_000_000;
const STEPS: u64 = 4;
/// Workers that are named.
const NAMED: usize = 4;

impl Job {
    /// Who has not done what the others wait for; `None` if it goes on. Cost O(1) as long as it does.
    pub(super) fn describe_standstill(&self, now_us: u64) -> Option<String> {
        let since_us = now_us.saturating_sub(self.state.recent_rate.progress_us());
        if since_us < STANDS_AFTER_US || self.state.trained_us.is_some() {
            return None;
        }
        let longest_us = self.members.values().map(|m| m.interval_us).max().unwrap_or(0);
        if since_us < longest_us.saturating_mul(STEPS) {
            return None;
        }
        // Those that are being sealed hold everybody, too, until all shards have answered.
        let sealing = |w: &Incarnation| matches!(self.members[w].membership, Membership::Sealing { .. });
        if let Some(worker) = self.members.keys().find(|w| sealing(w)) {
            return Some(format!(
                "the shards, which have not all said how far {} came",
                self.display_name(*worker)
            ));
        }
        let open = self.supersteps.iter().find(|(_, record)| !record.is_closed());
        let awaited: Vec<Incarnation> = match open {
            Some((_, record)) if !matches!(record.phase, SuperstepPhase::Open(EndRule::Free)) => {
                let is_late = |w: &Incarnation, last: Option<u64>| {
                    let member = self.members.get(w)?;
                    Some(last.map_or(member.outstanding() > 0, |last| member.finished < last))
                };
                let late = record.roster.iter().filter(|(w, e)| is_late(w, e.last) == Some(true));
                late.map(|(w, _)| *w).collect()
            }
            _ => self.active().filter(|w| self.members[w].outstanding() > 0).collect(),
        };
        // Nothing could be heard of one that joined only now.
        let is_late = |w: &Incarnation| now_us.saturating_sub(self.members[w].last_end_us) >= STANDS_AFTER_US;
        let late: Vec<Incarnation> = awaited.iter().copied().filter(is_late).collect();
        match (self.name_some(&late, NAMED), open) {
            (None, _) if !awaited.is_empty() => None,
            (None, Some((barrier, record))) if record.phase == SuperstepPhase::Ordered => {
                Some(format!("the shards, which have not closed barrier {barrier}"))
            }
            (None, _) => None,
            (Some(names), _) => Some(format!(
                "{names}: nothing was heard of an iteration for {} s or more; `syncline workers` says what each waits for",
                STANDS_AFTER_US / 1_000_000
            )),
        }
    }
}
