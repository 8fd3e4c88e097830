//! Checkpoints on the shards: copied, written, shared, removed.

use std::time::Duration;

use syncline_rpc::{EngineFault, Retention, ShardClient, ShardFault, within};
use syncline_scheduler::{
    core::{Input, TaskFault},
    ids::{ContentDigest, RunId},
};

use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::shard_control::{LONG_CALL_TIMEOUT, ShardControl};

/// How long a shard may take to share its part: it reads all of one that it has not written or read before,
/// and may be silent for a moment.
const SHARE_LIMIT: Duration = Duration::from_secs(60);

impl ShardControl {
    /// Has every shard copy its part of a job that is at rest.
    pub(super) fn pin_checkpoint(&self, run: &RunId, number: u64) {
        let epoch = self.epoch;
        let pin = move |c: ShardClient, run| async move {
            c.pin_checkpoint(within(LONG_CALL_TIMEOUT), epoch, run, number).await
        };
        self.order_all_shards(run, pin, move |control, run, shard, answer| {
            if let Some(outcome) = control.outcome(&run, answer) {
                control.queue.tell(Input::CheckpointPinned { run, number, shard, outcome });
            }
        });
    }

    /// Has every shard bring its copy to disk.
    pub(super) fn write_checkpoint(&self, run: &RunId, number: u64) {
        let epoch = self.epoch;
        let write = move |c: ShardClient, run| async move {
            c.write_checkpoint(within(LONG_CALL_TIMEOUT), epoch, run, number).await
        };
        self.order_all_shards(run, write, move |control, run, shard, answer| {
            if let Some(outcome) = control.outcome(&run, answer) {
                control.queue.tell(Input::CheckpointWritten { run, number, shard, outcome });
            }
        });
    }

    /// Has every shard keep its part of a complete checkpoint as a blob, of so many bytes in all; gives their
    /// digests, in order. Fails as soon as one is not there.
    pub(super) async fn share_checkpoint(
        &self,
        run: &RunId,
        number: u64,
        bytes: u64,
    ) -> Result<Vec<ContentDigest>, EngineFault> {
        let _sharing = self.shared_parts.sharing().await;
        let each = self.shards.indices().map(|shard| async move {
            let share = |c: ShardClient| async move {
                c.share_checkpoint(within(LONG_CALL_TIMEOUT), run.clone(), number).await
            };
            let answer = tokio::select! {
                answer = timeout(SHARE_LIMIT, self.shards.call(shard, share)) => answer,
                () = self.shards.vacant(shard) => return Err(self.shards.missing_fault()),
            };
            let cause = match answer {
                Ok(Ok(digest)) => return Ok(digest),
                Ok(Err(fault)) => fault.cause(),
                Err(_) => format!("it has not answered for {} s", SHARE_LIMIT.as_secs()).into(),
            };
            Err(EngineFault::Shard { shard, cause })
        });
        // What is of no use without the others is not waited for.
        let parts: Vec<ContentDigest> = futures::future::try_join_all(each).await?;
        self.release_later(&parts, bytes);
        Ok(parts)
    }

    /// Has the shards drop the parts of a checkpoint when whoever asked for them last has had the time to
    /// fetch them. What an engine that ends before does not release, the collection of blobs does.
    fn release_later(&self, parts: &[ContentDigest], bytes: u64) {
        let (control, parts) = (self.clone(), parts.to_vec());
        let until = self.shared_parts.keep(&parts, bytes, Instant::now());
        tokio::spawn(async move {
            sleep_until(until).await;
            let _removing = control.shared_parts.removing().await;
            let expired = control.shared_parts.take_expired(&parts, until);
            if !expired.is_empty() {
                control.release_everywhere(&expired).await;
            }
        });
    }

    /// Lets every shard remove what nobody needs any more. One that is away does so with the next order;
    /// where there will be no further one, as soon as it is there, as long as this engine leads.
    pub(super) fn retain_checkpoints(&self, run: &RunId, retention: &Retention) {
        for shard in self.shards.indices() {
            let (control, run, retention) = (self.clone(), run.clone(), retention.clone());
            // It may be the last that is done for a job.
            tokio::spawn(async move {
                let retain = |c: ShardClient| {
                    let (run, retention) = (run.clone(), retention.clone());
                    async move {
                        // It waits there for what is being written.
                        let context = within(LONG_CALL_TIMEOUT);
                        c.retain_checkpoints(context, control.epoch, run, retention).await
                    }
                };
                if retention.is_last() {
                    if let Err(fault) = control.shards.call(shard, retain).await {
                        warn!(%shard, %fault, "checkpoints that nobody needs stay on the shard");
                    }
                } else {
                    let _ = control.shards.call_if_present(shard, retain).await;
                }
                // Its copies of files go with the job as well, which it does not follow any more by then.
                let _ = control.shards.call_standby(shard, retain).await;
            });
        }
    }

