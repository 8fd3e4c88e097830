//! The cluster as a whole, asked for once for all who look on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use syncline_rpc::status::{EngineStatus, JobStatus, LiveWorker};
use syncline_workers::client::Client;
use tokio::sync::Mutex;

use crate::cli::Failure;

/// An answer that is younger is given again.
const FRESH_FOR: Duration = Duration::from_millis(500);
/// Jobs that are over of which it tells; the newest.
const MOST_OVER: usize = 100;

/// The engine that leads, the jobs and the workers.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    pub engine: EngineStatus,
    /// Oldest first: all that are not over, and the newest that are.
    pub jobs: Vec<JobStatus>,
    /// Jobs that are over and left out.
    pub left_out: usize,
    pub workers: Vec<LiveWorker>,
}

/// What was answered last, and when.
type Kept = (Instant, Result<Arc<Overview>, Arc<Failure>>);

#[derive(Default)]
pub(super) struct Overviews {
    kept: Mutex<Option<Kept>>,
}

impl Overviews {
    /// As of less than a second ago.
    pub(super) async fn get(&self, client: &Client) -> Result<Arc<Overview>, Arc<Failure>> {
        // Whoever comes while one asks is answered the same.
        let mut kept = self.kept.lock().await;
        if let Some((at, answer)) = kept.as_ref()
            && at.elapsed() < FRESH_FOR
        {
            return answer.clone();
        }
        let answer = ask(client).await.map(Arc::new).map_err(Arc::new);
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }
}

async fn ask(client: &Client) -> Result<Overview, Failure> {
    let engine = client.engine().await?;
    let (jobs, left_out) = newest(client.jobs().await?, MOST_OVER);
    Ok(Overview { engine, jobs, left_out, workers: client.workers().await? })
}

/// All jobs that are not over and the newest that are, in their order, and how many were left out.
fn newest(mut jobs: Vec<JobStatus>, most_over: usize) -> (Vec<JobStatus>, usize) {
    let left_out = jobs.iter().filter(|job| job.is_over()).count().saturating_sub(most_over);
    let mut over = 0;
    jobs.retain(|job| {
        over += usize::from(job.is_over());
        !job.is_over() || over > left_out
    });
    (jobs, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::support::describe::tests::job;

    #[test]
    fn of_jobs_that_are_over_the_newest_are_told_and_of_the_others_all() {
        let states = ["done", "running", "failed", "queued", "canceled"];
        let jobs = || states.map(|state| job(&[("id", state), ("state", state)])).to_vec();
        let names = |most| {
            let (jobs, left_out) = newest(jobs(), most);
            (jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>().join(" "), left_out)
        };
        assert_eq!(names(3), ("done running failed queued canceled".into(), 0));
        assert_eq!(names(2), ("running failed queued canceled".into(), 1));
        assert_eq!(names(0), ("running queued".into(), 3));
    }
}
