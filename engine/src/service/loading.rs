//! Taking over: every job is read from Redis, and what may not have been carried out is asked again. A job that cannot be
//! read is parked; the others go on.

use std::{collections::BTreeMap, time::Instant};

use syncline_scheduler::{
    core::{Core, Effect, Input, Job, Phase, StoredJob, TaskJob, Unreadable, catch_panic},
    ids::{EngineEpoch, Incarnation, JobId},
};
use tracing::{error, info, warn};

use super::{
    clock::Clock, damaged_jobs::Damage, decision_loop::DecisionLoop, dispatcher::EffectDispatcher,
    last_commit::LastCommit,
};
use crate::store::{Claimed, RedisStore, StoreError};

/// A job that was read, or why it could not be.
enum LoadedJob {
    Ready(AnyJob, u64),
    Absent,
    Damaged(Damage),
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

    /// Whether the core can take it in. What is missing shows only in use, and a job that would bring down the core must
    /// not come into it.
    fn is_usable(&self, shards: u32, now_us: u64) -> bool {
        let trial = self.clone();
        let survives = catch_panic(|| {
            let mut core = Core::new(shards);
            trial.restore(&mut core);
            core.handle(now_us, Input::Tick).is_ok()
        });
        survives.unwrap_or(false)
    }
}

/// What a reader makes of the records of a job. It may stumble over some that nobody has thought of: that is the damage of this
/// job, and no reason for the others to wait.
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
    /// Loads every job. `leads` tells whether this engine still has the lead: a job that belongs to a higher epoch is
    /// then damaged.
    pub(super) async fn load<F: Future<Output = bool>>(
        store: RedisStore,
        epoch: EngineEpoch,
        dispatcher: EffectDispatcher,
        clock: Clock,
        leads: impl Fn() -> F,
    ) -> Result<Self, StoreError> {
        let core = Core::new(dispatcher.shards.count());
        let mut decision_loop = Self {
            core,
            store,
            epoch,
            dispatcher,
            clock,
            written: BTreeMap::new(),
            highest_seq: 0,
            listed_at: Instant::now(),
            forget_at: BTreeMap::new(),
            just_ended: BTreeMap::new(),
        };
        let mut effects = Vec::new();
        let mut newest = Incarnation(0);
        let mut damaged = Vec::new();
        for id in decision_loop.listed_or_found().await? {
            let read = decision_loop.load_job(&id, &leads).await?;
            if !matches!(read, LoadedJob::Absent) {
                decision_loop.dispatcher.list(&id);
            }
            let (job, seq) = match read {
                LoadedJob::Ready(job, seq) => (job, seq),
                LoadedJob::Absent => {
                    decision_loop.store.unlist_job(&id, epoch).await?;
                    continue;
                }
                LoadedJob::Damaged(damage) => {
                    // One damaged job must not keep the others from running; its keys stay for inspection.
                    let reason = damage.to_string();
                    error!(job = %id, reason, "job is damaged and left aside");
                    decision_loop.dispatcher.mark_damaged(&id, damage);
                    decision_loop.core.set_aside(id.clone());
                    damaged.push((id, reason));
                    continue;
                }
            };
            decision_loop.written.insert(id.clone(), LastCommit::up_to(seq));
            decision_loop.highest_seq = decision_loop.highest_seq.max(seq);
            if job.phase().is_over() {
                decision_loop.schedule_forgetting(&id, job.ended_us());
            }
            newest = newest.max(job.newest_worker());
            info!(job = %id, state = %job.phase().shown(), seq, "job loaded");
            if let AnyJob::Training(job) = &job
                && !job.phase().is_over()
            {
                decision_loop.dispatcher.remember_spec(job.spec());
                if *job.phase() == Phase::Running {
                    decision_loop.dispatcher.attach(&job.run(), &job.floor());
                }
            }
            effects.extend(job.restore(&mut decision_loop.core));
        }
        let now_us = decision_loop.clock.now_us();
        for (id, reason) in &damaged {
            effects.extend(decision_loop.core.training_damaged(id, reason, now_us));
        }
        decision_loop.store.skip_incarnations(newest).await?;
        for (worker, about) in decision_loop.core.workers() {
            decision_loop.dispatcher.sessions.restore(worker, about.clone());
        }
        effects.into_iter().for_each(|effect| decision_loop.dispatcher.dispatch(effect));
        Ok(decision_loop)
    }

    /// The engine before led until its clock said `last_ms`, as far as anybody knows.
    pub(super) fn discount_downtime(&mut self, last_ms: Option<u64>) {
        if let Some(last_ms) = last_ms {
            self.core.discount_downtime(last_ms.saturating_mul(1_000), self.clock.now_us());
        }
    }

    /// The jobs that are listed. Where something has removed the list or taken its key, those that have keys, listed anew.
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

    async fn load_job<F: Future<Output = bool>>(
        &self,
        id: &JobId,
        leads: &impl Fn() -> F,
    ) -> Result<LoadedJob, StoreError> {
        let records = |what: String| Ok(LoadedJob::Damaged(Damage::Records(what)));
        let (stored, seq) = match self.store.claim(id, self.epoch).await {
            Ok(Claimed::Job { stored, seq }) => (stored, seq),
            Ok(Claimed::Absent) => return Ok(LoadedJob::Absent),
            Ok(Claimed::Damaged { what }) => return records(what),
            Ok(Claimed::Crashing { times, panic }) => {
                return Ok(LoadedJob::Damaged(Damage::Crashes { times, panic }));
            }
            Err(StoreError::Fenced { epoch, seq }) => {
                return match leads().await {
                    true => records(format!("it belongs to epoch {epoch}, which no engine has had")),
                    false => Err(StoreError::Fenced { epoch, seq }),
                };
            }
            Err(error) if !error.is_of_keys() => return Err(error),
            Err(other) => return records(other.to_string()),
        };
        let job = match undamaged(|| AnyJob::load(&stored)) {
            Ok(job) => job,
            Err(damage) => return Ok(LoadedJob::Damaged(damage)),
        };
        if job.id() != id {
            return records(format!("its records are those of job {}", job.id()));
        }
        Ok(match job.is_usable(self.dispatcher.shards.count(), self.clock.now_us()) {
            true => LoadedJob::Ready(job, seq),
            false => LoadedJob::Damaged(contradictory()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_over_whose_records_the_reader_stumbles_is_damaged() {
        let damage = |load: fn() -> Result<AnyJob, Unreadable>| undamaged(load).err().unwrap().to_string();
        assert_eq!(damage(|| panic!("at a record")), "its records contradict each other");
        let unreadable = damage(|| AnyJob::load(&StoredJob { spec: "{".into(), ..StoredJob::default() }));
        assert!(unreadable.contains("spec"), "{unreadable}");
    }
}
