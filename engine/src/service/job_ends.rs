//! Callers that wait for the end of a job.

use std::future::pending;

use syncline_scheduler::ids::JobId;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, timeout_at},
};

/// Ends that a caller who is slow may be behind; one who missed some looks again.
const ENDS_KEPT: usize = 256;

/// Tells everybody who waits which jobs are over; clones share it.
#[derive(Clone)]
pub(super) struct JobEnds(broadcast::Sender<JobId>);

impl Default for JobEnds {
    fn default() -> Self {
        Self(broadcast::Sender::new(ENDS_KEPT))
    }
}

/// One caller, who learns of every end since it was made.
pub(super) struct EndWatch(broadcast::Receiver<JobId>);

impl JobEnds {
    /// The end of a job is committed.
    pub(super) fn publish(&self, job: &JobId) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(job.clone());
        }
    }

    pub(super) fn watch(&self) -> EndWatch {
        EndWatch(self.0.subscribe())
    }
}

impl EndWatch {
    /// Waits until the job may be over; `false` if it was not until `deadline`.
    pub(super) async fn ended(&mut self, job: &JobId, deadline: Instant) -> bool {
        let named = async {
            loop {
                match self.0.recv().await {
                    Ok(over) if over != *job => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => pending().await,
                }
            }
        };
        timeout_at(deadline, named).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_caller_learns_of_its_own_job_and_of_having_missed_some() {
        let (ends, mine, other) = (JobEnds::default(), "mine".parse().unwrap(), "other".parse().unwrap());
        let soon = || Instant::now() + Duration::from_millis(10);
        ends.publish(&mine);
        let mut watch = ends.watch();
        ends.publish(&other);
        assert!(!watch.ended(&mine, soon()).await);
        ends.publish(&mine);
        assert!(watch.ended(&mine, soon()).await);
        for _ in 0..=ENDS_KEPT {
            ends.publish(&other);
        }
        assert!(watch.ended(&mine, soon()).await, "it may have been among those that were missed");
    }
}
