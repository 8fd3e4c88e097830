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
            "started" => info!(%job, workers = f("workers"), "job started"),
            "trained" => info!(%job, barriers = f("barriers"), "job trained"),
            "job_ended" => match f("state") {
                "failed" => warn!(%job, code = f("code"), reason = f("reason"), "job failed"),
                "canceled" => info!(%job, "job canceled"),
                _ => info!(%job, "job done"),
            },
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
            "attempt_failed" => {
                warn!(%job, task = f("task"), code = f("code"), reason = f("reason"), "attempt failed");
            }
            _ => {}
        }
    }
    if commit.gone {
        info!(%job, "job deleted");
    }
}
