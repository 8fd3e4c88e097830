//! Taking over: every job is read from Redis, and what may not have been carried out is asked again. A job
//! that cannot be read is parked; the others go on.

use std::{collections::BTreeMap, slice, time::Instant};

use futures::future::join_all;
use syncline_rpc::Cause;
use syncline_scheduler::{
    core::{Core, Effect, Input, Job, Phase, StoredJob, TaskJob, Unreadable, catch_panic},
    ids::{EngineEpoch, Incarnation, JobId},
};
use tracing::{error, info, warn};

use super::{
    clock::Clock, damaged_jobs::Damage, decision_loop::DecisionLoop, expiry_clock::ExpiryClock,
    job_list::until_gone, last_commit::LastCommit, lead::Lead, load_progress::LoadProgress,
};
use crate::store::{Claimed, Expiry, RedisStore, StoreError};

/// Claims that are on their way at a time, over one connection.
const CLAIMS_AT_ONCE: usize = 128;
/// Jobs that are read at a time.
const READS_AT_ONCE: usize = 8;
/// Bytes that these have in Redis, unless one has more by itself: all come over one connection, and each has
/// its time from when they were asked for.
const READ_BYTES_AT_ONCE: u64 = 64 << 20;

/// A job that was read, or why it could not be.
enum LoadedJob {
    Ready(AnyJob, u64),
    Absent,
    Damaged(Damage),
}

/// What all jobs that were loaded have brought.
#[derive(Default)]
struct Found {
    /// To be carried out again.
    effects: Vec<Effect>,
    newest: Incarnation,
    /// Jobs left aside, and why.
    damaged: Vec<(JobId, String)>,
}

impl LoadedJob {
    fn spoiled(what: impl Into<Cause>) -> Self {
        Self::Damaged(Damage::Records(what.into()))
    }
}

/// A job of either kind.
#[derive(Clone)]
enum AnyJob {
    Training(Box<Job>),
    Tasks(Box<TaskJob>),
}

impl AnyJob {
    fn load(stored: &StoredJob) -> Result<Self, Unreadable> {
        match stored.holds_tasks() {
            true => TaskJob::load(stored).map(|job| Self::Tasks(job.into())),
            false => Job::load(stored).map(|job| Self::Training(job.into())),
        }
    }

    fn id(&self) -> &JobId {
        match self {
            Self::Training(job) => job.name(),
            Self::Tasks(job) => job.name(),
        }
    }

    fn phase(&self) -> &Phase {
        match self {
            Self::Training(job) => job.phase(),
            Self::Tasks(job) => job.phase(),
        }
    }

    /// On the engine's clock, where it is over.
    fn ended_us(&self) -> Option<u64> {
        match self {
            Self::Training(job) => job.ended_us(),
            Self::Tasks(job) => job.ended_us(),
        }
    }

    fn newest_worker(&self) -> Incarnation {
        match self {
            Self::Training(job) => job.newest_worker(),
            Self::Tasks(job) => job.newest_worker(),
        }
    }

    fn restore(self, core: &mut Core) -> Vec<Effect> {
        match self {
            Self::Training(job) => core.restore(*job),
            Self::Tasks(job) => core.restore_tasks(*job),
        }
    }

    /// Whether the core can take it in. What is missing shows only in use, and a job that would bring down
    /// the core must not come into it. A graph that is over is not used any more, only looked at: there
    /// may be thousands, of a million tasks each.
    fn is_usable(&self, shards: u32, now_us: u64) -> bool {
        if matches!(self, Self::Tasks(job) if job.phase().is_over()) {
            return true;
        }
        let trial = self.clone();
        let survives = catch_panic(|| {
            let mut core = Core::new(shards);
            trial.restore(&mut core);
            core.handle(now_us, Input::Tick).is_ok()
        });
        survives.unwrap_or(false)
    }
}

/// What a reader makes of the records of a job. It may stumble over some that nobody has thought of: that is
/// the damage of this job, and no reason for the others to wait.
fn undamaged(load: impl FnOnce() -> Result<AnyJob, Unreadable>) -> Result<AnyJob, Damage> {
    match catch_panic(load) {
        Ok(read) => read.map_err(Damage::from),
        Err(_) => Err(contradictory()),
    }
}

