//! Events of jobs in the engine's log: one line each, after the commit.

use syncline_scheduler::{
    core::{Begun, Commit, Happening, Phase, Submitted},
    ids::JobId,
};
use tracing::{info, warn};

/// Logs the events of a commit that matter to an operator. What happens to one of many tasks the events alone
/// tell.
pub(super) fn log_commit(job: &JobId, commit: &Commit) {
    for event in &commit.events {
        match &event.what {
            Happening::JobSubmitted(Submitted::Training { nodes }) => info!(%job, nodes, "job submitted"),
            Happening::JobSubmitted(Submitted::Tasks) => info!(%job, "job submitted"),
            Happening::Started(Begun::Workers(workers)) => info!(%job, workers, "job started"),
            Happening::Started(Begun::Tasks(tasks)) => info!(%job, tasks, "job started"),
            Happening::Trained { barriers } => info!(%job, barriers, "job trained"),
            Happening::JobEnded { phase: Phase::Failed { code, reason }, .. } => {
                warn!(%job, %code, reason, "job failed");
            }
            Happening::JobEnded { phase: Phase::Canceled, cancel_reason: reason } => {
                info!(%job, reason, "job canceled");
            }
            Happening::JobEnded { .. } => info!(%job, "job done"),
            Happening::WorkerGone { worker, tasks } => warn!(%job, %worker, tasks, "job lost a worker"),
            Happening::WorkerLost { worker, reason } => {
                warn!(%job, worker = %worker.id, name = worker.name, reason, "job lost a worker");
            }
            Happening::WorkerExcluded { worker, host, fault, .. } => warn!(
                %job,
                worker = %worker.id,
                name = worker.name,
                host,
                code = %fault.code,
                reason = fault.reason,
                "job excludes a worker for now"
            ),
            Happening::NodeFailed { task, fault, .. } => {
                warn!(%job, %task, code = %fault.code, reason = fault.reason, "attempt failed");
            }
            _ => {}
        }
    }
    if commit.gone {
        info!(%job, "job deleted");
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use syncline_scheduler::{
        core::{Assignee, Event, TaskFault},
        fault_code::FaultCode,
        graph::TaskId,
        ids::Incarnation,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(commit: &Commit) -> String {
        let (lines, job) = (Lines::default(), "digits".parse().unwrap());
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || log_commit(&job, commit));
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn of(what: Happening) -> Commit {
        Commit { events: vec![Event { at_us: 7, what }], ..Commit::default() }
    }

    #[test]
    fn what_an_operator_must_know_is_a_warning_and_what_is_of_no_use_is_not_logged() {
        let phase = Phase::Failed { code: FaultCode::new("E220"), reason: "gone".into() };
        let mut commit = of(Happening::Paused);
        commit.events.extend(of(Happening::JobEnded { phase, cancel_reason: String::new() }).events);
        let lines = logged(&commit);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        for part in ["WARN", "job failed", "job=digits", "E220", "gone"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        let deleted = logged(&Commit { gone: true, ..Commit::default() });
        assert!(deleted.contains("INFO") && deleted.contains("job deleted"), "{deleted}");
        assert_eq!(logged(&Commit::default()), "");
    }

    #[test]
    fn an_attempt_that_failed_is_logged_of_a_node_and_not_of_one_of_many_tasks() {
        let fault = || TaskFault { code: FaultCode::new("E406"), reason: "no space".into() };
        let task = TaskId::Node("evaluate".parse().unwrap());
        let lines = logged(&of(Happening::NodeFailed { task, attempt: 1, fault: fault() }));
        assert!(lines.contains("attempt failed") && lines.contains("E406"), "{lines}");
        for by in [Assignee::Worker(Incarnation(1)), Assignee::Training("fit".parse().unwrap())] {
            let failed = Happening::AttemptFailed { task: "3".into(), attempt: 1, by, fault: fault() };
            assert_eq!(logged(&of(failed)), "");
        }
    }
}
