//! What all connections to the engine share: reading the store, sending inputs to the decision loop, and
//! notes about what hinders every job.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_rpc::{DiskState, EngineFault, InactiveReason, ShardHello, folder};
use syncline_scheduler::{
    core::{Core, IfTaken, Input},
    ids::{EngineEpoch, JobId},
    spec::JobSpec,
};
use tokio::sync::watch;

use super::{
    lead::Lead,
    options::Limits,
    shard_slots::ReachNote,
    shards::{ShardDirectory, ShardEntry},
    store_outage::RoomMaker,
};
use crate::store::{RedisStore, StoreError};

/// How long a read may take while Redis is known to be unavailable.
const READ_TIMEOUT_IN_OUTAGE: Duration = Duration::from_millis(500);

/// What every connection shares.
#[derive(Clone)]
pub(super) struct ServiceContext {
    /// The lead of the active engine, or why this one is not.
    pub active: watch::Receiver<Result<Lead, InactiveReason>>,
    pub store: RedisStore,
    pub shards: ShardDirectory,
    pub limits: Limits,
    pub about: Arc<BTreeMap<String, String>>,
}

impl ServiceContext {
    /// The lead, or the fault that this engine is not active.
    pub(super) fn lead(&self) -> Result<Lead, EngineFault> {
        self.active.borrow().clone().map_err(|why| EngineFault::NotActive { why })
    }

    /// The same for answers from the memory of this engine alone: refuses where another one may lead by now.
    pub(super) fn undisputed_lead(&self) -> Result<Lead, EngineFault> {
        let lead = self.lead()?;
        if !lead.store_outage.lead_expired() {
            return Ok(lead);
        }
        Err(lead
            .store_outage
            .cause()
            .map_or(EngineFault::NotActive { why: InactiveReason::Changing }, |cause| EngineFault::Store {
                cause,
            }))
    }

    /// Addresses of all shards in order, or how many are missing.
    pub(super) fn all_shards(&self) -> Result<Vec<String>, EngineFault> {
        self.shards.addresses().ok_or_else(|| self.shards.missing_fault())
    }

    /// Sends an input to the decision loop and waits for its commit; refuses at once while Redis takes no
    /// writes.
    pub(super) async fn commit_input(&self, input: Input) -> Result<EngineEpoch, EngineFault> {
        let lead = self.lead()?;
        lead.store_outage.check()?;
        lead.queue.commit(input).await?;
        Ok(lead.epoch)
    }

    /// The same with one that frees memory of Redis, which a Redis that is full takes as well. What is
    /// received lets others through while it lives: what follows from the input may come later.
    pub(super) async fn commit_freeing(&self, input: Input) -> Result<RoomMaker, EngineFault> {
        let lead = self.lead()?;
        let room = lead.store_outage.make_room()?;
        lead.queue.commit(input).await?;
        Ok(room)
    }

    /// The same with a submission of a job; refuses another one while Redis is nearly full. About one whose
    /// name is taken the core decides as ever: it may have been taken in, and the answer lost.
    pub(super) async fn commit_job(&self, id: &JobId, submission: Input) -> Result<EngineEpoch, EngineFault> {
        let lead = self.lead()?;
        lead.store_outage.check()?;
        if let Err(full) = lead.store_outage.check_room() {
            let id = id.clone();
            let is_known = move |core: &Core| core.job(&id).is_some() || core.task_job(&id).is_some();
            if !self.query(is_known).await? {
                return Err(full);
            }
        }
        self.commit_input(submission).await
    }

