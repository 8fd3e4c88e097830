//! A worker of a local cluster, which runs again where it fails: as `syncline up` does with its processes.

use std::time::Duration;

use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tracing::error;

use crate::worker::{self, WorkerError, WorkerOptions};

/// Pause before it runs again; doubled each time that it fails soon.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Whoever has run so long begins with the first pause again.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// A worker that runs until it is told to stop, or dropped.
pub(super) struct LocalWorker {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl LocalWorker {
    pub(super) fn start(tasks: &Handle, options: WorkerOptions) -> Self {
        let (stop, stopped) = watch::channel(false);
        let name = options.name.clone();
        let run = move |stopped| worker::run(options.clone(), stopped);
        Self { stop, task: tasks.spawn(keep_running(name, stopped, run)) }
    }

    /// Asks it to leave.
    pub(super) fn request_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has left.
    pub(super) async fn ended(self) {
        // What it ran has said in the log how it failed.
        let _ = self.task.await;
    }
}

async fn keep_running<F>(
    name: String,
    mut stopped: watch::Receiver<bool>,
    run: impl Fn(watch::Receiver<bool>) -> F,
) where
    F: Future<Output = Result<(), WorkerError>> + Send + 'static,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        let cause = match tokio::spawn(run(stopped.clone())).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic.to_string(),
        };
        if since.elapsed() > STABLE_AFTER {
            pause = FIRST_PAUSE;
        }
        error!(worker = name, cause, "the worker has failed");
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            // The sender is gone with the cluster.
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_worker_that_fails_or_panics_runs_again_until_it_is_stopped() {
        let (stop, stopped) = watch::channel(false);
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let run = move |mut stopped: watch::Receiver<bool>| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            let stop = stop.clone();
            async move {
                match run {
                    0 => Err(WorkerError::Executor { cause: "a step hangs".to_owned() }),
                    1 => panic!("a bug"),
                    _ => {
                        stop.send_replace(true);
                        let _ = stopped.wait_for(|stop| *stop).await;
                        Ok(())
                    }
                }
            }
        };
        keep_running("w".to_owned(), stopped, run).await;
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_worker_that_fails_as_it_is_stopped_does_not_run_again() {
        let (stop, stopped) = watch::channel(false);
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let run = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            stop.send_replace(true);
            async { Err(WorkerError::Executor { cause: "a step hangs".to_owned() }) }
        };
        let ended = timeout(Duration::from_secs(60), keep_running("w".to_owned(), stopped, run)).await;
        assert_eq!((ended, runs.load(Ordering::SeqCst)), (Ok(()), 1));
    }
}
