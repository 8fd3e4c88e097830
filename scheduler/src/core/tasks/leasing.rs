//! Who gets which task: workers take ready tasks up to a bounded time of work ahead, and the tasks of a chain
//! follow each other on the worker that has its first.
//!
//! What a task takes of a worker's memory and GPUs is taken from its lease on, so that all that a worker has
//! never exceeds what it offers. A task that needs such things is therefore not leased behind another one of
//! its chain.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    alone::EmptiedWorker, job::TaskJob, lease_builder::LeaseBuilder, ready_class::ReadyClass,
    worker_load::WorkerLoad,
};
use crate::{
    core::{Effect, WorkerInfo, panics::Handling},
    ids::{Incarnation, JobId},
    tasks::{Order, Resources},
};

/// What all workers hold, and what they are offered.
#[derive(Debug, Clone, Default)]
pub(in crate::core) struct TaskAssigner {
    pub(super) loads: BTreeMap<Incarnation, WorkerLoad>,
    pub(super) ready_classes: BTreeSet<ReadyClass>,
    /// Workers that have less than their slots can run, or of whose tasks some have ended.
    with_free_capacity: BTreeSet<Incarnation>,
    /// Those of them that may take up the rest of a chain.
    in_chains: BTreeSet<Incarnation>,
    /// Classes with ready tasks that came back from a worker.
    pub(super) returned_classes: BTreeSet<ReadyClass>,
    /// Classes with ready tasks that are to be alone.
    pub(super) alone_classes: BTreeSet<ReadyClass>,
    /// Who takes nothing more until it has nothing, for the next of these.
    pub(super) emptied: Option<EmptiedWorker>,
}

impl TaskAssigner {
    pub(in crate::core) fn worker_joined(&mut self, worker: Incarnation, about: &WorkerInfo) {
        if !about.capacity.is_none() {
            self.loads.entry(worker).or_default();
            self.with_free_capacity.insert(worker);
        }
    }

    /// A job is no more. Another one of its name may have fewer classes.
    pub(in crate::core) fn job_gone(&mut self, id: &JobId) {
        self.ready_classes.retain(|ready| ready.job != *id);
        self.returned_classes.retain(|ready| ready.job != *id);
        self.alone_classes.retain(|ready| ready.job != *id);
    }

    pub(in crate::core) fn worker_gone(&mut self, worker: Incarnation) {
        self.loads.remove(&worker);
        self.with_free_capacity.remove(&worker);
        self.in_chains.remove(&worker);
    }

    /// Takes note of what happened to a job.
    pub(super) fn take_note(&mut self, job: &mut TaskJob) {
        while let Some(class) = job.outbox.offered.pop() {
            let state = job.class(class);
            if !state.alone.is_empty() {
                self.alone_classes.insert(ReadyClass::of(job, class));
            }
            if !state.returned.is_empty() {
                self.returned_classes.insert(ReadyClass::of(job, class));
            }
            if !state.is_exhausted() {
                self.ready_classes.insert(ReadyClass::of(job, class));
            }
        }
        while let Some((worker, class)) = job.outbox.freed.pop() {
            let Some(load) = self.loads.get_mut(&worker) else { continue };
            let class = job.class(class);
            load.end_one(class.class.rules.needs.slots);
            let each = &class.class.rules.needs.resources;
            if !each.is_none() {
                load.taken = load.taken.minus(each);
            }
            self.with_free_capacity.insert(worker);
            if !load.chain_ends.is_empty() {
                self.in_chains.insert(worker);
            }
        }
    }

    /// Something of what a worker had has ended.
    pub(super) fn progress(&mut self, worker: Incarnation, now_us: u64) {
        if let Some(load) = self.loads.get_mut(&worker) {
            (load.progress_us, load.asked_us) = (now_us, None);
        }
    }

    /// Workers that have more than their slots can run, that nothing of has ended for so long, and that were
    /// not asked to give it back since.
    pub(super) fn keep_waiting(
        &self,
        now_us: u64,
        longer_than_us: u64,
        asked_before_us: u64,
        slots: impl Fn(Incarnation) -> u32,
    ) -> impl Iterator<Item = Incarnation> {
        let keeps = move |(worker, load): &(&Incarnation, &WorkerLoad)| {
            let is_long = now_us.saturating_sub(load.progress_us) > longer_than_us;
            let is_due = load.asked_us.is_none_or(|asked_us| asked_us < asked_before_us);
            is_long && is_due && load.held_slots > slots(**worker)
        };
        self.loads.iter().filter(keeps).map(|(worker, _)| *worker)
    }

