//! All jobs of one shard process.

mod run_before;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use syncline_rpc::{HeldJob, ShardFault, ShardState, threads::lock};
use syncline_scheduler::ids::{EngineEpoch, JobId, RunId};

use super::{EpochFence, JobShard};

/// Which jobs this process holds, and in which generation.
#[derive(Default)]
pub struct JobTable {
    fence: EpochFence,
    /// Addresses of all shards, as the engine said last.
    addresses: Mutex<ShardAddresses>,
    /// Locked before the state of an entry, and for no longer than that. Under neither anybody waits for the
    /// state of a job, which may be locked for as long as the job is large: all others would wait for it.
    jobs: Mutex<BTreeMap<JobId, Arc<Entry>>>,
    /// Names that were closed, oldest first.
    closed: Mutex<VecDeque<JobId>>,
}

/// Where all shards are.
#[derive(Default)]
struct ShardAddresses {
    /// Which engine said so, and how often they had changed then.
    revision: (EngineEpoch, u64),
    addresses: Vec<String>,
}

/// How many names of closed jobs are remembered, so that they are told from jobs that never existed.
const CLOSED_NAMES: usize = 1024;

/// What is known of one name. It outlives the job, so that late workers learn that it was closed.
#[derive(Default)]
struct Entry {
    /// Held while parameters are loaded: whoever asks for the job meanwhile waits instead of loading them
    /// again.
    opening: Mutex<()>,
    held: Mutex<HeldRuns>,
}

#[derive(Default)]
struct HeldRuns {
    state: EntryState,
    /// Those that lie on disk, by nonce, and are read when an engine asks for them. Jobs of one name follow
    /// each other where Redis has forgotten the first.
    aside: BTreeMap<u32, AsideJob>,
}

#[derive(Default)]
enum EntryState {
    #[default]
    Empty,
    Open(Arc<JobShard>),
    /// This run was closed.
    Closed(RunId),
}

/// A job that was set aside.
#[derive(Clone)]
pub(crate) struct AsideJob {
    pub run: RunId,
    /// The epoch of the engine that gave the last order.
    pub epoch: EngineEpoch,
    pub written_at: SystemTime,
    /// Reads it; `None` if it is damaged.
    pub read: Arc<ReadAside>,
}

pub(crate) type ReadAside = dyn Fn() -> Result<Option<JobShard>, ShardFault> + Send + Sync;

impl HeldRuns {
    fn open(&self) -> Option<&Arc<JobShard>> {
        match &self.state {
            EntryState::Open(shard) => Some(shard),
            EntryState::Empty | EntryState::Closed(_) => None,
        }
    }

    /// This very run, where it is set aside.
    fn aside(&self, run: &RunId) -> Option<&AsideJob> {
        self.aside.get(&run.generation.nonce()).filter(|aside| aside.run == *run)
    }
}

impl Entry {
    fn open_shard(&self) -> Option<Arc<JobShard>> {
        lock(&self.held).open().cloned()
    }

    /// Opens the job that `pick` finds among those that are set aside, unless one is open. `opening` is held.
    fn read_aside(
        &self,
        addresses: &Mutex<ShardAddresses>,
        pick: impl Fn(&HeldRuns) -> Option<AsideJob>,
    ) -> Result<(), ShardFault> {
        // One that is damaged makes way for the next.
        while let Some(aside) = self.unread(&pick) {
            let read = (aside.read)()?;
            let mut held = lock(&self.held);
            // It may have been closed meanwhile.
            if held.aside(&aside.run).is_some_and(|still| Arc::ptr_eq(&still.read, &aside.read)) {
                held.aside.remove(&aside.run.generation.nonce());
                held.state = read.map_or(EntryState::Empty, |shard| {
                    let addresses = &lock(addresses).addresses;
                    if shard.shards().len() == addresses.len() {
                        shard.set_addresses(addresses);
                    }
                    EntryState::Open(Arc::new(shard))
                });
            }
        }
        Ok(())
    }

    fn unread(&self, pick: &impl Fn(&HeldRuns) -> Option<AsideJob>) -> Option<AsideJob> {
        let held = lock(&self.held);
        held.open().is_none().then(|| pick(&held)).flatten()
    }
}

