//! Reports on their way to the engine, and which of them may wait for others.

use std::time::{Duration, Instant};

use syncline_scheduler::core::{Outcome, TaskKey};

/// A finished attempt on its way to the engine.
pub(super) struct Finished {
    pub key: TaskKey,
    pub ended: Instant,
    pub outcome: Outcome,
}

/// How long a report waits for others while the worker has enough in hand: one commit then serves many short
/// steps.
pub(super) const REPORT_BATCH_WINDOW: Duration = Duration::from_millis(50);

/// With work for less than this in hand, the engine should hear at once what is done, so that more comes in
/// time: some ways there and back.
const LOW_WORK_US: u64 = 5_000;

/// Whether these reports, which may be sent together, must not wait for others. `queued`: tasks that are
/// still to do.
pub(super) fn is_urgent(reports: &[Finished], queued: u32) -> bool {
    let busy_us = |report: &Finished| match &report.outcome {
        Outcome::Iterated(it) => Some(it.busy_us()),
        Outcome::Prepared | Outcome::Evaluated(_) | Outcome::Failed { .. } => None,
    };
    let Some(last) = reports.last() else { return false };
    let Some(last_us) = busy_us(last) else { return true };
    // The next reports will come after about the same time: if that is too late to gather them, nothing is
    // won.
    let all_us: u64 = reports.iter().filter_map(busy_us).sum();
    last_us.saturating_mul(u64::from(queued)) < LOW_WORK_US
        || u128::from(all_us) >= REPORT_BATCH_WINDOW.as_micros()
}

#[cfg(test)]
pub(super) mod tests {
    use syncline_scheduler::{
        core::{Blame, Iterated},
        fault_code::FaultCode,
        graph::TaskId,
        ids::{Generation, Incarnation, RunId},
    };

    use super::*;

    pub(in crate::worker) fn key(seq: u64) -> TaskKey {
        let task = TaskId::Iteration { worker: Incarnation(1), seq };
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        TaskKey { run, task, attempt: 1 }
    }

    fn iterated(compute_us: u64) -> Outcome {
        Outcome::Iterated(Iterated { compute_us, ..Iterated::default() })
    }

    #[test]
    fn a_report_waits_only_if_others_will_come_in_time_and_work_is_left() {
        let failed =
            || Outcome::Failed { code: FaultCode::new("E460"), reason: String::new(), blame: Blame::Job };
        #[rustfmt::skip]
        let cases: Vec<(&str, Vec<Outcome>, u32, bool)> = vec![
            ("nothing to say",           vec![],                               0,  false),
            ("short steps, much to do",  vec![iterated(2_000)],                3,  false),
            ("short steps, little left", vec![iterated(2_000)],                2,  true),
            ("the last one",             vec![iterated(2_000)],                0,  true),
            ("a long step",              vec![iterated(50_000)],               10, true),
            ("just below",               vec![iterated(49_999)],               10, false),
            ("a round of short steps",   vec![iterated(2_000), iterated(2_000)], 3, false),
            ("a long round",             vec![iterated(25_000), iterated(25_000)], 10, true),
            ("a failure",                vec![failed()],                       10, true),
        ];
        for (name, outcomes, queued, want) in cases {
            let ended = Instant::now();
            let reports: Vec<_> =
                outcomes.into_iter().map(|outcome| Finished { key: key(1), ended, outcome }).collect();
            assert_eq!(is_urgent(&reports, queued), want, "{name}");
        }
    }
}