    /// A worker is asked to give back what it has not begun.
    pub(super) fn asked_back(&mut self, worker: Incarnation, now_us: u64) {
        if let Some(load) = self.loads.get_mut(&worker) {
            load.asked_us = Some(now_us);
        }
    }

    /// Slots that take up what a worker has.
    pub(super) fn held_slots(&self, worker: Incarnation) -> u32 {
        self.loads.get(&worker).map_or(0, |load| load.held_slots)
    }

    /// A worker has these tasks already: they were read back.
    pub(super) fn restore(&mut self, worker: Incarnation, job: &TaskJob, tasks: &BTreeSet<u32>) {
        let load = self.loads.entry(worker).or_default();
        load.held += tasks.len() as u32;
        for task in tasks {
            let class = job.graph.slot(*task).class;
            load.held_slots = load.held_slots.saturating_add(job.class(class).class.rules.needs.slots);
            load.taken = load.taken.plus(job.resources_of(class));
            load.alone |= job.faults.get(task).is_some_and(|faults| faults.alone);
        }
        self.with_free_capacity.insert(worker);
    }

    /// What is left of what a worker offers to tasks.
    pub(super) fn free(&self, worker: Incarnation, offered: Resources) -> Resources {
        self.loads.get(&worker).map_or(offered, |load| offered.minus(&load.taken))
    }
}

/// The workers and jobs that are matched.
pub(super) struct Matching<'a> {
    pub jobs: &'a mut BTreeMap<JobId, TaskJob>,
    pub workers: &'a BTreeMap<Incarnation, WorkerInfo>,
    /// Slots of a worker that trainings have.
    pub training: &'a dyn Fn(Incarnation, &WorkerInfo) -> u32,
    pub now_us: u64,
    /// Jobs that have changed.
    pub touched: BTreeSet<JobId>,
}

impl Matching<'_> {
    /// Whether a worker could have a task of a class if it had no others.
    pub(super) fn could_have(&self, worker: Incarnation, class: &ReadyClass) -> bool {
        let Some(about) = self.workers.get(&worker) else { return false };
        let Some(job) = self.jobs.get(&class.job).filter(|job| job.gives_out()) else { return false };
        let (training, each) = ((self.training)(worker, about), job.resources_of(class.class));
        let has_slot = about.capacity.slots > training;
        let fits = each.is_none() || offered(about, training).fits(each) > 0;
        has_slot && fits && about.capacity.can_run(&job.class(class.class).class)
    }
}

/// It follows from jobs and workers.
impl PartialEq for TaskAssigner {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl TaskAssigner {
    /// Gives ready tasks to workers that have room. Cost O(tasks given out), and O(workers with room) where
    /// any are ready.
    pub(super) fn place(&mut self, matching: &mut Matching<'_>, effects: &mut Vec<Effect>) {
        self.place_alone(matching, effects);
        self.line_up_returned(matching);
        let in_chains = std::mem::take(&mut self.in_chains);
        let takers = if self.ready_classes.is_empty() { in_chains } else { self.with_free_capacity.clone() };
        // A fair part of what is there: others may be just as free.
        let all = self.loads.len();
        let mut has_room: Vec<Incarnation> = Vec::new();
        for worker in takers {
            if self.is_emptied(worker) {
                continue;
            }
            if self.visit(worker, Share { of: all, ahead: true }, matching, effects) {
                has_room.push(worker);
            }
        }
        // What is left of it then goes to slots that are free, before anything does that comes behind it.
        while !has_room.is_empty() {
            let (of, mut again) = (has_room.len(), Vec::new());
            for (n, worker) in has_room.into_iter().enumerate() {
                if self.visit(worker, Share { of: of - n, ahead: false }, matching, effects) {
                    again.push(worker);
                }
            }
            has_room = again;
        }
    }

    /// Lets a worker take its share. Whether slots of it stay free although more is ready in front.
    fn visit(
        &mut self,
        worker: Incarnation,
        share: Share,
        matching: &mut Matching<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(about) = matching.workers.get(&worker) else {
            self.with_free_capacity.remove(&worker);
            return false;
        };
        let Filled { orders, leaves_some } = self.fill(worker, about, share, matching);
        // One that has all that its slots can run is looked at again when something of it ends. The slot of a
        // training counts: its end is nothing that shows here.
        if self.loads.get(&worker).is_none_or(|load| load.held_slots >= about.capacity.slots) {
            self.with_free_capacity.remove(&worker);
        }
        let took = !orders.is_empty();
        if took {
            effects.push(Effect::Orders { worker, orders });
        }
        leaves_some && took
    }

