//! What everybody shares of the term in which this engine leads.

use std::collections::BTreeSet;

use syncline_rpc::EngineFault;
use syncline_scheduler::ids::{EngineEpoch, JobId};

use super::{
    clock::Clock, job_directory::JobDirectory, job_ends::JobEnds, loop_pulse::LoopPulse,
    queue::DecisionQueue, sessions::Sessions, shard_control::ShardControl, shards::ShardDirectory,
    standstill::Standstill, store_outage::StoreOutage,
};

/// The parts of an engine that leads, each with its own rules; clones share them. The [decision
/// loop](super::decision_loop) decides, [carries out](super::dispatcher) through these what it has committed,
/// and every connection reaches it through the queue.
#[derive(Clone)]
pub(super) struct Lead {
    pub epoch: EngineEpoch,
    pub clock: Clock,
    pub sessions: Sessions,
    pub shards: ShardDirectory,
    pub control: ShardControl,
    pub jobs: JobDirectory,
    pub queue: DecisionQueue,
    pub store_outage: StoreOutage,
    /// Noted by the loop that decides and by the renewal of the lease.
    pub standstill: Standstill,
    /// Of the loop that decides.
    pub pulse: LoopPulse,
    pub job_ends: JobEnds,
}

impl Lead {
    pub(super) fn new(
        epoch: EngineEpoch,
        sessions: Sessions,
        shards: ShardDirectory,
        queue: DecisionQueue,
        clock: Clock,
    ) -> Self {
        let jobs = JobDirectory::default();
        Self {
            epoch,
            clock,
            control: ShardControl::new(epoch, clock, shards.clone(), queue.clone(), jobs.clone()),
            sessions,
            shards,
            jobs,
            queue,
            store_outage: StoreOutage::default(),
            standstill: Standstill::default(),
            pulse: LoopPulse::default(),
            job_ends: JobEnds::default(),
        }
    }

    /// The jobs that go on, as the loop that decides knows them; Redis may have lost some. The keys of one
    /// that is over may have expired.
    pub(super) async fn live_jobs(&self) -> Result<BTreeSet<JobId>, EngineFault> {
        let listed = self.jobs.listed();
        self.queue.query(move |core| listed.into_iter().filter(|job| core.is_live(job)).collect()).await
    }

    /// Ends everything that was started.
    pub(super) fn stop(&self) {
        self.control.work.end_all();
    }
}
