//! The parameter shards as the engine that leads orders them about: what all orders to them share.
//!
//! The orders stand by their ideas: [barriers, clocks, seals and opening](super::shard_orders), [snapshots
//! and the end of a job](super::snapshots), [checkpoints](super::checkpoints), [what shards
//! hold](super::attach), and [values that nobody needs any more](super::blob_release).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use syncline_rpc::ShardFault;
use syncline_scheduler::{
    core::{Input, ShardDirs},
    fault_code::FaultCode,
    ids::{EngineEpoch, RunId, ShardIndex},
};
use tokio::sync::Semaphore;

use super::{
    blob_release::Released, clock::Clock, closings::Closings, job_directory::JobDirectory, message::Message,
    queue::DecisionQueue, run_work::RunWork, shards::ShardDirectory, shared_parts::SharedParts,
};

/// Limit of a call to a shard that answers at once.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a call to a shard that reads or writes parameters on disk.
pub(super) const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Snapshots of all jobs that are written at a time: shard 0 fetches the parts of the others for each, over
/// connections of its own.
pub(super) const SNAPSHOTS_AT_ONCE: usize = 8;

/// Gives orders to the shards in the name of one epoch, and sends the loop what comes of them; clones share
/// it.
#[derive(Clone)]
pub(super) struct ShardControl {
    pub(super) epoch: EngineEpoch,
    pub(super) clock: Clock,
    pub(super) shards: ShardDirectory,
    /// Of the loop, which is told of every outcome.
    pub(super) queue: DecisionQueue,
    /// Settings with which shards open a job.
    pub(super) jobs: JobDirectory,
    /// Everything that is started for a job ends when the job is closed.
    pub(super) work: RunWork,
    pub(super) closings: Closings,
    /// From which directories each shard is served and followed, as the loop was told.
    pub(super) served_from: Arc<Mutex<BTreeMap<ShardIndex, ShardDirs>>>,
    /// A place for each snapshot that is being written.
    pub(super) snapshot_slots: Arc<Semaphore>,
    /// Blobs that are to be removed, and that no shard was told of.
    pub(super) released: Arc<Mutex<Released>>,
    pub(super) shared_parts: SharedParts,
}

impl ShardControl {
    pub(super) fn new(
        epoch: EngineEpoch,
        clock: Clock,
        shards: ShardDirectory,
        queue: DecisionQueue,
        jobs: JobDirectory,
    ) -> Self {
        Self {
            epoch,
            clock,
            shards,
            queue,
            jobs,
            work: RunWork::default(),
            closings: Closings::default(),
            served_from: Arc::default(),
            snapshot_slots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE)),
            released: Arc::default(),
            shared_parts: SharedParts::default(),
        }
    }

    /// A shard follows an engine of a higher epoch.
    pub(super) fn deposed_by(&self, highest: EngineEpoch) {
        self.shards.note_epoch(highest);
        self.queue.send(Message::Deposed);
    }

    /// Tells the loop that a shard refused an order of a job; or that another engine leads, if that is why.
    pub(super) fn report_failure(&self, run: &RunId, fault: &ShardFault) {
        // A newer engine owns the shard: this one is about to find out, and the job is not to blame.
        if let ShardFault::Fenced { highest, .. } = fault {
            return self.deposed_by(*highest);
        }
        let (code, reason) = match fault {
            // Each generation is committed before it is opened.
            ShardFault::WrongGeneration { given, current, .. } if current.follows(*given) => {
                (FaultCode::STORE_LOST, fault.to_string())
            }
            // A running job is open everywhere: a shard that does not know it, or has an earlier generation,
            // was started again.
            ShardFault::UnknownJob { .. } | ShardFault::WrongGeneration { .. } => {
                (FaultCode::PARAMETERS_LOST, format!("a parameter shard has lost its part: {fault}"))
            }
            other => (FaultCode::new(other.code()), other.to_string()),
        };
        self.queue.tell(Input::ShardFailed { run: run.clone(), code, reason });
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::{Generation, JobId};

    use super::*;
    use crate::service::fake_shard::shard_control;

    #[tokio::test]
    async fn what_a_shard_refuses_fails_the_job_unless_another_engine_leads() {
        let (control, mut inbox) = shard_control();
        let job: JobId = "digits".parse().unwrap();
        let (run, highest) = (RunId { job: job.clone(), generation: Generation(1) }, EngineEpoch(9));
        control.report_failure(&run, &ShardFault::UnknownJob { job: job.clone() });
        let (first, second) = (run.generation, run.generation.next());
        for (given, current) in [(first, second), (second, first)] {
            control.report_failure(&run, &ShardFault::WrongGeneration { job: job.clone(), given, current });
        }
        control.report_failure(&run, &ShardFault::NotPinned { job, wanted: 1 });
        control.report_failure(&run, &ShardFault::Fenced { given: control.epoch, highest });
        for expected in ["E220", "E226", "E220", "E407"] {
            let input = inbox.input().await;
            assert!(
                matches!(&input, Input::ShardFailed { code, .. } if *code == FaultCode::new(expected)),
                "{input:?}"
            );
        }
        assert!(matches!(inbox.next().await, Message::Deposed));
    }
}