    fn fill(
        &mut self,
        worker: Incarnation,
        about: &WorkerInfo,
        share: Share,
        matching: &mut Matching<'_>,
    ) -> Filled {
        let training = (matching.training)(worker, about);
        let jobs = &mut *matching.jobs;
        let Some(load) = self.loads.get_mut(&worker) else { return Filled::default() };
        let (touched, now_us) = (&mut matching.touched, matching.now_us);
        let mut taker = LeaseBuilder::new((worker, about), training, load, touched, now_us);
        let can_run = |ready: &&ReadyClass| {
            let job = jobs.get(&ready.job).filter(|job| job.gives_out());
            job.is_some_and(|job| about.capacity.can_run(&job.class(ready.class).class))
        };
        // Only those who have a chain to go on with ask for it: it is as long a search as that of all that
        // follows.
        let has_chains = !taker.load.chain_ends.is_empty();
        let first = has_chains.then(|| self.ready_classes.iter().find(can_run)).flatten();
        let has_later_chains = taker.extend_chains(jobs, first);
        let Taken { waits, leaves_some, exhausted } =
            take_classes(&self.ready_classes, &mut taker, share, jobs);
        if has_later_chains {
            taker.extend_chains(jobs, waits);
        }
        let orders = taker.orders;
        for ready in &exhausted {
            self.ready_classes.remove(ready);
        }
        Filled { orders, leaves_some }
    }
}

/// What a worker has taken of the classes that have ready tasks.
#[derive(Default)]
struct Taken<'a> {
    /// What waits for slots, or for other workers to take their share: whatever comes behind it would take
    /// what it is to have.
    waits: Option<&'a ReadyClass>,
    /// Slots stay free although more of that is ready.
    leaves_some: bool,
    /// Classes that have no ready tasks any more.
    exhausted: Vec<ReadyClass>,
}

/// Lets a worker take its share of each class, in their order, until one waits.
fn take_classes<'a>(
    ready_classes: &'a BTreeSet<ReadyClass>,
    taker: &mut LeaseBuilder<'_>,
    share: Share,
    jobs: &mut BTreeMap<JobId, TaskJob>,
) -> Taken<'a> {
    let mut taken = Taken::default();
    // One waits for memory or a GPU here: what comes after it would take it away again and again.
    let mut is_saving = false;
    for ready in ready_classes {
        let _handling = Handling(&ready.job);
        let Some(job) = jobs.get_mut(&ready.job).filter(|job| job.gives_out()) else {
            taken.exhausted.push(ready.clone());
            continue;
        };
        let class = job.class(ready.class);
        if !taker.about.capacity.can_run(&class.class) {
            continue;
        }
        if is_saving && !job.resources_of(ready.class).is_none() {
            continue;
        }
        let tasks = class.ready.len() + class.returned.len();
        let most = share.tasks(tasks, taker.free_slots(), class.class.rules.needs.slots);
        let lacks_slots = taker.take_ready(job, ready.class, most);
        if job.class(ready.class).is_exhausted() {
            taken.exhausted.push(ready.clone());
        } else if !lacks_slots && !taker.may_take_more(job, ready.class) {
            // What is left waits for other workers, and keeps this one from nothing.
        } else if lacks_slots || taker.room(job, ready.class) > 0 {
            taken.leaves_some = !lacks_slots && taker.free_slots() > 0;
            taken.waits = Some(ready);
            break;
        } else {
            is_saving |= taker.must_save_for(job.resources_of(ready.class));
        }
    }
    taken
}

/// How much of a class a worker takes at once.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Workers among which its ready tasks are shared out, at least 1.
    of: usize,
    /// Whether more of it than its free slots can run.
    ahead: bool,
}

impl Share {
    fn tasks(self, ready: usize, free_slots: u32, each_slots: u32) -> u32 {
        let fair = ready.div_ceil(self.of.max(1)) as u32;
        if self.ahead { fair } else { fair.min(free_slots.div_ceil(each_slots.max(1))) }
    }
}

/// What a worker takes.
#[derive(Debug, Default)]
struct Filled {
    orders: Vec<Order>,
    /// It has had its share of a class, has free slots, and more of that class is ready.
    leaves_some: bool,
}

/// What a worker offers to tasks while so many of its slots train: these have its GPUs.
pub(super) fn offered(about: &WorkerInfo, training: u32) -> Resources {
    let offered = about.capacity.resources;
    Resources { gpus: if training > 0 { 0 } else { offered.gpus }, ..offered }
}
