//! The end of the thread that trains, as the side that talks to the engine waits for it.

use std::time::Duration;

use tokio::{
    sync::{
        oneshot::{self, error::RecvError},
        watch,
    },
    time::timeout,
};

use super::{control::stopped, executor::End};

/// The thread that trains. Nobody joins it: what it hangs in must not hang us.
pub(super) struct ExecutorEnd {
    receiver: oneshot::Receiver<End>,
    ended: Option<Result<End, RecvError>>,
}

impl ExecutorEnd {
    /// Of the thread that has the other end.
    pub(super) fn new(receiver: oneshot::Receiver<End>) -> Self {
        Self { receiver, ended: None }
    }

    /// Returns once it has ended; an error where it panicked. Can be canceled, and asked for again.
    pub(super) async fn wait(&mut self) -> Result<End, RecvError> {
        match &self.ended {
            Some(ended) => ended.clone(),
            None => {
                let ended = (&mut self.receiver).await;
                self.ended.insert(ended).clone()
            }
        }
    }

    /// Waits until it has ended, which may be in the middle of a step, as long as `limits` say.
    pub(super) async fn wait_for_step(
        &mut self,
        stop: &mut watch::Receiver<bool>,
        limits: StepLimits,
    ) -> StepEnd {
        tokio::select! {
            biased;
            () = stopped(stop) => {}
            ended = timeout(limits.dropped, self.wait()) => {
                let given_up = StepEnd::GivenUp { after: limits.dropped, by: StepWaiter::Dropped };
                return ended.map_or(given_up, StepEnd::Ended);
            }
        }
        let given_up = StepEnd::GivenUp { after: limits.stopping, by: StepWaiter::Stopping };
        timeout(limits.stopping, self.wait()).await.map_or(given_up, StepEnd::Ended)
    }
}

/// How long a step is waited for that ends by itself and touches nothing any more.
#[derive(Clone, Copy)]
pub(super) struct StepLimits {
    /// By a worker that goes on afterwards.
    pub(super) dropped: Duration,
    /// By one that is to stop, before or meanwhile.
    pub(super) stopping: Duration,
}

/// What came of waiting for a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// The thread has ended; an error where it panicked.
    Ended(Result<End, RecvError>),
    /// It has not.
    GivenUp {
        /// For how long it was waited for.
        after: Duration,
        /// Who has waited.
        by: StepWaiter,
    },
}

/// A worker that waits for a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StepWaiter {
    /// The engine has dropped it, and it goes on under another incarnation.
    Dropped,
    /// It is to stop.
    Stopping,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_is_to_stop_waits_less_for_a_step_whenever_it_is_told() {
        let (long, short) = (Duration::from_secs(3_600), Duration::from_millis(5));
        let (_ends, end) = oneshot::channel();
        let stop = watch::Sender::new(false);
        let limits = StepLimits { dropped: short, stopping: long };
        let mut listens = stop.subscribe();
        let given_up = ExecutorEnd::new(end).wait_for_step(&mut listens, limits).await;
        assert_eq!(given_up, StepEnd::GivenUp { after: short, by: StepWaiter::Dropped });
        let limits = StepLimits { dropped: long, stopping: short };
        for told_before in [false, true] {
            let (_ends, end) = oneshot::channel();
            let stop = watch::Sender::new(told_before);
            let (mut listens, mut executor) = (stop.subscribe(), ExecutorEnd::new(end));
            let waits = executor.wait_for_step(&mut listens, limits);
            let (given_up, _) = tokio::join!(waits, async { stop.send_replace(true) });
            let expected = StepEnd::GivenUp { after: short, by: StepWaiter::Stopping };
            assert_eq!(given_up, expected, "told before: {told_before}");
        }
    }

    /// A receiver that has given its value panics where it is polled again.
    #[tokio::test]
    async fn an_end_that_was_heard_of_is_told_again_to_whoever_waits_for_the_step() {
        let (ends, end) = oneshot::channel();
        let mut executor = ExecutorEnd::new(end);
        // It goes on, and nothing is lost where nobody waits any longer.
        assert!(timeout(Duration::ZERO, executor.wait()).await.is_err());
        ends.send(End::Dropped).unwrap();
        assert_eq!(executor.wait().await, Ok(End::Dropped));
        let limits = StepLimits { dropped: Duration::ZERO, stopping: Duration::ZERO };
        let mut told = watch::Sender::new(true).subscribe();
        assert_eq!(executor.wait_for_step(&mut told, limits).await, StepEnd::Ended(Ok(End::Dropped)));
        let (ends, end) = oneshot::channel();
        drop(ends);
        let mut panicked = ExecutorEnd::new(end);
        assert!(panicked.wait().await.is_err() && panicked.wait().await.is_err());
    }
}
