//! Who gets which task: workers take ready tasks up to a bounded time of work ahead, and the tasks of a chain follow each
//! other on the worker that has its first.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use super::{job::TaskJob, orders::push_order};
use crate::{
    core::{Effect, WorkerInfo},
    ids::{Incarnation, JobId},
    tasks::{ClassIndex, MAX_ORDER_BYTES, Order, OrderArg, TaskState},
};

/// Work that a worker holds per slot, besides what it runs: enough to hide the way to the engine and back.
const AHEAD_US: f32 = 20_000.0;
/// Most tasks that a worker holds.
const MAX_HELD: u32 = 1_024;

/// What a worker holds.
#[derive(Debug, Clone, Default)]
struct Load {
    held: u32,
    /// Expected time of what it holds.
    held_us: f32,
    /// Leased tasks whose follower could not be leased ahead because there was no room.
    tails: VecDeque<(JobId, u32)>,
}

impl Load {
    /// How many more tasks of such a length it takes.
    fn room(&self, slots: u32, mean_run_us: Option<f32>) -> u32 {
        let free = slots.saturating_sub(self.held);
        let Some(mean_us) = mean_run_us else { return free };
        let left_us = slots as f32 * AHEAD_US - self.held_us;
        let ahead = (left_us / mean_us.max(1.0)).max(0.0) as u32;
        free.max(ahead).min(MAX_HELD.saturating_sub(self.held))
    }
}

/// A class with ready tasks: higher priority first, then older jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    priority: Reverse<i16>,
    submitted_us: u64,
    job: JobId,
    class: ClassIndex,
}

/// What all workers hold, and what they are offered.
#[derive(Debug, Clone, Default)]
pub(in crate::core) struct Fleet {
    loads: BTreeMap<Incarnation, Load>,
    offers: BTreeSet<Offer>,
    /// Workers that have less than their slots can run, or of whose tasks some have ended.
    hungry: BTreeSet<Incarnation>,
    /// Those of them that may take up the rest of a chain.
    in_chains: BTreeSet<Incarnation>,
}

impl Fleet {
    pub(in crate::core) fn worker_joined(&mut self, worker: Incarnation, about: &WorkerInfo) {
        if !about.capacity.is_none() {
            self.loads.entry(worker).or_default();
            self.hungry.insert(worker);
        }
    }

    pub(in crate::core) fn worker_gone(&mut self, worker: Incarnation) {
        self.loads.remove(&worker);
        self.hungry.remove(&worker);
        self.in_chains.remove(&worker);
    }

    /// Takes note of what happened to a job.
    pub(super) fn take_note(&mut self, job: &mut TaskJob) {
        while let Some(class) = job.outbox.offered.pop() {
            let priority = Reverse(job.class(class).class.rules.priority);
            let (submitted_us, id) = (job.state.submitted_us, job.id.clone());
            self.offers.insert(Offer { priority, submitted_us, job: id, class });
        }
        while let Some((worker, class)) = job.outbox.freed.pop() {
            let Some(load) = self.loads.get_mut(&worker) else { continue };
            let mean_us = job.class(class).mean_run_us.unwrap_or(0.0).max(1.0);
            load.held = load.held.saturating_sub(1);
            load.held_us = if load.held == 0 { 0.0 } else { (load.held_us - mean_us).max(0.0) };
            self.hungry.insert(worker);
            if !load.tails.is_empty() {
                self.in_chains.insert(worker);
            }
        }
    }

    /// A worker has these tasks already: they were read back.
    pub(super) fn restore(&mut self, worker: Incarnation, tasks: u32) {
        let load = self.loads.entry(worker).or_default();
        load.held += tasks;
        self.hungry.insert(worker);
    }
}

/// The workers and jobs that are matched.
pub(super) struct Matching<'a> {
    pub jobs: &'a mut BTreeMap<JobId, TaskJob>,
    pub workers: &'a BTreeMap<Incarnation, WorkerInfo>,
    /// Workers that train: one slot of each is taken.
    pub trains: &'a dyn Fn(Incarnation, &WorkerInfo) -> bool,
    /// Jobs that have changed.
    pub touched: BTreeSet<JobId>,
}

/// It follows from jobs and workers.
impl PartialEq for Fleet {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Fleet {
    /// Gives ready tasks to workers that have room. Cost O(tasks given out), and O(workers with room) where any are ready.
    pub(super) fn place(&mut self, matching: &mut Matching<'_>, effects: &mut Vec<Effect>) {
        let in_chains = std::mem::take(&mut self.in_chains);
        let takers = if self.offers.is_empty() { in_chains } else { self.hungry.clone() };
        for worker in takers {
            let Some(about) = matching.workers.get(&worker) else {
                self.hungry.remove(&worker);
                continue;
            };
            let slots = about.capacity.slots.saturating_sub(u32::from((matching.trains)(worker, about)));
            let orders = self.fill(worker, about, slots, matching);
            // One that has all that its slots can run is looked at again when something of it ends. The slot of a training
            // counts: its end is nothing that shows here.
            if self.loads.get(&worker).is_none_or(|load| load.held >= about.capacity.slots) {
                self.hungry.remove(&worker);
            }
            if !orders.is_empty() {
                effects.push(Effect::Orders { worker, orders });
            }
        }
    }

