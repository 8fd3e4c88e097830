//! Work in the background that ends with the run of the job for which it is done.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use syncline_rpc::threads::lock;
use syncline_scheduler::ids::RunId;
use tokio::task::AbortHandle;

/// Tasks of this process by the run that they serve; clones share them.
#[derive(Clone, Default)]
pub(super) struct RunWork(Arc<Mutex<Running>>);

#[derive(Default)]
struct Running {
    handles: HashMap<RunId, Vec<AbortHandle>>,
    /// Started since the last time that finished ones were looked for.
    started: usize,
    /// Left then.
    left: usize,
}

impl Running {
    /// Looks at all of them each time that they may have doubled.
    fn forget_finished(&mut self) {
        self.started += 1;
        if self.started <= self.left + LOOK_EVERY {
            return;
        }
        self.handles.retain(|_, handles| {
            handles.retain(|handle| !handle.is_finished());
            !handles.is_empty()
        });
        (self.started, self.left) = (0, self.handles.values().map(Vec::len).sum());
    }
}

/// So many are started at least from one look at the finished ones to the next.
const LOOK_EVERY: usize = 64;

impl RunWork {
    /// Starts work that ends with one run of a job.
    pub(super) fn spawn(&self, run: &RunId, work: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(work).abort_handle();
        let mut running = lock(&self.0);
        running.handles.entry(run.clone()).or_default().push(handle);
        running.forget_finished();
    }

    /// Ends everything that was started for one run of a job.
    pub(super) fn end(&self, run: &RunId) {
        let handles = lock(&self.0).handles.remove(run).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
    }

    /// Ends everything that was started for earlier runs of a job.
    pub(super) fn end_before(&self, run: &RunId) {
        let mut running = lock(&self.0);
        let earlier = running.handles.extract_if(|other, _| run.follows(other));
        earlier.for_each(|(_, handles)| handles.iter().for_each(AbortHandle::abort));
    }

    /// Ends all of it.
    pub(super) fn end_all(&self) {
        lock(&self.0).handles.drain().for_each(|(_, handles)| handles.iter().for_each(AbortHandle::abort));
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::Generation;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_runs_for_a_job_ends_with_its_run_and_all_of_it_with_the_engine() {
        let work = RunWork::default();
        let run = |number| RunId { job: "digits".parse().unwrap(), generation: Generation(number) };
        let start = |number| {
            let (running, ended) = oneshot::channel::<()>();
            work.spawn(&run(number), async move {
                std::future::pending::<()>().await;
                drop(running);
            });
            ended
        };
        let [first, second, mut third] = [1, 2, 3].map(start);
        work.end(&run(1));
        assert!(first.await.is_err(), "aborted");
        work.end_before(&run(3));
        assert!(second.await.is_err(), "aborted");
        assert!(third.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty));
        work.end_all();
        assert!(third.await.is_err(), "aborted");
    }
}
