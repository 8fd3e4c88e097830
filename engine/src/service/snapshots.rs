//! Snapshots of a job's parameters, and closing the job on the shards.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_rpc::{ShardClient, ShardFault, within};
use syncline_scheduler::{
    core::{Input, LastWeights, SnapshotFile, TaskFault, TaskKey},
    ids::{RunId, ShardIndex},
};
use tokio::time::sleep;
use tracing::warn;

use super::{
    shard_control::{LONG_CALL_TIMEOUT, ShardControl},
    shard_orders::PEER_PAUSE,
};

/// Name of the snapshot of a job that ended without one.
const LAST_WEIGHTS: &str = "last";
/// Longest pause between two tries to write it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a shard says of a snapshot, as the core takes it.
fn snapshot_outcome(answer: Result<SnapshotFile, ShardFault>) -> Result<SnapshotFile, TaskFault> {
    answer.map_err(|fault| fault.as_task_fault())
}

impl ShardControl {
    pub(super) fn write_snapshot(&self, key: TaskKey, version: u64) {
        let control = self.clone();
        self.work.spawn(&key.run.clone(), async move {
            loop {
                match control.snapshot(&key, version).await {
                    // Not the snapshot failed: a part of the parameters is gone, or lies in a state directory
                    // on which its shard may come back.
                    Err(fault @ ShardFault::UnknownJob { .. }) => control.report_failure(&key.run, &fault),
                    // That one makes way.
                    Err(fault) if fault.is_of_other_job() => {}
                    answer => {
                        let outcome = snapshot_outcome(answer);
                        return control.queue.tell(Input::SnapshotWritten { key, outcome });
                    }
                }
                sleep(PEER_PAUSE).await;
            }
        });
    }

    /// Asks for a snapshot once there is a place for it.
    async fn snapshot(&self, key: &TaskKey, version: u64) -> Result<SnapshotFile, ShardFault> {
        // It is never closed.
        let _slot = self.snapshot_slots.acquire().await;
        let write = |c: ShardClient| async move {
            let (run, name) = (key.run.clone(), key.task.to_string());
            c.snapshot(within(LONG_CALL_TIMEOUT), self.epoch, run, Some(version), name).await
        };
        self.shards.call(ShardIndex(0), write).await
    }

    /// Stops everything that was started for one run of a job, and lets the shards forget it. Last parameters
    /// that are to be kept are only written: until that is committed, the next engine may have to write
    /// them again.
    pub(super) fn close_shards(&self, run: &RunId, weights: LastWeights) {
        self.work.end(run);
        let (control, run) = (self.clone(), run.clone());
        // Before this returns: another job of the name may be opened next.
        let closing = match weights {
            LastWeights::Drop | LastWeights::Discard => Some(Arc::new(self.closings.begin(&run.job))),
            LastWeights::Keep | LastWeights::SetAside => None,
        };
        self.work.spawn(&run.clone(), async move {
            if weights == LastWeights::Keep {
                let outcome = control.save_last_weights(&run).await;
                return control.queue.tell(Input::WeightsKept { run, outcome });
            }
            for shard in control.shards.indices() {
                let (control, run, closing) = (control.clone(), run.clone(), closing.clone());
                tokio::spawn(async move {
                    let epoch = control.epoch;
                    let close = |c: ShardClient| {
                        let run = run.clone();
                        async move {
                            match weights {
                                LastWeights::SetAside => {
                                    c.set_aside(within(LONG_CALL_TIMEOUT), epoch, run).await
                                }
                                LastWeights::Discard => {
                                    c.discard(within(LONG_CALL_TIMEOUT), epoch, run).await
                                }
                                LastWeights::Keep | LastWeights::Drop => {
                                    c.close(within(LONG_CALL_TIMEOUT), epoch, run).await
                                }
                            }
                        }
                    };
                    let closed = control.shards.call_if_present(shard, close).await;
                    drop(closing);
                    // It may keep a copy of what was set aside.
                    if weights == LastWeights::Discard {
                        let _ = control.shards.call_standby(shard, close).await;
                    }
                    // A shard that is away is asked what it holds when it comes back; one that is there and
                    // has not answered, now.
                    match closed {
                        Some(Err(_)) => control.query_held_jobs(shard),
                        // It could not write down what no engine had asked for, and holds it on.
                        Some(Ok(Err(fault @ ShardFault::Io { .. }))) => {
                            warn!(%shard, %fault, "the shard does not close a job yet");
                            sleep(LONGEST_PAUSE).await;
                            control.query_held_jobs(shard);
                        }
                        _ => {}
                    }
                });
            }
        });
    }