/// The result of [`JobTable::open`].
pub struct Opened {
    /// Where the job stands, opened now or before.
    pub state: ShardState,
    /// The job, if it was opened by this very order.
    pub created: Option<Arc<JobShard>>,
}

impl JobTable {
    /// The highest engine epoch seen by this process.
    pub fn fence(&self) -> &EpochFence {
        &self.fence
    }

    fn entry(&self, job: &JobId) -> Option<Arc<Entry>> {
        lock(&self.jobs).get(job).cloned()
    }

    /// Reads the job of this name that `pick` finds among those that are set aside, unless one is open.
    fn read_aside(
        &self,
        job: &JobId,
        pick: impl Fn(&HeldRuns) -> Option<AsideJob>,
    ) -> Result<Option<Arc<Entry>>, ShardFault> {
        let Some(entry) = self.entry(job) else { return Ok(None) };
        if entry.unread(&pick).is_some() {
            let _loading = lock(&entry.opening);
            entry.read_aside(&self.addresses, pick)?;
        }
        Ok(Some(entry))
    }

    /// Exactly this run of a job; it is read if it was set aside.
    pub fn find(&self, run: &RunId) -> Result<Arc<JobShard>, ShardFault> {
        if let Some(shard) = self.find_open(run) {
            return Ok(shard);
        }
        let job = &run.job;
        let unknown = || ShardFault::UnknownJob { job: job.clone() };
        loop {
            let entry = self.read_aside(job, |held| held.aside(run).cloned())?.ok_or_else(unknown)?;
            let held = lock(&entry.held);
            return match (&held.state, held.aside.get(&run.generation.nonce())) {
                (EntryState::Open(shard), _) if shard.run() == run => Ok(shard.clone()),
                (EntryState::Open(shard), _) => Err(other_generation(run, shard.run())),
                (EntryState::Closed(closed), _) if closed.is_of_same_job(run) => {
                    Err(ShardFault::Closed { job: job.clone() })
                }
                // Another one of the name was open until just now.
                (_, Some(aside)) if aside.run == *run => continue,
                (_, Some(aside)) => Err(other_generation(run, &aside.run)),
                (_, None) => Err(unknown()),
            };
        }
    }

    /// The same, if it is in memory.
    pub(crate) fn find_open(&self, run: &RunId) -> Option<Arc<JobShard>> {
        self.entry(&run.job)?.open_shard().filter(|shard| shard.run() == run)
    }

    /// The job of this name that is open, if it is another one than that of `run`.
    pub(crate) fn find_other_open(&self, run: &RunId) -> Option<Arc<JobShard>> {
        self.entry(&run.job)?.open_shard().filter(|shard| !shard.run().is_of_same_job(run))
    }

    /// Whether this run waits, on disk or on its way there, for an engine to ask for it.
    pub(crate) fn awaits_engine(&self, run: &RunId) -> bool {
        self.entry(&run.job).is_some_and(|entry| {
            let held = lock(&entry.held);
            match held.open() {
                Some(shard) if shard.run() == run => shard.is_frozen(),
                _ => held.aside(run).is_some(),
            }
        })
    }

    /// Whether some run of the same job is here, also of one that was set aside.
    pub(crate) fn has(&self, run: &RunId) -> bool {
        self.entry(&run.job).is_some_and(|entry| {
            let held = lock(&entry.held);
            held.open().is_some_and(|shard| shard.run().is_of_same_job(run))
                || held.aside.contains_key(&run.generation.nonce())
        })
    }

    /// How many jobs were set aside since then, and are not in memory.
    pub(crate) fn count_aside(&self, since: SystemTime) -> usize {
        let of = |entry: &Arc<Entry>| {
            lock(&entry.held).aside.values().filter(|aside| aside.written_at >= since).count()
        };
        lock(&self.jobs).values().map(of).sum()
    }

