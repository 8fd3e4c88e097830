//! Who gets which task: workers take ready tasks up to a bounded time of work ahead, and the tasks of a chain follow each
//! other on the worker that has its first.
//!
//! What a task takes of a worker's memory and GPUs is taken from its lease on, so that all that a worker has never exceeds
//! what it offers. A task that needs such things is therefore not leased behind another one of its chain.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{job::TaskJob, orders::push_order, ready_class::ReadyClass, worker_load::WorkerLoad};
use crate::{
    core::{Effect, WorkerInfo, panics::Handling},
    ids::{Incarnation, JobId},
    tasks::{ClassIndex, MAX_ORDER_BYTES, Order, OrderArg, Resources, TaskState},
};

/// What all workers hold, and what they are offered.
#[derive(Debug, Clone, Default)]
pub(in crate::core) struct TaskAssigner {
    loads: BTreeMap<Incarnation, WorkerLoad>,
    ready_classes: BTreeSet<ReadyClass>,
    /// Workers that have less than their slots can run, or of whose tasks some have ended.
    with_free_capacity: BTreeSet<Incarnation>,
    /// Those of them that may take up the rest of a chain.
    in_chains: BTreeSet<Incarnation>,
}

impl TaskAssigner {
    pub(in crate::core) fn worker_joined(&mut self, worker: Incarnation, about: &WorkerInfo) {
        if !about.capacity.is_none() {
            self.loads.entry(worker).or_default();
            self.with_free_capacity.insert(worker);
        }
    }

    pub(in crate::core) fn worker_gone(&mut self, worker: Incarnation) {
        self.loads.remove(&worker);
        self.with_free_capacity.remove(&worker);
        self.in_chains.remove(&worker);
    }