    /// Lets the shards write the last parameters of a job. A full disk may be emptied: it is tried again
    /// until then, and another job of the name makes way. Where a shard has nothing of the job the core says
    /// how long it is worth asking: it closes the run.
    async fn save_last_weights(&self, run: &RunId) -> Result<SnapshotFile, TaskFault> {
        let mut pause = Duration::from_secs(1);
        let mut missing_since = None;
        loop {
            let answer = self
                .shards
                .call_if_present(ShardIndex(0), |c| {
                    let run = run.clone();
                    async move {
                        let name = LAST_WEIGHTS.to_owned();
                        c.snapshot(within(LONG_CALL_TIMEOUT), self.epoch, run, None, name).await
                    }
                })
                .await;
            let delayed = |reason| Input::WeightsDelayed { run: run.clone(), reason };
            let problem = match answer {
                Some(Ok(Err(fault @ ShardFault::UnknownJob { .. }))) => {
                    let missing_us =
                        missing_since.get_or_insert_with(Instant::now).elapsed().as_micros() as u64;
                    Input::WeightsMissing { run: run.clone(), fault: fault.as_task_fault(), missing_us }
                }
                Some(Ok(Err(fault))) if matches!(fault, ShardFault::Io { .. }) || fault.is_of_other_job() => {
                    delayed(fault.to_string())
                }
                Some(Ok(answer)) => return snapshot_outcome(answer),
                Some(Err(error)) => delayed(error.to_string()),
                None => delayed("shard 0 is not there".to_owned()),
            };
            warn!(?problem, again_in_s = pause.as_secs(), "cannot keep a job's last weights yet");
            self.queue.tell(problem);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
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
        ids::{ContentDigest, Generation},
    };
    use tokio::sync::oneshot;

    use super::*;
    use crate::service::{fake_shard::control_with, shard_control::SNAPSHOTS_AT_ONCE};
    use syncline_rpc::{ShardRequest, ShardResponse};

    const DIGEST: ContentDigest = ContentDigest::from_bytes([0xd; 32]);

    fn run() -> RunId {
        RunId { job: "digits".parse().unwrap(), generation: Generation(1) }
    }

    /// A shard that refuses when it is asked first.
    fn refuses_at_first(fault: ShardFault) -> impl Fn(ShardRequest) -> ShardResponse + Clone {
        let was_asked = Arc::new(AtomicBool::new(false));
        move |_| {
            ShardResponse::Snapshot(match was_asked.swap(true, Ordering::Relaxed) {
                false => Err(fault.clone()),
                true => Ok(SnapshotFile { path: "p".into(), bytes: 8, digest: DIGEST }),
            })
        }
    }

    /// A shard that is served from another state directory when it is asked first.
    fn lacks_the_job_at_first() -> impl Fn(ShardRequest) -> ShardResponse + Clone {
        refuses_at_first(ShardFault::UnknownJob { job: run().job })
    }

    /// A shard on which another job of the name makes way.
    fn has_another_job_at_first() -> impl Fn(ShardRequest) -> ShardResponse + Clone {
        let (given, current) = (Generation::first(1), Generation::first(2));
        refuses_at_first(ShardFault::WrongGeneration { job: run().job, given, current })
    }

    #[tokio::test]
    async fn a_snapshot_of_parameters_that_a_shard_lost_is_a_loss_of_the_job() {
        let lost = |_| ShardResponse::Snapshot(Err(ShardFault::UnknownJob { job: run().job }));
        let (control, mut inbox) = control_with(0, lost).await;
        let key = TaskKey { run: run(), task: "save".parse().unwrap(), attempt: 0 };
        control.write_snapshot(key, 4);
        let told = inbox.input().await;
        assert!(matches!(&told, Input::ShardFailed { code: FaultCode::PARAMETERS_LOST, .. }), "{told:?}");
    }

    #[tokio::test]
    async fn a_snapshot_is_written_once_its_shard_is_back_on_the_directory_in_which_it_has_the_job() {
        let (control, mut inbox) = control_with(0, lacks_the_job_at_first()).await;
        let key = TaskKey { run: run(), task: "save".parse().unwrap(), attempt: 0 };
        control.write_snapshot(key.clone(), 4);
        assert!(matches!(inbox.input().await, Input::ShardFailed { .. }));
        match inbox.input().await {
            Input::SnapshotWritten { key: of, outcome } => assert_eq!((of, outcome.is_ok()), (key, true)),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn last_weights_that_a_shard_lacks_are_asked_for_until_it_has_them_or_the_run_is_closed() {
        let (control, mut inbox) = control_with(0, lacks_the_job_at_first()).await;
        control.close_shards(&run(), LastWeights::Keep);
        match inbox.input().await {
            Input::WeightsMissing { run: of, fault, .. } => {
                assert_eq!((of, fault.code), (run(), FaultCode::new("E402")));
            }
            other => panic!("{other:?}"),
        }
        let kept = inbox.input().await;
        assert!(matches!(&kept, Input::WeightsKept { outcome: Ok(_), .. }), "{kept:?}");
    }

    #[tokio::test]
    async fn a_snapshot_and_last_weights_wait_while_another_job_of_the_name_makes_way() {
        let (control, mut inbox) = control_with(0, has_another_job_at_first()).await;
        let key = TaskKey { run: run(), task: "save".parse().unwrap(), attempt: 0 };
        control.write_snapshot(key, 4);
        let written = inbox.input().await;
        assert!(matches!(&written, Input::SnapshotWritten { outcome: Ok(_), .. }), "{written:?}");
        let (control, mut inbox) = control_with(0, has_another_job_at_first()).await;
        control.close_shards(&run(), LastWeights::Keep);
        let delayed = inbox.input().await;
        assert!(matches!(&delayed, Input::WeightsDelayed { .. }), "{delayed:?}");
        let kept = inbox.input().await;
        assert!(matches!(&kept, Input::WeightsKept { outcome: Ok(_), .. }), "{kept:?}");
    }

    #[tokio::test]
    async fn a_snapshot_that_a_shard_refuses_is_an_outcome_with_the_shards_code() {
        let refuse = |_| ShardResponse::Snapshot(Err(ShardFault::NotPinned { job: run().job, wanted: 4 }));
        let (control, mut inbox) = control_with(0, refuse).await;
        let key = TaskKey { run: run(), task: "save".parse().unwrap(), attempt: 0 };
        control.write_snapshot(key.clone(), 4);
        match inbox.input().await {
            Input::SnapshotWritten { key: of, outcome } => {
                assert_eq!((of, outcome.unwrap_err().code), (key, FaultCode::new("E407")));
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_snapshot_waits_for_its_place_and_holds_up_nothing_else() {
        let (requests, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let answer = move |request: ShardRequest| match request {
            ShardRequest::Snapshot { name, .. } => {
                let _ = requests.send(name);
                ShardResponse::Snapshot(Ok(SnapshotFile { path: "p".into(), bytes: 8, digest: DIGEST }))
            }
            _ => {
                let _ = requests.send("close".into());
                ShardResponse::Close(Ok(()))
            }
        };
        let (control, _inbox) = control_with(0, answer).await;
        let all = control.snapshot_slots.acquire_many(SNAPSHOTS_AT_ONCE as u32).await.unwrap();
        let key = TaskKey { run: run(), task: "save".parse().unwrap(), attempt: 0 };
        control.write_snapshot(key, 4);
        control.close_shards(&RunId { job: "other".parse().unwrap(), ..run() }, LastWeights::Drop);
        assert_eq!(asked.recv().await.as_deref(), Some("close"));
        drop(all);
        assert_eq!(asked.recv().await.as_deref(), Some("save"));
    }

    #[tokio::test]
    async fn last_weights_are_written_once_nothing_runs_for_the_job_and_its_shards_hold_it_until_it_is_to_be_dropped()
     {
        let (requests, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let answer = move |request: ShardRequest| match request {
            ShardRequest::Snapshot { version, name, .. } => {
                let _ = requests.send(format!("snapshot {version:?} {name}"));
                ShardResponse::Snapshot(Ok(SnapshotFile { path: "p".into(), bytes: 8, digest: DIGEST }))
            }
            ShardRequest::Close { run, .. } => {
                let _ = requests.send(format!("close {}", run.job));
                ShardResponse::Close(Ok(()))
            }
            other => panic!("{other:?}"),
        };
        let (control, mut inbox) = control_with(0, answer).await;
        let (running, ended) = oneshot::channel::<()>();
        control.work.spawn(&run(), async move {
            std::future::pending::<()>().await;
            drop(running);
        });
        control.close_shards(&run(), LastWeights::Keep);
        assert!(ended.await.is_err(), "aborted");
        match inbox.input().await {
            Input::WeightsKept { outcome, .. } => assert_eq!(outcome.unwrap().digest, DIGEST),
            other => panic!("{other:?}"),
        }
        assert_eq!(asked.recv().await.as_deref(), Some("snapshot None last"));
        // Whatever else had been asked for the first job would come before this.
        control.close_shards(&RunId { job: "other".parse().unwrap(), ..run() }, LastWeights::Drop);
        assert_eq!(asked.recv().await.as_deref(), Some("close other"));
        control.close_shards(&run(), LastWeights::Drop);
        assert_eq!(asked.recv().await.as_deref(), Some("close digits"));
    }
}