    /// Where the job of this run stands, in whatever generation; `None` if it was never open here.
    pub fn attach(&self, epoch: EngineEpoch, run: &RunId) -> Result<Option<ShardState>, ShardFault> {
        self.fence.check(epoch)?;
        let nonce = run.generation.nonce();
        let entry = self.read_aside(&run.job, |held| held.aside.get(&nonce).cloned())?;
        let Some(entry) = entry else { return Ok(None) };
        let shard = match &lock(&entry.held).state {
            EntryState::Open(shard) => shard.clone(),
            EntryState::Closed(closed) if closed.is_of_same_job(run) => {
                return Err(ShardFault::Closed { job: run.job.clone() });
            }
            EntryState::Empty | EntryState::Closed(_) => return Ok(None),
        };
        if !shard.run().is_of_same_job(run) {
            return Err(other_generation(run, shard.run()));
        }
        shard.state(epoch).map(Some)
    }

    /// Every job that is open or set aside here, or was closed lately, as the run that it is or was.
    pub fn held(&self, epoch: EngineEpoch) -> Result<Vec<HeldJob>, ShardFault> {
        self.fence.check(epoch)?;
        let known = |entry: &Arc<Entry>| {
            let held = lock(&entry.held);
            let current = match &held.state {
                EntryState::Open(shard) => Some(HeldJob { run: shard.run().clone(), closed: false }),
                EntryState::Closed(run) => Some(HeldJob { run: run.clone(), closed: true }),
                EntryState::Empty => None,
            };
            let aside = held.aside.values().map(|aside| HeldJob { run: aside.run.clone(), closed: false });
            current.into_iter().chain(aside).collect::<Vec<_>>()
        };
        Ok(lock(&self.jobs).values().flat_map(known).collect())
    }

    /// Replaces the shard addresses of every job that has as many shards. Those of an earlier revision come
    /// too late: orders that are read together are carried out in any order. One order at a time.
    pub fn set_addresses(
        &self,
        epoch: EngineEpoch,
        revision: u64,
        shards: &[String],
    ) -> Result<(), ShardFault> {
        self.fence.check(epoch)?;
        let revision = (epoch, revision);
        {
            let mut known = lock(&self.addresses);
            if revision < known.revision {
                return Ok(());
            }
            *known = ShardAddresses { revision, addresses: shards.to_vec() };
        }
        let of_all = self.open_jobs().into_iter().filter(|job| job.shards().len() == shards.len());
        of_all.for_each(|job| job.set_addresses(shards));
        Ok(())
    }

    /// Opens a run of a job over `shards` with what `load` makes, which takes its time. The same run stays
    /// as it is; an older one ends, and so does another job of the same name, which no engine can know any
    /// more; a newer one refuses. `serves` says, once it is loaded, whether this process still serves
    /// jobs.
    pub fn open(
        &self,
        epoch: EngineEpoch,
        run: &RunId,
        shards: &[String],
        load: impl FnOnce() -> Result<JobShard, ShardFault>,
        serves: impl FnOnce() -> bool,
    ) -> Result<Opened, ShardFault> {
        self.fence.check(epoch)?;
        let closed = |held: &EntryState| matches!(held, EntryState::Closed(closed) if closed == run);
        let (closed_before, entry) = {
            let mut jobs = lock(&self.jobs);
            let entry = jobs.entry(run.job.clone()).or_default();
            // Before the order waits behind another one: who closes the run meanwhile means both.
            let closed_before = closed(&lock(&entry.held).state);
            (closed_before, entry.clone())
        };
        let _loading = lock(&entry.opening);
        entry.read_aside(&self.addresses, |held| held.aside(run).cloned())?;
        let nonce = run.generation.nonce();
        if let Some(later) = lock(&entry.held).aside.get(&nonce).filter(|aside| aside.run.follows(run)) {
            return Err(other_generation(run, &later.run));
        }
        if let Some(shard) = entry.open_shard() {
            if shard.run() == run {
                // It was opened before, or saved at a stop: only the addresses may be new.
                let state = shard.state(epoch)?;
                shard.set_addresses(shards);
                return Ok(Opened { state, created: None });
            }
            if shard.run().follows(run) {
                return Err(other_generation(run, shard.run()));
            }
        }
        if closed(&lock(&entry.held).state) && !closed_before {
            return Err(ShardFault::Closed { job: run.job.clone() });
        }
        let fresh = Arc::new(load()?);
        let mut held = lock(&entry.held);
        if closed(&held.state) && !closed_before {
            return Err(ShardFault::Closed { job: run.job.clone() });
        }
        // Loading took a while: another engine may have taken over since.
        self.fence.check(epoch)?;
        if !serves() {
            return Err(ShardFault::UnknownJob { job: run.job.clone() });
        }
        // An earlier generation, which this one takes the place of.
        held.aside.remove(&nonce);
        let old = std::mem::replace(&mut held.state, EntryState::Open(fresh.clone()));
        drop(held);
        if let EntryState::Open(old) = old {
            old.replace(run.generation);
        }
        Ok(Opened { state: fresh.state(epoch)?, created: Some(fresh) })
    }