    /// Takes note of what happened to a job.
    pub(super) fn take_note(&mut self, job: &mut TaskJob) {
        while let Some(class) = job.outbox.offered.pop() {
            self.ready_classes.insert(ReadyClass::of(job, class));
        }
        while let Some((worker, class)) = job.outbox.freed.pop() {
            let Some(load) = self.loads.get_mut(&worker) else { continue };
            let class = job.class(class);
            let mean_us = class.mean_run_us.unwrap_or(0.0).max(1.0);
            load.held = load.held.saturating_sub(1);
            load.held_slots = load.held_slots.saturating_sub(class.class.rules.needs.slots);
            load.held_us = if load.held == 0 { 0.0 } else { (load.held_us - mean_us).max(0.0) };
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

    /// Workers that have more than their slots can run, that nothing of has ended for so long, and that were not asked to give
    /// it back since.
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

/// It follows from jobs and workers.
impl PartialEq for TaskAssigner {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl TaskAssigner {
    /// Gives ready tasks to workers that have room. Cost O(tasks given out), and O(workers with room) where any are ready.
    pub(super) fn place(&mut self, matching: &mut Matching<'_>, effects: &mut Vec<Effect>) {
        let in_chains = std::mem::take(&mut self.in_chains);
        let takers = if self.ready_classes.is_empty() { in_chains } else { self.with_free_capacity.clone() };
        // A fair part of what is there: others may be just as free.
        let all = self.loads.len();
        let mut has_room: Vec<Incarnation> = Vec::new();
        for worker in takers {
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
        // One that has all that its slots can run is looked at again when something of it ends. The slot of a training
        // counts: its end is nothing that shows here.
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
        let slots = about.capacity.slots.saturating_sub(training);
        let offered = offered(about, training);
        let jobs = &mut *matching.jobs;
        let now_us = matching.now_us;
        let Some(load) = self.loads.get_mut(&worker) else { return Filled::default() };
        let touched = &mut matching.touched;
        if load.held == 0 {
            (load.progress_us, load.asked_us) = (now_us, None);
        }
        let mut taker = LeaseBuilder { worker, about, slots, offered, load, orders: Vec::new(), touched };
        let can_run = |ready: &&ReadyClass| {
            let job = jobs.get(&ready.job).filter(|job| job.gives_out());
            job.is_some_and(|job| about.capacity.can_run(&job.class(ready.class).class))
        };
        let first = self.ready_classes.iter().find(can_run);
        let has_later_chains = taker.extend_chains(jobs, first);
        // What waits for slots, or for other workers to take their share: whatever comes behind it would take what it is to have.
        let (mut waits, mut leaves_some) = (None, false);
        let mut exhausted = Vec::new();
        // One waits for memory or a GPU here: what comes after it would take it away again and again.
        let mut is_saving = false;
        for ready in &self.ready_classes {
            let _handling = Handling(&ready.job);
            let Some(job) = jobs.get_mut(&ready.job).filter(|job| job.gives_out()) else {
                exhausted.push(ready.clone());
                continue;
            };
            let class = job.class(ready.class);
            if !about.capacity.can_run(&class.class) {
                continue;
            }
            if is_saving && !job.resources_of(ready.class).is_none() {
                continue;
            }
            let most = share.tasks(class.ready.len(), taker.free_slots(), class.class.rules.needs.slots);
            let lacks_slots = taker.take_ready(job, ready.class, most);
            if job.class(ready.class).ready.is_empty() {
                exhausted.push(ready.clone());
            } else if lacks_slots || taker.room(job, ready.class) > 0 {
                leaves_some = !lacks_slots && taker.free_slots() > 0;
                waits = Some(ready);
                break;
            } else {
                is_saving |= taker.must_save_for(job.resources_of(ready.class));
            }
        }
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

/// One worker that takes tasks.
struct LeaseBuilder<'a> {
    worker: Incarnation,
    about: &'a WorkerInfo,
    slots: u32,
    offered: Resources,
    load: &'a mut WorkerLoad,
    orders: Vec<Order>,
    /// Jobs of which it has taken tasks, those included of which it cannot be told.
    touched: &'a mut BTreeSet<JobId>,
}

impl LeaseBuilder<'_> {
    /// Takes up to `share` ready tasks of a class, and what follows each in a chain. Whether it takes no more for want of slots.
    fn take_ready(&mut self, job: &mut TaskJob, class: ClassIndex, share: u32) -> bool {
        let mut taken = 0;
        while taken < share && self.room(job, class) > 0 {
            let Some(Reverse(task)) = job.class_mut(class).ready.pop() else { return false };
            if job.graph.state(task) != TaskState::Ready {
                continue;
            }
            // What was lost with a worker may be to blame: it takes no others with it again than those beside it.
            let suspect = job.faults.get(&task).is_some_and(|faults| faults.crashes > 0);
            if suspect && self.load.held_slots >= self.slots {
                job.class_mut(class).ready.push(Reverse(task));
                return true;
            }
            self.lease(job, task);
            taken += 1;
            if !suspect {
                self.follow_chain(job, task);
            }
        }
        self.slot_room(job, class) == 0
    }

    /// Leases what could not be leased ahead before, unless it comes behind the job of `first`: whether some does.
    fn extend_chains(&mut self, jobs: &mut BTreeMap<JobId, TaskJob>, first: Option<&ReadyClass>) -> bool {
        let mut left = false;
        for _ in 0..self.load.chain_ends.len() {
            let Some((id, task)) = self.load.chain_ends.pop_front() else { break };
            let _handling = Handling(&id);
            let Some(job) = jobs.get_mut(&id).filter(|job| job.gives_out()) else { continue };
            if !job.leases.get(&self.worker).is_some_and(|tasks| tasks.contains(&task)) {
                continue;
            }
            let comes_behind = |first: &ReadyClass| {
                let next = job.graph.only_follower(task).map(|next| job.graph.slot(next).class);
                next.is_some_and(|class| first.turn() < ReadyClass::of(job, class).turn())
            };
            if first.is_some_and(comes_behind) {
                self.load.chain_ends.push_back((job.id.clone(), task));
                left = true;
            } else {
                self.follow_chain(job, task);
            }
        }
        left
    }

    /// Leases ahead what follows a leased task as the only one and waits for nothing else, and what follows that.
    fn follow_chain(&mut self, job: &mut TaskJob, mut task: u32) {
        while let Some(next) = job.graph.only_follower(task) {
            let slot = job.graph.slot(next);
            let class = slot.class;
            // One that needs memory or a GPU would keep it from others while it waits.
            let follows =
                slot.state == TaskState::Waiting && slot.unmet == 1 && job.resources_of(class).is_none();
            if !follows || !self.about.capacity.can_run(&job.class(class).class) {
                return;
            }
            if self.room(job, class) == 0 {
                self.load.chain_ends.push_back((job.id.clone(), task));
                return;
            }
            self.lease(job, next);
            task = next;
        }
    }

    fn free_slots(&self) -> u32 {
        self.slots.saturating_sub(self.load.held_slots)
    }

    /// How many more of a class it takes as far as its slots go.
    fn slot_room(&self, job: &TaskJob, class: ClassIndex) -> u32 {
        let class = job.class(class);
        self.load.room(self.slots, class.class.rules.needs.slots, class.mean_run_us)
    }

    fn room(&self, job: &TaskJob, class: ClassIndex) -> u32 {
        let room = self.slot_room(job, class);
        let each = &job.class(class).class.rules.needs.resources;
        if each.is_none() { room } else { room.min(self.offered.minus(&self.load.taken).fits(each)) }
    }

    /// Whether it could hold what needs so much, and cannot now.
    fn must_save_for(&self, each: &Resources) -> bool {
        !each.is_none() && self.offered.minus(&self.load.taken).fits(each) == 0 && self.offered.fits(each) > 0
    }

    fn lease(&mut self, job: &mut TaskJob, task: u32) {
        let order = job.lease(self.worker, self.about, task);
        if !self.touched.contains(&job.id) {
            self.touched.insert(job.id.clone());
        }
        let class = job.class_of(task);
        self.load.held += 1;
        self.load.held_slots = self.load.held_slots.saturating_add(class.class.rules.needs.slots);
        self.load.held_us += class.mean_run_us.unwrap_or(0.0).max(1.0);
        let each = &class.class.rules.needs.resources;
        if !each.is_none() {
            self.load.taken = self.load.taken.plus(each);
        }
        let bytes: usize = order.args.iter().map(OrderArg::wire_bytes).sum();
        if bytes > MAX_ORDER_BYTES {
            return job.outbox.too_large_to_send.push((self.worker, task, bytes));
        }
        push_order(&mut self.orders, job, order);
    }
}