fn contradictory() -> Damage {
    Damage::Records("its records contradict each other".into())
}

impl DecisionLoop {
    /// Loads every job. `leads` tells whether this engine still has the lead: a job that belongs to a higher
    /// epoch is then damaged.
    pub(super) async fn load<F: Future<Output = bool>>(
        store: RedisStore,
        epoch: EngineEpoch,
        lead: Lead,
        clock: Clock,
        leads: impl Fn() -> F,
        progress: &mut LoadProgress,
    ) -> Result<Self, StoreError> {
        let core = Core::new(lead.shards.count());
        let mut decision_loop = Self {
            core,
            store,
            epoch,
            lead,
            clock,
            written: BTreeMap::new(),
            highest_seq: 0,
            listed_at: Instant::now(),
            forget_at: BTreeMap::new(),
            expiry_clock: ExpiryClock::default(),
            damaged_until: BTreeMap::new(),
            ends_probed: 0,
            forget_scanned_at: Instant::now(),
        };
        let mut found = Found::default();
        let jobs = decision_loop.listed_or_found().await?;
        let mut read = decision_loop.read_jobs(jobs, &leads, progress).await?;
        decision_loop.note_evictions(&mut read).await;
        for (id, read) in read {
            decision_loop.take_in(id, read, &mut found).await?;
        }
        let Found { mut effects, newest, damaged } = found;
        let now_us = decision_loop.clock.now_us();
        for (id, reason) in &damaged {
            effects.extend(decision_loop.core.training_damaged(id, reason, now_us));
        }
        decision_loop.store.skip_incarnations(newest).await?;
        for (worker, about) in decision_loop.core.workers() {
            decision_loop.lead.sessions.restore(worker, about.clone());
        }
        effects.into_iter().for_each(|effect| decision_loop.lead.dispatch(effect));
        decision_loop.lead.sessions.mark_retold();
        Ok(decision_loop)
    }

    /// Says of jobs whose records are not whole that the server throws keys away, where it has.
    async fn note_evictions(&self, read: &mut [(JobId, LoadedJob)]) {
        let mut reasons: Vec<&mut String> = read
            .iter_mut()
            .filter_map(|(_, job)| match job {
                LoadedJob::Damaged(Damage::Records(cause)) => Some(&mut cause.reason),
                _ => None,
            })
            .collect();
        if reasons.is_empty() {
            return;
        }
        if let Ok(evicted @ 1..) = self.store.evicted_keys().await {
            let note = format!(
                "; keys that Redis has evicted since its start: {evicted}, because its memory was full, perhaps some of this job: `CONFIG SET maxmemory-policy noeviction`"
            );
            reasons.iter_mut().for_each(|reason| reason.push_str(&note));
        }
    }