    /// Adds a job that was saved, or followed. Called before anybody is served.
    pub(crate) fn restore(&self, shard: Arc<JobShard>) {
        // Only an engine that came after the one that gave the last order may give the next.
        let _ = self.fence.check(shard.epoch());
        let entry = lock(&self.jobs).entry(shard.job().clone()).or_default().clone();
        lock(&entry.held).state = EntryState::Open(shard);
    }

    /// Adds a job that was set aside. Called before anybody is served, or of a job that was followed.
    pub(crate) fn add_aside(&self, aside: AsideJob) {
        let _ = self.fence.check(aside.epoch);
        let entry = lock(&self.jobs).entry(aside.run.job.clone()).or_default().clone();
        lock(&entry.held).aside.insert(aside.run.generation.nonce(), aside);
    }

    /// Ends a run that is frozen and on disk as `aside` now: it is there for an engine that knows it. One that
    /// was closed or replaced meanwhile stays so, and one that an engine has asked for goes on.
    pub(crate) fn set_aside(&self, epoch: EngineEpoch, aside: AsideJob) -> Result<(), ShardFault> {
        self.fence.check(epoch)?;
        let Some(entry) = self.entry(&aside.run.job) else { return Ok(()) };
        let mut held = lock(&entry.held);
        let Some(open) = held.open().filter(|open| *open.run() == aside.run).cloned() else { return Ok(()) };
        // Under the lock: an engine that finds it over here finds it on disk.
        if !open.end_aside() {
            return Ok(());
        }
        held.state = EntryState::Empty;
        held.aside.insert(aside.run.generation.nonce(), aside);
        drop(held);
        open.tell_set_aside();
        Ok(())
    }

    /// Forgets what is set aside of this job: it must not be read any more.
    pub(crate) fn drop_aside(&self, run: &RunId) {
        if let Some(entry) = self.entry(&run.job) {
            lock(&entry.held).aside.remove(&run.generation.nonce());
        }
    }

    /// Every job that is in memory.
    pub(crate) fn open_jobs(&self) -> Vec<Arc<JobShard>> {
        lock(&self.jobs).values().filter_map(|entry| entry.open_shard()).collect()
    }

    /// Ends every job here: the process stops, or another serves them. Returns how many there were.
    pub(crate) fn give_up(&self) -> usize {
        let given_up = |entry: &Arc<Entry>| match std::mem::take(&mut lock(&entry.held).state) {
            EntryState::Open(shard) => Some(shard),
            EntryState::Empty | EntryState::Closed(_) => None,
        };
        let shards: Vec<_> = lock(&self.jobs).values().filter_map(given_up).collect();
        shards.iter().for_each(|shard| shard.give_up());
        shards.len()
    }

    /// Forgets a run of a job and wakes everybody who waits for it. Another one of the name stays.
    pub fn close(&self, epoch: EngineEpoch, run: &RunId) -> Result<(), ShardFault> {
        self.fence.check(epoch)?;
        let Some(entry) = self.entry(&run.job) else { return Ok(()) };
        let mut held = lock(&entry.held);
        if held.aside(run).is_some() {
            held.aside.remove(&run.generation.nonce());
        }
        if held.open().is_some_and(|open| open.run() != run) {
            return Ok(());
        }
        let ended = std::mem::replace(&mut held.state, EntryState::Closed(run.clone()));
        drop(held);
        // Without the entry, which others look at: the end waits for changes that are being made.
        if let EntryState::Open(shard) = ended {
            shard.close();
        }
        self.remember_closed(&run.job);
        Ok(())
    }

