//! Taking over: every job is read from Redis, and what may not have been carried out is asked again. A job that cannot be
//! read is parked; the others go on.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use syncline_scheduler::{
    core::{Core, Input, Job, Phase},
    ids::{EngineEpoch, Incarnation, JobId},
};
use tracing::{error, info};

use super::{active::Active, clock::Clock, effects::Hands};
use crate::store::{Claimed, RedisStore, StoreError};

/// A job that was read, or why it could not be.
enum Read {
    Job(Box<Job>, u64),
    Nothing,
    Damaged(String),
}

impl Active {
    /// Loads every job. `leads` tells whether this engine still has the lead: a job that belongs to a higher epoch is
    /// then damaged.
    pub(super) async fn load<F: Future<Output = bool>>(
        store: RedisStore,
        epoch: EngineEpoch,
        hands: Hands,
        clock: Clock,
        leads: impl Fn() -> F,
    ) -> Result<Self, StoreError> {
        let core = Core::new(hands.shards.count());
        let (seqs, over) = (BTreeMap::new(), BTreeMap::new());
        let (listed, listed_at) = (Vec::new(), Instant::now());
        let mut active = Self { core, store, epoch, hands, clock, seqs, listed, listed_at, over };
        let mut effects = Vec::new();
        let mut newest = Incarnation(0);
        for id in active.store.jobs().await? {
            let read = active.read(&id, &leads).await?;
            if !matches!(read, Read::Nothing) {
                active.listed.push(id.clone());
            }
            let (job, seq) = match read {
                Read::Job(job, seq) => (*job, seq),
                Read::Nothing => {
                    active.store.unlist_job(&id, epoch).await?;
                    continue;
                }
                Read::Damaged(reason) => {
                    // One damaged job must not keep the others from running; its keys stay for inspection.
                    error!(job = %id, reason, "job is damaged and left aside");
                    active.hands.park(&id, reason);
                    continue;
                }
            };
            active.seqs.insert(id.clone(), seq);
            active.hands.learn(job.spec());
            if job.phase().is_over() {
                active.note_over(&id);
            }
            newest = newest.max(job.newest_worker());
            let (running, generation, floor) =
                (*job.phase() == Phase::Running, job.generation(), job.floor());
            info!(job = %id, state = job.phase().word(), seq, "job loaded");
            effects.extend(active.core.restore(job));
            if running {
                active.hands.attach(&id, generation, &floor);
            }
        }
        active.store.skip_incarnations(newest).await?;
        for (worker, about) in active.core.workers() {
            active.hands.sessions.reopen(worker, about.clone());
        }
        effects.into_iter().for_each(|effect| active.hands.carry_out(effect));
        Ok(active)
    }

    async fn read<F: Future<Output = bool>>(
        &self,
        id: &JobId,
        leads: &impl Fn() -> F,
    ) -> Result<Read, StoreError> {
        let (stored, seq) = match self.store.claim(id, self.epoch).await {
            Ok(Claimed::Job { stored, seq }) => (stored, seq),
            Ok(Claimed::Nothing) => return Ok(Read::Nothing),
            Ok(Claimed::Damaged { what }) => return Ok(Read::Damaged(what)),
            Err(StoreError::Fenced { epoch, seq }) => {
                return match leads().await {
                    true => {
                        Ok(Read::Damaged(format!("it belongs to epoch {epoch}, which no engine has had")))
                    }
                    false => Err(StoreError::Fenced { epoch, seq }),
                };
            }
            Err(passing) if passing.is_passing() => return Err(passing),
            Err(other) => return Ok(Read::Damaged(other.to_string())),
        };
        let job = match Job::load(&stored) {
            Ok(job) => job,
            Err(unreadable) => return Ok(Read::Damaged(unreadable.to_string())),
        };
        // What is missing shows only in use. A job that would bring down the core must not come into it.
        let (trial, shards, now_us) = (job.clone(), self.hands.shards.count(), self.clock.now_us());
        let survives = catch_unwind(AssertUnwindSafe(|| {
            let mut core = Core::new(shards);
            core.restore(trial);
            core.handle(now_us, Input::Tick).is_ok()
        }));
        Ok(match survives {
            Ok(true) => Read::Job(Box::new(job), seq),
            _ => Read::Damaged("its records contradict each other".into()),
        })
    }
}