    /// Takes in one job, or leaves it aside: one that is damaged must not keep the others from running, and
    /// its keys stay for inspection.
    async fn take_in(&mut self, id: JobId, read: LoadedJob, found: &mut Found) -> Result<(), StoreError> {
        if !matches!(read, LoadedJob::Absent) {
            self.lead.jobs.list(&id);
        }
        let here = self.lead.shards.count();
        let read = match read {
            // It would lose what its shards keep of it to those that have nothing.
            LoadedJob::Ready(AnyJob::Training(job), _) if job.lies_on_others(here) => {
                LoadedJob::Damaged(Damage::OtherShards { its: job.shards(), here })
            }
            read => read,
        };
        let (job, seq) = match read {
            LoadedJob::Ready(job, seq) => (job, seq),
            LoadedJob::Absent => return self.store.unlist_job(&id, self.epoch).await,
            LoadedJob::Damaged(damage) => {
                let reason = damage.to_string();
                error!(job = %id, reason, "job is left aside");
                let is_lost = !matches!(damage, Damage::OtherShards { .. });
                if !is_lost {
                    // Its shards have what Redis must not forget. An earlier release let the keys expire all
                    // the same.
                    self.store.keep(&id).await?;
                } else if let [Expiry::InMs(left_ms)] = self.store.expiries(slice::from_ref(&id)).await?[..] {
                    // It was over before.
                    self.damaged_until.insert(id.clone(), Instant::now() + until_gone(left_ms));
                }
                self.lead.jobs.mark_damaged(&id, damage);
                self.core.set_aside(id.clone());
                // A task that it trains for waits for it otherwise.
                found.damaged.extend(is_lost.then_some((id, reason)));
                return Ok(());
            }
        };
        self.written.insert(id.clone(), LastCommit::up_to(seq));
        self.highest_seq = self.highest_seq.max(seq);
        if job.phase().is_over() {
            self.schedule_forgetting(&id, job.ended_us());
        }
        found.newest = found.newest.max(job.newest_worker());
        info!(job = %id, state = %job.phase().shown(), seq, "job loaded");
        if let AnyJob::Training(job) = &job
            && !job.phase().is_over()
        {
            self.lead.jobs.remember_spec(job.spec(), job.generation().nonce());
            if *job.phase() == Phase::Running {
                self.lead.control.attach(&job.run(), &job.floor());
            }
        }
        found.effects.extend(job.restore(&mut self.core));
        Ok(())
    }

    /// The engine before led until its clock said `last_ms`, as far as anybody knows.
    pub(super) fn discount_downtime(&mut self, last_ms: Option<u64>) {
        if let Some(last_ms) = last_ms {
            self.core.discount_downtime(last_ms.saturating_mul(1_000), self.clock.now_us());
        }
        // While jobs were loaded, nobody led either.
        self.lead.standstill.take();
    }

    /// The jobs that are listed. Where something has removed the list or taken its key, those that have keys,
    /// listed anew.
    async fn listed_or_found(&self) -> Result<Vec<JobId>, StoreError> {
        match self.store.jobs().await {
            Ok(listed) if !listed.is_empty() => return Ok(listed),
            Err(error) if !error.is_of_keys() => return Err(error),
            _ => {}
        }
        let found = self.store.find_jobs().await?;
        if let Some(first) = found.first() {
            warn!(jobs = found.len(), %first, "the list of jobs was gone; those that have keys are listed anew");
        }
        self.store.relist_jobs(&found, self.epoch, self.clock.now_us() / 1000).await?;
        Ok(found)
    }

    /// Claims jobs and reads them, many at a time: they may be thousands, most of them over. All are claimed
    /// and measured first, because such answers would otherwise wait behind records.
    async fn read_jobs<F: Future<Output = bool>>(
        &self,
        jobs: Vec<JobId>,
        leads: &impl Fn() -> F,
        progress: &mut LoadProgress,
    ) -> Result<Vec<(JobId, LoadedJob)>, StoreError> {
        progress.listed(jobs.len());
        let mut claims = Vec::with_capacity(jobs.len());
        let mut sizes = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(CLAIMS_AT_ONCE) {
            for claim in join_all(jobs.iter().map(|id| self.store.claim(id, self.epoch))).await {
                claims.push(judge_claim(claim, leads).await?);
            }
            for bytes in join_all(jobs.iter().map(|id| self.store.record_bytes(id))).await {
                sizes.push(bytes?);
            }
            progress.claimed(jobs.len());
        }
        let mut read = Vec::with_capacity(jobs.len());
        let (mut claimed, mut sizes) = (jobs.into_iter().zip(claims), &sizes[..]);
        while !sizes.is_empty() {
            let (these, others) = sizes.split_at(read_together(sizes));
            sizes = others;
            let some: Vec<_> = claimed.by_ref().take(these.len()).collect();
            let reads = some.iter().zip(these).map(|((id, claim), bytes)| self.records_of(id, claim, *bytes));
            let records = join_all(reads).await;
            for ((id, claim), records) in some.into_iter().zip(records) {
                let job = match (claim, records) {
                    (Ok(seq), Some(records)) => self.load_job(&id, seq, records)?,
                    (Ok(_), None) => LoadedJob::Absent,
                    (Err(unusable), _) => unusable,
                };
                read.push((id, job));
            }
            progress.read(these.len());
        }
        Ok(read)
    }