    /// Remembers the name of a closed job, and drops the oldest names beyond [`CLOSED_NAMES`]: whoever asks
    /// for those is told that there is no such job.
    fn remember_closed(&self, job: &JobId) {
        let mut closed = lock(&self.closed);
        closed.retain(|name| name != job);
        closed.push_back(job.clone());
        while closed.len() > CLOSED_NAMES {
            let Some(oldest) = closed.pop_front() else { return };
            let mut jobs = lock(&self.jobs);
            // A call that opens the job just now holds the entry as well.
            let is_over = |entry: &Arc<Entry>| {
                let held = lock(&entry.held);
                Arc::strong_count(entry) == 1
                    && matches!(held.state, EntryState::Closed(_))
                    && held.aside.is_empty()
            };
            if jobs.get(&oldest).is_some_and(is_over) {
                jobs.remove(&oldest);
            }
        }
    }
}

/// The fault of who means `given` where another generation of the job is here.
fn other_generation(given: &RunId, held: &RunId) -> ShardFault {
    let (job, given, current) = (given.job.clone(), given.generation, held.generation);
    ShardFault::WrongGeneration { job, given, current }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use syncline_scheduler::ids::Generation;

    use super::*;
    use crate::waiting::until;

    fn run(job: &str, nonce: u32) -> RunId {
        RunId { job: job.parse().unwrap(), generation: Generation::first(nonce) }
    }

    #[test]
    fn names_of_closed_jobs_are_forgotten_in_the_end() {
        let (table, epoch) = (JobTable::default(), EngineEpoch(1));
        let name = |n: usize| -> JobId { format!("job-{n}").parse().unwrap() };
        for n in 0..3 * CLOSED_NAMES {
            let run = run(name(n).as_str(), 1);
            lock(&table.jobs).entry(name(n)).or_default();
            table.close(epoch, &run).unwrap();
            assert_eq!(table.find(&run).err(), Some(ShardFault::Closed { job: name(n) }));
        }
        assert!(
            lock(&table.jobs).len() <= CLOSED_NAMES && table.closed.lock().unwrap().len() == CLOSED_NAMES
        );
        let oldest = run(name(0).as_str(), 1);
        assert_eq!(table.find(&oldest).err(), Some(ShardFault::UnknownJob { job: name(0) }));
    }

    /// The engine of the job that is meant makes another verdict of this than of one that was closed.
    #[test]
    fn a_job_whose_name_another_one_had_that_was_closed_is_unknown_and_not_closed() {
        let (table, epoch) = (JobTable::default(), EngineEpoch(1));
        let (right, other) = (run("digits", 1), run("digits", 2));
        let load = || Ok(JobShard::of_values(other.generation, &[0.0; 3]));
        table.open(epoch, &other, &[], load, || true).unwrap();
        table.close(epoch, &other).unwrap();
        assert_eq!(table.find(&other).err(), Some(ShardFault::Closed { job: right.job.clone() }));
        assert_eq!(table.find(&right).err(), Some(ShardFault::UnknownJob { job: right.job.clone() }));
    }

    #[test]
    fn a_late_close_of_an_earlier_job_does_not_keep_its_successor_out() {
        let (table, epoch) = (JobTable::default(), EngineEpoch(1));
        let (old, new) = (run("digits", 1), run("digits", 2));
        for (closed, kept_out) in [(&old, false), (&new, true)] {
            let load = || {
                table.close(epoch, closed)?;
                Err(ShardFault::Invalid { what: "loaded".into() })
            };
            let opened = table.open(epoch, &new, &[], load, || true);
            assert!(matches!(opened, Err(ShardFault::Invalid { .. })));
            let is_closed = matches!(&lock(&table.entry(&new.job).unwrap().held).state, EntryState::Closed(run) if *run == new);
            assert_eq!(is_closed, kept_out);
        }
    }

    #[test]
    fn addresses_that_come_after_later_ones_change_nothing_unless_another_engine_leads() {
        let (table, run) = (JobTable::default(), run("digits", 1));
        let load = || Ok(JobShard::of_values(run.generation, &[0.0; 3]));
        let shard = table.open(EngineEpoch(1), &run, &[], load, || true).unwrap().created.unwrap();
        let told = [(1, 5, "first"), (1, 7, "last"), (1, 6, "last"), (1, 7, "again"), (2, 1, "next")];
        for (epoch, revision, is_at) in told {
            let given = if revision == 6 { "late" } else { is_at };
            table.set_addresses(EngineEpoch(epoch), revision, &[given.to_owned()]).unwrap();
            assert_eq!(shard.shards(), [is_at], "{epoch}.{revision}");
        }
    }

    /// Who closes waits for what is being made; the engine must hear of the others meanwhile.
    #[test]
    fn a_job_that_is_being_closed_or_replaced_holds_up_nobody_who_looks_at_the_table() {
        let epoch = EngineEpoch(1);
        let (first, next) = (run("digits", 1), run("digits", 2));
        for closes in [true, false] {
            let table = Arc::new(JobTable::default());
            let load = |run: &RunId| {
                let generation = run.generation;
                move || Ok(JobShard::of_values(generation, &[0.0; 3]))
            };
            table.open(epoch, &first, &[], load(&first), || true).unwrap();
            let shard = table.find(&first).unwrap();
            let (looked, looks) = mpsc::channel();
            let (held, first, next, held_shard) = (table.clone(), first.clone(), next.clone(), shard.clone());
            thread::spawn(move || {
                // It holds the state of the job, and waits for its chunk.
                held_shard.read_chunks(0, 1, |_| {
                    let pinned = held_shard.clone();
                    let pinning = thread::spawn(move || pinned.pin_checkpoint(epoch, 1));
                    until("the checkpoint is being pinned", || held_shard.is_busy());
                    let (table, run, next) = (held.clone(), first.clone(), next.clone());
                    let ending = thread::spawn(move || match closes {
                        true => table.close(epoch, &run),
                        false => table.open(epoch, &next, &[], load(&next), || true).map(drop),
                    });
                    until("the job is gone", || held.find(&first).is_err());
                    looked.send(held.open_jobs().len()).unwrap();
                    (pinning, ending)
                })
            });
            let open = looks.recv_timeout(Duration::from_secs(60)).expect("the table waits for the job");
            assert_eq!(open, usize::from(!closes));
        }
    }

    /// The same order of an engine that has taken over, or one that was sent again.
    #[test]
    fn an_order_that_waited_behind_another_one_does_not_open_what_was_closed_meanwhile() {
        let (table, epoch, run) = (JobTable::default(), EngineEpoch(1), run("digits", 1));
        let opens = thread::scope(|scope| {
            let mut repeated = None;
            let first = table.open(
                epoch,
                &run,
                &[],
                || {
                    let again = || table.open(epoch, &run, &[], || panic!("it is loaded"), || true).err();
                    repeated = Some(scope.spawn(again));
                    // The table has it, and so have both orders.
                    let holders = || table.entry(&run.job).map_or(0, |entry| Arc::strong_count(&entry));
                    until("the second order waits", || holders() >= 4);
                    table.close(epoch, &run).unwrap();
                    Ok(JobShard::of_values(run.generation, &[0.0; 3]))
                },
                || true,
            );
            [first.err(), repeated.and_then(|order| order.join().unwrap())]
        });
        assert_eq!(opens, [(); 2].map(|()| Some(ShardFault::Closed { job: run.job.clone() })));
        assert!(table.open_jobs().is_empty());
    }

    #[test]
    fn a_job_that_is_loaded_while_another_process_takes_over_is_not_opened() {
        let (table, epoch, run) = (JobTable::default(), EngineEpoch(1), run("digits", 1));
        let load = || Ok(JobShard::of_values(run.generation, &[0.0; 3]));
        assert!(table.open(epoch, &run, &[], load, || false).is_err());
        assert!(table.open_jobs().is_empty());
    }
}
