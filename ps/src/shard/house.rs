//! All jobs of one shard process.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use dashmap::DashMap;
use syncline_engine::rpc::{HeldJob, ShardFault, ShardState};
use syncline_scheduler::ids::{EngineEpoch, Generation, JobId};

use super::{Fence, JobShard, lock};

/// The key table: which job is held in which generation.
#[derive(Default)]
pub struct House {
    fence: Fence,
    jobs: DashMap<JobId, Arc<Slot>>,
    /// Names that were closed, oldest first.
    closed: Mutex<VecDeque<JobId>>,
}

/// So many closed jobs are told from jobs that never were.
const CLOSED_NAMES: usize = 1024;

/// One job's place. It outlives the job, so that late workers learn that it was closed.
#[derive(Default)]
struct Slot {
    /// Held while initial parameters are loaded: a repeated order waits instead of loading them again.
    opening: Mutex<()>,
    held: Mutex<Held>,
}

#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    Open(Arc<JobShard>),
    /// This life was closed.
    Closed(Generation),
}

/// What [`House::open`] came to.
pub struct Opened {
    pub state: ShardState,
    /// The job, if it was opened by this very order.
    pub fresh: Option<Arc<JobShard>>,
}

impl House {
    /// The highest engine epoch seen by this process.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    fn slot(&self, job: &JobId) -> Option<Arc<Slot>> {
        self.jobs.get(job).map(|slot| slot.clone())
    }

    /// The job as it is held now, in whatever generation.
    pub fn current(&self, job: &JobId) -> Result<Arc<JobShard>, ShardFault> {
        let slot = self.slot(job).ok_or_else(|| ShardFault::UnknownJob { job: job.clone() })?;
        match &*lock(&slot.held) {
            Held::Open(shard) => Ok(shard.clone()),
            Held::Nothing => Err(ShardFault::UnknownJob { job: job.clone() }),
            Held::Closed(_) => Err(ShardFault::Closed { job: job.clone() }),
        }
    }

    /// The job in exactly this generation.
    pub fn find(&self, job: &JobId, given: Generation) -> Result<Arc<JobShard>, ShardFault> {
        let shard = self.current(job)?;
        let current = shard.generation();
        if current != given {
            return Err(ShardFault::WrongGeneration { job: job.clone(), given, current });
        }
        Ok(shard)
    }

    /// Where the job stands; `None` if it is not open here.
    pub fn attach(&self, epoch: EngineEpoch, job: &JobId) -> Result<Option<ShardState>, ShardFault> {
        self.fence.check(epoch)?;
        match self.current(job) {
            Ok(shard) => shard.state(epoch).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Every job that is open here, with the life of its parameters.
    pub fn held(&self, epoch: EngineEpoch) -> Result<Vec<HeldJob>, ShardFault> {
        self.fence.check(epoch)?;
        let open = self.jobs.iter().filter_map(|slot| match &*lock(&slot.held) {
            Held::Open(shard) => Some(HeldJob { job: slot.key().clone(), generation: shard.generation() }),
            Held::Nothing | Held::Closed(_) => None,
        });
        Ok(open.collect())
    }

    /// Takes note of where all shards are now: those of every open job, among which they are the only ones.
    pub fn moved_to(&self, epoch: EngineEpoch, shards: &[String]) -> Result<(), ShardFault> {
        self.fence.check(epoch)?;
        let of_all = self.open_jobs().into_iter().filter(|job| job.shards().len() == shards.len());
        of_all.for_each(|job| job.moved_to(shards));
        Ok(())
    }

    /// Opens a job in `generation` over `shards` with what `load` makes, which takes its time. The same generation stays
    /// as it is; an older one ends, and so does another job of the same name, which no engine can know any more; a newer
    /// one refuses.
    pub fn open(
        &self,
        epoch: EngineEpoch,
        job: &JobId,
        generation: Generation,
        shards: &[String],
        load: impl FnOnce() -> Result<JobShard, ShardFault>,
    ) -> Result<Opened, ShardFault> {
        self.fence.check(epoch)?;
        let slot = self.jobs.entry(job.clone()).or_default().clone();
        let _loading = lock(&slot.opening);
        if let Held::Open(shard) = &*lock(&slot.held) {
            let current = shard.generation();
            if current == generation {
                // It was opened before, or saved at a stop: only the addresses may be new.
                let state = shard.state(epoch)?;
                shard.moved_to(shards);
                return Ok(Opened { state, fresh: None });
            }
            if current.follows(generation) {
                return Err(ShardFault::WrongGeneration { job: job.clone(), given: generation, current });
            }
        }
        let closed = |held: &Held| matches!(held, Held::Closed(life) if *life == generation);
        let closed_before = closed(&lock(&slot.held));
        let fresh = Arc::new(load()?);
        let mut held = lock(&slot.held);
        if closed(&held) && !closed_before {
            return Err(ShardFault::Closed { job: job.clone() });
        }
        // Loading took a while: another engine may have taken over since.
        self.fence.check(epoch)?;
        if let Held::Open(old) = &*held {
            old.replace(generation);
        }
        *held = Held::Open(fresh.clone());
        Ok(Opened { state: fresh.state(epoch)?, fresh: Some(fresh) })
    }

    /// Takes in a job that was saved. Called before anybody is served.
    pub(crate) fn restore(&self, shard: JobShard) {
        // Only an engine that came after the one that gave the last order may give the next.
        let _ = self.fence.check(shard.epoch());
        let job = shard.job().clone();
        let slot = Slot { opening: Mutex::default(), held: Mutex::new(Held::Open(Arc::new(shard))) };
        self.jobs.insert(job, Arc::new(slot));
    }

    /// Every job that is open.
    pub(crate) fn open_jobs(&self) -> Vec<Arc<JobShard>> {
        let open = |slot: &Slot| match &*lock(&slot.held) {
            Held::Open(shard) => Some(shard.clone()),
            Held::Nothing | Held::Closed(_) => None,
        };
        self.jobs.iter().filter_map(|slot| open(slot.value())).collect()
    }

    /// Forgets every job: the process stops.
    pub(crate) fn close_all(&self) {
        for slot in &self.jobs {
            if let Held::Open(shard) = std::mem::take(&mut *lock(&slot.held)) {
                shard.close();
            }
        }
    }

    /// Forgets a job and wakes everybody who waits for it. Another life of the name than `generation` stays.
    pub fn close(&self, epoch: EngineEpoch, job: &JobId, generation: Generation) -> Result<(), ShardFault> {
        self.fence.check(epoch)?;
        let Some(slot) = self.slot(job) else { return Ok(()) };
        let mut held = lock(&slot.held);
        match &*held {
            Held::Open(shard) if shard.generation() != generation => return Ok(()),
            Held::Open(shard) => shard.close(),
            Held::Nothing | Held::Closed(_) => {}
        }
        *held = Held::Closed(generation);
        drop(held);
        self.forget(job);
        Ok(())
    }

    /// Notes a name that is closed, and forgets the oldest of too many: who asks for them then hears that there is no
    /// such job.
    fn forget(&self, job: &JobId) {
        let mut closed = lock(&self.closed);
        closed.retain(|name| name != job);
        closed.push_back(job.clone());
        while closed.len() > CLOSED_NAMES {
            let Some(oldest) = closed.pop_front() else { return };
            self.jobs.remove_if(&oldest, |_, slot| {
                // Whoever opens it just now holds the slot as well.
                Arc::strong_count(slot) == 1 && matches!(*lock(&slot.held), Held::Closed(_))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_closed_jobs_are_forgotten_in_the_end() {
        let (house, epoch, life) = (House::default(), EngineEpoch(1), Generation::first(1));
        let name = |n: usize| -> JobId { format!("job-{n}").parse().unwrap() };
        for n in 0..3 * CLOSED_NAMES {
            house.jobs.entry(name(n)).or_default();
            house.close(epoch, &name(n), life).unwrap();
            assert_eq!(house.current(&name(n)).err(), Some(ShardFault::Closed { job: name(n) }));
        }
        assert!(house.jobs.len() <= CLOSED_NAMES && house.closed.lock().unwrap().len() == CLOSED_NAMES);
        assert_eq!(house.current(&name(0)).err(), Some(ShardFault::UnknownJob { job: name(0) }));
    }

    #[test]
    fn a_late_close_of_an_earlier_job_does_not_keep_its_successor_out() {
        let (house, epoch) = (House::default(), EngineEpoch(1));
        let (old, new, job): (_, _, JobId) =
            (Generation::first(1), Generation::first(2), "digits".parse().unwrap());
        for (closed, kept_out) in [(old, false), (new, true)] {
            let opened = house.open(epoch, &job, new, &[], || {
                house.close(epoch, &job, closed)?;
                Err(ShardFault::Invalid { what: "loaded".into() })
            });
            assert!(matches!(opened, Err(ShardFault::Invalid { .. })));
            let is_closed =
                matches!(*lock(&house.slot(&job).unwrap().held), Held::Closed(life) if life == new);
            assert_eq!(is_closed, kept_out);
        }
    }
}