    /// What a shard's answer means for a checkpoint; `None` if it means something for the job itself, which
    /// is then told.
    fn outcome<T>(&self, run: &RunId, answer: Result<T, ShardFault>) -> Option<Result<T, TaskFault>> {
        match answer {
            Ok(done) => Some(Ok(done)),
            Err(fault @ (ShardFault::Fenced { .. } | ShardFault::UnknownJob { .. })) => {
                self.report_failure(run, &fault);
                None
            }
            Err(fault) => Some(Err(fault.as_task_fault())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use syncline_scheduler::{
        fault_code::FaultCode,
        ids::{Generation, ShardIndex},
    };

    use super::*;
    use crate::service::fake_shard::{EPOCH, Noted, control_with, shard_control, start};
    use syncline_rpc::{ShardHello, ShardRequest, ShardResponse};

    fn run() -> RunId {
        RunId { job: "digits".parse().unwrap(), generation: Generation(1) }
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_is_told_as_the_outcome_and_a_lost_job_as_a_loss() {
        let full = |_| {
            ShardResponse::WriteCheckpoint(Err(ShardFault::Io { what: "w".into(), cause: "full".into() }))
        };
        let (control, mut inbox) = control_with(0, full).await;
        control.write_checkpoint(&run(), 3);
        let told = inbox.input().await;
        assert!(
            matches!(&told, Input::CheckpointWritten { number: 3, outcome: Err(fault), .. } if fault.code == FaultCode::SHARD_IO),
            "{told:?}"
        );
        let gone = |_| ShardResponse::PinCheckpoint(Err(ShardFault::UnknownJob { job: run().job }));
        let (control, mut inbox) = control_with(0, gone).await;
        control.pin_checkpoint(&run(), 3);
        let lost = inbox.input().await;
        assert!(matches!(&lost, Input::ShardFailed { code: FaultCode::PARAMETERS_LOST, .. }), "{lost:?}");
    }

    #[tokio::test]
    async fn a_checkpoint_goes_on_once_a_shard_is_back_on_the_directory_in_which_it_has_the_job() {
        let was_asked = Arc::new(AtomicBool::new(false));
        let lacks_it_at_first = move |request| {
            let lacks_it = !was_asked.fetch_xor(true, Ordering::Relaxed);
            let unknown = ShardFault::UnknownJob { job: run().job };
            match request {
                ShardRequest::PinCheckpoint { .. } => {
                    ShardResponse::PinCheckpoint(if lacks_it { Err(unknown) } else { Ok(()) })
                }
                _ => ShardResponse::WriteCheckpoint(if lacks_it { Err(unknown) } else { Ok(8) }),
            }
        };
        let (control, mut inbox) = control_with(0, lacks_it_at_first).await;
        control.pin_checkpoint(&run(), 3);
        assert!(matches!(inbox.input().await, Input::ShardFailed { .. }));
        let pinned = inbox.input().await;
        assert!(matches!(&pinned, Input::CheckpointPinned { outcome: Ok(()), .. }), "{pinned:?}");
        control.write_checkpoint(&run(), 3);
        assert!(matches!(inbox.input().await, Input::ShardFailed { .. }));
        let written = inbox.input().await;
        assert!(matches!(&written, Input::CheckpointWritten { outcome: Ok(8), .. }), "{written:?}");
    }

    #[tokio::test]
    async fn whoever_asks_for_a_checkpoint_is_told_at_once_that_a_shard_is_not_there() {
        let missing = Err(EngineFault::MissingShards { present: 0, expected: 1 });
        let (control, _inbox) = shard_control();
        assert_eq!(control.share_checkpoint(&run(), 3, 0).await, missing);
        // Connections are made, and nobody answers: it may be silent for a moment, until it counts as lost.
        let hung = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = ShardHello::alone(ShardIndex(0), 1, hung.local_addr().unwrap().to_string(), 1);
        control.shards.announce(silent, EPOCH, &Noted).await;
        let run = run();
        let mut shared = std::pin::pin!(control.share_checkpoint(&run, 3, 0));
        assert!(futures::poll!(shared.as_mut()).is_pending());
        control.shards.forget(ShardIndex(0));
        assert_eq!(shared.await, missing);
    }

    #[tokio::test]
    async fn a_shard_that_was_away_removes_the_checkpoints_of_a_job_that_is_gone_when_it_comes() {
        let (ordered, mut orders) = tokio::sync::mpsc::unbounded_channel();
        let (control, _inbox) = shard_control();
        let none_stays = Retention::Last { keep: Vec::new() };
        control.retain_checkpoints(&run(), &none_stays);
        let answer = move |request| {
            let ShardRequest::RetainCheckpoints { run, retention, .. } = request else {
                panic!("another order: {request:?}")
            };
            ordered.send((run, retention)).unwrap();
            ShardResponse::RetainCheckpoints(Ok(()))
        };
        // Two connections are lost before it hears anything.
        control.shards.announce(start(2, answer).await, EPOCH, &Noted).await;
        assert_eq!(orders.recv().await, Some((run(), none_stays)));
    }

    #[tokio::test]
    async fn a_copy_is_asked_for_until_a_shard_answers() {
        let (control, mut inbox) = control_with(2, |_| ShardResponse::PinCheckpoint(Ok(()))).await;
        control.pin_checkpoint(&run(), 3);
        let told = inbox.input().await;
        let expected =
            Input::CheckpointPinned { run: run(), number: 3, shard: ShardIndex(0), outcome: Ok(()) };
        assert_eq!(told, expected);
    }
}