    /// What is stored of a job that could be claimed.
    async fn records_of(
        &self,
        id: &JobId,
        claim: &Result<u64, LoadedJob>,
        bytes: u64,
    ) -> Option<Result<StoredJob, StoreError>> {
        match claim {
            Ok(_) => Some(self.store.read_of_size(id, bytes).await),
            Err(_) => None,
        }
    }

    fn load_job(
        &self,
        id: &JobId,
        seq: u64,
        records: Result<StoredJob, StoreError>,
    ) -> Result<LoadedJob, StoreError> {
        let stored = match records {
            Err(error) if error.is_of_keys() => return Ok(LoadedJob::spoiled(error.cause())),
            stored => stored?,
        };
        // Its seven days ended since it was claimed.
        if stored == StoredJob::default() {
            return Ok(LoadedJob::Absent);
        }
        let job = match undamaged(|| AnyJob::load(&stored)) {
            Ok(job) => job,
            Err(damage) => return Ok(LoadedJob::Damaged(damage)),
        };
        if job.id() != id {
            return Ok(LoadedJob::spoiled(format!("its records are those of job {}", job.id())));
        }
        Ok(match job.is_usable(self.lead.shards.count(), self.clock.now_us()) {
            true => LoadedJob::Ready(job, seq),
            false => LoadedJob::Damaged(contradictory()),
        })
    }
}

/// How many of the first of these jobs are read at a time, by how many bytes each has.
fn read_together(sizes: &[u64]) -> usize {
    let mut bytes: u64 = 0;
    let fits = |size: &&u64| {
        bytes = bytes.saturating_add(**size);
        bytes <= READ_BYTES_AT_ONCE
    };
    sizes.iter().take(READS_AT_ONCE).take_while(fits).count().max(1)
}

/// The number of the last commit of a job that is this engine's from now on; or what is wrong with it.
async fn judge_claim<F: Future<Output = bool>>(
    claim: Result<Claimed, StoreError>,
    leads: &impl Fn() -> F,
) -> Result<Result<u64, LoadedJob>, StoreError> {
    Ok(Err(match claim {
        Ok(Claimed::Job { seq }) => return Ok(Ok(seq)),
        Ok(Claimed::Absent) => LoadedJob::Absent,
        Ok(Claimed::Damaged { what }) => LoadedJob::spoiled(what),
        Ok(Claimed::Crashing { times, panic }) => LoadedJob::Damaged(Damage::Crashes { times, panic }),
        Err(StoreError::Fenced { epoch, seq }) => match leads().await {
            true => LoadedJob::spoiled(format!("it belongs to epoch {epoch}, which no engine has had")),
            false => return Err(StoreError::Fenced { epoch, seq }),
        },
        Err(error) if !error.is_of_keys() => return Err(error),
        Err(other) => LoadedJob::spoiled(other.cause()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_as_many_at_a_time_as_have_a_moderate_size_and_large_ones_alone() {
        const MIB: u64 = 1 << 20;
        for (sizes, together) in [
            (vec![0; 20], 8),
            (vec![0; 3], 3),
            (vec![20 * MIB; 20], 3),
            (vec![MIB, MIB, 300 * MIB, MIB], 2),
            (vec![300 * MIB, MIB], 1),
            (vec![u64::MAX; 2], 1),
        ] {
            assert_eq!(read_together(&sizes), together, "{sizes:?}");
        }
    }

    #[test]
    fn a_job_over_whose_records_the_reader_stumbles_is_damaged() {
        let damage = |load: fn() -> Result<AnyJob, Unreadable>| undamaged(load).err().unwrap().to_string();
        assert_eq!(damage(|| panic!("at a record")), "its records contradict each other");
        let unreadable = damage(|| AnyJob::load(&StoredJob { spec: "{".into(), ..StoredJob::default() }));
        assert!(unreadable.contains("spec"), "{unreadable}");
    }
}