    /// Asks the core something; refuses at once while Redis takes no writes, because the loop then waits for
    /// it.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, EngineFault> {
        let lead = self.undisputed_lead()?;
        lead.store_outage.check()?;
        lead.queue.query(look).await
    }

    /// Nonce of the job with which a submission is answered, because it is there already.
    pub(super) async fn submitted_before(
        &self,
        spec: JobSpec,
        nonce: Option<u32>,
        if_taken: IfTaken,
    ) -> Result<Option<u32>, EngineFault> {
        self.query(move |core| core.submitted_before(&spec, nonce, if_taken)).await
    }

    /// Reads from Redis; briefly, if it is known to be in trouble.
    pub(super) async fn read_store<T>(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, EngineFault> {
        let Some(cause) = self.lead()?.store_outage.cause() else {
            return read.await.map_err(store_fault);
        };
        match tokio::time::timeout(READ_TIMEOUT_IN_OUTAGE, read).await {
            Ok(value) => value.map_err(store_fault),
            Err(_) => Err(EngineFault::Store { cause }),
        }
    }

    /// Reads something of one job. What Redis has and cannot give is the fault of that job alone.
    pub(super) async fn read_of_job<T>(
        &self,
        job: &JobId,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, EngineFault> {
        let read = async {
            match read.await {
                Err(error) if error.is_of_keys() => Ok(Err(error.cause())),
                read => read.map(Ok),
            }
        };
        let unreadable = |cause| EngineFault::Unreadable { job: job.clone(), cause };
        self.read_store(read).await?.map_err(unreadable)
    }

    /// What stands in the way of a job right now, in words.
    pub(super) fn obstacles(&self, job: &JobId) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cause) = self.lead().ok().and_then(|d| d.store_outage.cause()) {
            notes.push(format!("Redis takes no writes, nothing is granted until it does: {cause}"));
        }
        notes.extend(self.unserved_notes().into_iter().map(|note| note.text));
        notes.extend(self.reach_notes().into_iter().flat_map(|note| match note {
            ReachNote::OfAll(text) => vec![text],
            ReachNote::OfSome(mut of_jobs) => of_jobs.remove(job).unwrap_or_default(),
        }));
        notes
    }

    /// The same, and which shards lack a standby: no job waits for one, until it is needed.
    pub(super) fn notes(&self, job: &JobId) -> Vec<String> {
        self.obstacles(job).into_iter().chain(self.standby_notes()).collect()
    }

    /// Which shards some worker does not reach.
    pub(super) fn reach_notes(&self) -> Vec<ReachNote> {
        let Ok(lead) = self.lead() else { return Vec::new() };
        let workers = lead.sessions.all_if_cut_off();
        self.shards.lock().reach_notes(&workers, Instant::now(), self.limits.shard_silence)
    }

    /// Which shards have no standby that could take over with everything, in words.
    pub(super) fn standby_notes(&self) -> Vec<String> {
        let heard = self.shards.all().into_iter().filter(|shard| !shard.is_silent());
        heard.filter_map(|shard| self.standby_note(&shard)).collect()
    }

    /// What a shard lacks whose standby should have everything, in words.
    fn standby_note(&self, shard: &ShardEntry) -> Option<String> {
        let ShardHello { index, address, replicas, jobs, .. } = &shard.hello;
        match self.shards.standby(*index) {
            _ if *replicas == 1 => None,
            None => {
                let second_was = self.shards.second_was(*index);
                let was = second_was.map_or(String::new(), |was| format!("; its other process was at {was}"));
                Some(format!("parameter shard {index} at {address} has no standby to take over{was}"))
            }
            Some(second) if second.is_silent() => Some(self.silent_standby_note(&second)),
            Some(second) if second.hello.jobs < *jobs => Some(format!(
                "the standby of parameter shard {index}, at {}, has {} of its {jobs} jobs; the log of {address} says why, if that stays so",
                second.hello.address, second.hello.jobs,
            )),
            Some(second) if !second.hello.mirrored => Some(format!(
                "the standby of parameter shard {index}, at {}, has not all models and values of tasks; its log says why, if that stays so",
                second.hello.address,
            )),
            Some(second) if second.hello.lacking_checkpoints > 0 => Some(format!(
                "the standby of parameter shard {index}, at {}, lacks {} checkpoints that the first process has; its log says why, if that stays so",
                second.hello.address, second.hello.lacking_checkpoints,
            )),
            Some(_) => None,
        }
    }

    fn silent_standby_note(&self, standby: &ShardEntry) -> String {
        let ShardHello { index, address, .. } = &standby.hello;
        match self.shards.describe_stopping(*index, Some(address.as_str())) {
            Some(stops) => format!("the standby of parameter shard {index} {stops}"),
            None => format!(
                "the standby of parameter shard {index}, at {address}, has been silent for {:.1} s and cannot take over",
                standby.seen.elapsed().as_secs_f64(),
            ),
        }
    }

    /// Which processes of shards have little room on their disks, in words.
    pub(super) fn disk_notes(&self) -> Vec<String> {
        let standbys = self.shards.indices().filter_map(|index| self.shards.standby(index));
        let processes = self.shards.all().into_iter().chain(standbys);
        processes.filter_map(|process| disk_note(&process.hello)).collect()
    }
}

fn disk_note(hello: &ShardHello) -> Option<String> {
    let DiskState { free_bytes, free_inodes, problem } = &hello.disk;
    let few_bytes = free_bytes.filter(|bytes| *bytes < folder::LITTLE_DISK_BYTES);
    let few_inodes = free_inodes.filter(|inodes| *inodes < folder::FEW_INODES);
    let told: Vec<String> = [
        problem.as_ref().map(|problem| format!("takes no file: {problem}")),
        few_inodes.map(|inodes| format!("has room for {inodes} files (inodes)")),
        few_bytes.map(|bytes| format!("has {} MB free", bytes / 1_000_000)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let disk = || format!("the disk of parameter shard {} at {}", hello.index, hello.address);
    (!told.is_empty()).then(|| format!("{} {}", disk(), told.join(", and ")))
}

/// Redis did not answer, or refused.
pub(super) fn store_fault(error: StoreError) -> EngineFault {
    EngineFault::Store { cause: error.to_string() }
}
