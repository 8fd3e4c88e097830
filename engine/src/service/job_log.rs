//! Events of jobs in the engine's log: one line each, after the commit.

use syncline_scheduler::{core::Commit, ids::JobId};
use tracing::{info, warn};

type Event = [(&'static str, String)];

fn field<'a>(event: &'a Event, name: &str) -> &'a str {
    event.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
}

/// Logs the events of a commit that matter to an operator.
pub(super) fn log_commit(job: &JobId, commit: &Commit) {
    for event in &commit.events {
        let f = |name| field(event, name);
        match f("what") {
            "job_submitted" => info!(%job, nodes = f("nodes"), "job submitted"),
            "started" => match f("tasks") {
                "" => info!(%job, workers = f("workers"), "job started"),
                tasks => info!(%job, tasks, "job started"),
            },
            "trained" => info!(%job, barriers = f("barriers"), "job trained"),
            "job_ended" => match f("state") {
                "failed" => warn!(%job, code = f("code"), reason = f("reason"), "job failed"),
                "canceled" => info!(%job, reason = f("reason"), "job canceled"),
                _ => info!(%job, "job done"),
            },
            "worker_gone" => warn!(%job, worker = f("worker"), tasks = f("tasks"), "job lost a worker"),
            "worker_lost" => {
                warn!(%job, worker = f("worker"), name = f("name"), reason = f("reason"), "job lost a worker");
            }
            "worker_excluded" => warn!(
                %job,
                worker = f("worker"),
                name = f("name"),
                host = f("host"),
                code = f("code"),
                reason = f("reason"),
                "job excludes a worker for now"
            ),
            // A general task names who had it. It is one of many, and the events tell of it.
            "attempt_failed" if f("worker").is_empty() && f("training").is_empty() => {
                warn!(%job, task = f("task"), code = f("code"), reason = f("reason"), "attempt failed");
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

    fn event(fields: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    #[test]
    fn what_an_operator_must_know_is_a_warning_and_what_is_of_no_use_is_not_logged() {
        let failed =
            event(&[("what", "job_ended"), ("state", "failed"), ("code", "E220"), ("reason", "gone")]);
        let events = vec![event(&[("what", "barrier_closed")]), failed];
        let lines = logged(&Commit { events, ..Commit::default() });
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
        let failed = [("what", "attempt_failed"), ("task", "evaluate"), ("attempt", "1"), ("code", "E406")];
        let of = |by: &[(&'static str, &str)]| {
            let events = vec![event(&[&failed[..], by].concat())];
            logged(&Commit { events, ..Commit::default() })
        };
        let lines = of(&[]);
        assert!(lines.contains("attempt failed") && lines.contains("E406"), "{lines}");
        assert_eq!(of(&[("worker", "w1")]) + &of(&[("training", "fit")]), "");
    }
}