    fn fill(
        &mut self,
        worker: Incarnation,
        about: &WorkerInfo,
        slots: u32,
        matching: &mut Matching<'_>,
    ) -> Vec<Order> {
        let jobs = &mut *matching.jobs;
        let others = self.loads.len().max(1) as u32;
        let Some(load) = self.loads.get_mut(&worker) else { return Vec::new() };
        let touched = &mut matching.touched;
        let mut taker = Taker { worker, about, slots, load, orders: Vec::new(), touched };
        taker.extend_chains(jobs);
        let mut exhausted = Vec::new();
        for offer in &self.offers {
            let Some(job) = jobs.get_mut(&offer.job).filter(|job| job.gives_out()) else {
                exhausted.push(offer.clone());
                continue;
            };
            let class = job.class(offer.class);
            if !about.capacity.can_run(&class.class) {
                continue;
            }
            // A fair part of what is there: others may be just as free.
            let share = (class.ready.len() as u32).div_ceil(others);
            taker.take_ready(job, offer.class, share);
            if job.class(offer.class).ready.is_empty() {
                exhausted.push(offer.clone());
            }
            if taker.load.held >= MAX_HELD {
                break;
            }
        }
        let orders = taker.orders;
        for offer in &exhausted {
            self.offers.remove(offer);
        }
        orders
    }
}

/// One worker that takes tasks.
struct Taker<'a> {
    worker: Incarnation,
    about: &'a WorkerInfo,
    slots: u32,
    load: &'a mut Load,
    orders: Vec<Order>,
    /// Jobs of which it has taken tasks, those included of which it cannot be told.
    touched: &'a mut BTreeSet<JobId>,
}

impl Taker<'_> {
    /// Takes up to `share` ready tasks of a class, and what follows each in a chain.
    fn take_ready(&mut self, job: &mut TaskJob, class: ClassIndex, share: u32) {
        let mut taken = 0;
        while taken < share && self.room(job, class) > 0 {
            let Some(Reverse(task)) = job.class_mut(class).ready.pop() else { return };
            if job.graph.state(task) != TaskState::Ready {
                continue;
            }
            // What was lost with a worker may be to blame: it takes no others with it again than those beside it.
            let suspect = job.faults.get(&task).is_some_and(|faults| faults.crashes > 0);
            if suspect && self.load.held >= self.slots {
                job.class_mut(class).ready.push(Reverse(task));
                return;
            }
            self.lease(job, task);
            taken += 1;
            if !suspect {
                self.follow_chain(job, task);
            }
        }
    }

    /// Leases what could not be leased ahead before.
    fn extend_chains(&mut self, jobs: &mut BTreeMap<JobId, TaskJob>) {
        for _ in 0..self.load.tails.len() {
            let Some((id, task)) = self.load.tails.pop_front() else { return };
            let Some(job) = jobs.get_mut(&id).filter(|job| job.gives_out()) else { continue };
            if job.leases.get(&self.worker).is_some_and(|tasks| tasks.contains(&task)) {
                self.follow_chain(job, task);
            }
        }
    }

    /// Leases ahead what follows a leased task as the only one and waits for nothing else, and what follows that.
    fn follow_chain(&mut self, job: &mut TaskJob, mut task: u32) {
        while let Some(next) = job.graph.only_follower(task) {
            let slot = job.graph.slot(next);
            let class = slot.class;
            let follows = slot.state == TaskState::Waiting && slot.unmet == 1;
            if !follows || !self.about.capacity.can_run(&job.class(class).class) {
                return;
            }
            if self.room(job, class) == 0 {
                self.load.tails.push_back((job.id.clone(), task));
                return;
            }
            self.lease(job, next);
            task = next;
        }
    }

    fn room(&self, job: &TaskJob, class: ClassIndex) -> u32 {
        self.load.room(self.slots, job.class(class).mean_run_us)
    }

    fn lease(&mut self, job: &mut TaskJob, task: u32) {
        let order = job.lease(self.worker, self.about, task);
        if !self.touched.contains(&job.id) {
            self.touched.insert(job.id.clone());
        }
        let class = job.class_of(task);
        self.load.held += 1;
        self.load.held_us += class.mean_run_us.unwrap_or(0.0).max(1.0);
        let bytes: usize = order.args.iter().map(OrderArg::travelling_bytes).sum();
        if bytes > MAX_ORDER_BYTES {
            return job.outbox.untold.push((self.worker, task, bytes));
        }
        push_order(&mut self.orders, job, order);
    }
}
