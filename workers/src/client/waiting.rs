//! Waiting for the end of a job.

use std::time::Duration;

use syncline_rpc::{status::JobView, within};
use syncline_scheduler::ids::{JobId, JobRef};
use tokio::time::{Instant, sleep};

use super::{
    Client, ClientError, Patience,
    calls::{CALL_TIMEOUT, POLL_TIMEOUT},
};

/// How long at least a job is waited for that nobody can be asked about: it may go on all the same.
const WAIT: Patience = Patience::all(Duration::from_secs(300));
/// Pause between two polls of a job that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Tells of a job that stands otherwise than when it was told of last.
fn tell_change(told: &mut Option<JobView>, view: &JobView, on_change: &mut impl FnMut(&JobView)) {
    if told.as_ref() != Some(view) {
        on_change(view);
        *told = Some(view.clone());
    }
}

impl Client {
    /// For how long whoever waits for what a job gives asks on.
    pub(super) fn to_wait(&self) -> Patience {
        WAIT.or_longer(self.patience)
    }

    /// Waits until the job is done and its last weights are kept, and calls `on_change` with how it stands:
    /// once at the beginning, then whenever that has changed, the end included. It is the job that has
    /// the name at the beginning: one that takes it later is another. Where it is not known any more to an
    /// engine that has just taken the lead, which may have found a wrong Redis, it is waited for as well.
    ///
    /// # Errors
    /// E506 if it failed, with the code of its reason beside it, E507 if it was canceled, E642 if its last
    /// weights are lost, E131 if there is no such job, E650 if it was replaced meanwhile, E143 if the
    /// engine is of another release; E300 if no engine was reached for five minutes, or as long as its
    /// [patience](Self::with_patience) is if that is longer, E136 if none led.
    pub async fn wait(&self, job: &JobId, on_change: impl FnMut(&JobView)) -> Result<JobView, ClientError> {
        self.wait_for(&job.clone().into(), None, on_change).await
    }

    /// The same of the job of one submission. `seen`: when it was there, as far as is known.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[doc(hidden)]
    pub async fn wait_for(
        &self,
        job: &JobRef,
        mut seen: Option<Instant>,
        mut on_change: impl FnMut(&JobView),
    ) -> Result<JobView, ClientError> {
        let (mut job, mut told) = (job.clone(), None);
        loop {
            let record = match (self.poll(&job, self.to_wait()).await, seen) {
                (Err(error), Some(seen)) if self.may_come_back(&error, seen.elapsed()).await => {
                    sleep(POLL_INTERVAL).await;
                    continue;
                }
                (record, _) => record?,
            };
            seen = Some(Instant::now());
            let view = JobView::read(&record)?;
            job.nonce = job.nonce.or(view.job.nonce);
            tell_change(&mut told, &view, &mut on_change);
            if view.job.is_settled() {
                return ClientError::of_outcome(&view.job).map(|()| view);
            }
            match view.job.tasks {
                Some(_) => self.until_over(&job, POLL_INTERVAL).await,
                None => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Whether the job is over, without anything else of it.
    ///
    /// # Errors
    /// E131 if there is no such job, E650 if another has its name by now; E300 if no engine is reached, E136
    /// if none leads.
    #[doc(hidden)]
    pub async fn is_over(&self, job: &JobRef) -> Result<bool, ClientError> {
        self.retry(|c| {
            let job = job.clone();
            async move { c.wait_job(within(POLL_TIMEOUT), job, 0).await }
        })
        .await
    }

    /// Refuses a job whose name another one has by now: what was read by the name may be of that one.
    ///
    /// # Errors
    /// As [`is_over`](Self::is_over).
    #[doc(hidden)]
    pub async fn check_not_replaced(&self, job: &JobRef) -> Result<(), ClientError> {
        self.is_over(job).await.map(drop)
    }

    /// Waits so long, or until the job is over: jobs of tasks may be over within milliseconds. What goes
    /// wrong shows at the next poll.
    pub(super) async fn until_over(&self, job: &JobRef, wait: Duration) {
        let since = Instant::now();
        let wait_ms = wait.as_millis() as u64;
        let over = self
            .once(|c| {
                let job = job.clone();
                async move { c.wait_job(within(wait + CALL_TIMEOUT), job, wait_ms).await }
            })
            .await;
        if !matches!(over, Ok(true)) {
            sleep(wait.saturating_sub(since.elapsed())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_rpc::{EngineAddresses, JobRecord, Token};

    use super::*;

    #[test]
    fn who_waits_for_a_job_asks_on_for_five_minutes_at_least_and_longer_if_told_so() {
        let client = Client::new("a:1".parse::<EngineAddresses>().unwrap(), Token::generate());
        let limit_s =
            |limit| client.clone().with_patience(Patience::all(Duration::from_secs(limit))).to_wait();
        assert_eq!(limit_s(0), Patience::all(Duration::from_secs(300)));
        assert_eq!(limit_s(7_200), Patience::all(Duration::from_secs(7_200)));
    }

    fn view(samples: &str) -> JobView {
        let fields = [("id", "digits"), ("state", "damaged"), ("reason", samples)];
        let job = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        JobView::read_or_damaged(&JobRecord { job, ..JobRecord::default() }).unwrap()
    }

    #[test]
    fn who_waits_is_told_of_a_job_when_it_has_changed() {
        let (mut told, mut heard) = (None, Vec::new());
        for samples in ["1", "1", "2", "2", "1"] {
            tell_change(&mut told, &view(samples), &mut |view| heard.push(view.job.reason.clone().unwrap()));
        }
        assert_eq!(heard, ["1", "2", "1"]);
    }
}
