//! What one worker takes at once: ready tasks of a class, and what follows each in a chain.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    job::TaskJob,
    leasing::offered,
    orders::push_order,
    ready_class::ReadyClass,
    worker_load::{TaskOfJob, WorkerLoad},
};
use crate::{
    core::{WorkerInfo, panics::Handling},
    ids::{Incarnation, JobId},
    tasks::{ClassIndex, Order, Resources, TaskIndex, TaskState},
};

/// One worker that takes tasks.
pub(super) struct LeaseBuilder<'a> {
    pub worker: Incarnation,
    pub about: &'a WorkerInfo,
    pub slots: u32,
    pub offered: Resources,
    pub load: &'a mut WorkerLoad,
    pub now_us: u64,
    pub orders: Vec<Order>,
    /// Jobs of which it has taken tasks.
    pub touched: &'a mut BTreeSet<JobId>,
}

impl<'a> LeaseBuilder<'a> {
    /// Of a worker of whose slots so many train.
    pub(super) fn new(
        (worker, about): (Incarnation, &'a WorkerInfo),
        training: u32,
        load: &'a mut WorkerLoad,
        touched: &'a mut BTreeSet<JobId>,
        now_us: u64,
    ) -> Self {
        if load.held == 0 {
            (load.progress_us, load.asked_us) = (now_us, None);
        }
        let (slots, offered) = (about.capacity.slots.saturating_sub(training), offered(about, training));
        Self { worker, about, slots, offered, load, now_us, orders: Vec::new(), touched }
    }

    /// Takes up to `share` ready tasks of a class, and what follows each in a chain. Whether it takes no more
    /// for want of slots.
    pub(super) fn take_ready(&mut self, job: &mut TaskJob, class: ClassIndex, share: u32) -> bool {
        let mut taken = 0;
        while taken < share && self.room(job, class) > 0 {
            let Some(task) = self.next_ready(job, class) else { return false };
            if job.graph.state(task) != TaskState::Ready {
                continue;
            }
            // What was lost with a worker may be to blame: it takes no others with it again than those beside
            // it.
            let suspect = job.is_suspect(task);
            if suspect && self.load.held_slots >= self.slots {
                job.line_up(task);
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

    /// Takes the task out that is the next one for this worker: what came back from another one first.
    fn next_ready(&self, job: &mut TaskJob, class: ClassIndex) -> Option<u32> {
        if let Some(task) = self.next_returned(job, class) {
            job.class_mut(class).returned.remove(task);
            return Some(task);
        }
        job.class_mut(class).ready.pop().map(|Reverse(task)| task)
    }

    fn next_returned(&self, job: &TaskJob, class: ClassIndex) -> Option<u32> {
        job.next_returned(class, (self.worker, self.load))
    }

    /// Whether this worker would take more of what is ready of a class.
    pub(super) fn may_take_more(&self, job: &TaskJob, class: ClassIndex) -> bool {
        !job.class(class).ready.is_empty() || self.next_returned(job, class).is_some()
    }

    /// Leases what could not be leased ahead before, unless it comes behind the job of `first`: whether some
    /// does.
    pub(super) fn extend_chains(
        &mut self,
        jobs: &mut BTreeMap<JobId, TaskJob>,
        first: Option<&ReadyClass>,
    ) -> bool {
        let mut left = false;
        for _ in 0..self.load.chain_ends.len() {
            let Some(end) = self.load.chain_ends.pop_front() else { break };
            let _handling = Handling(&end.job);
            let Some(job) = jobs.get_mut(&end.job).filter(|job| job.gives_out()) else { continue };
            let task = end.task.0;
            if !job.leases.get(&self.worker).is_some_and(|tasks| tasks.contains(&task)) {
                continue;
            }
            let comes_behind = |first: &ReadyClass| {
                let next = job.graph.only_follower(task).map(|next| job.graph.slot(next).class);
                next.is_some_and(|class| first.turn() < ReadyClass::of(job, class).turn())
            };
            if first.is_some_and(comes_behind) {
                self.load.chain_ends.push_back(end.clone());
                left = true;
            } else {
                self.follow_chain(job, task);
            }
        }
        left
    }

    /// Leases ahead what follows a leased task as the only one and waits for nothing else, and what follows
    /// that.
    fn follow_chain(&mut self, job: &mut TaskJob, mut task: u32) {
        while let Some(next) = job.graph.only_follower(task) {
            let slot = job.graph.slot(next);
            let class = slot.class;
            // One that needs memory or a GPU would keep it from others while it waits.
            let follows = slot.state == TaskState::Waiting
                && slot.unmet == 1
                && job.resources_of(class).is_none()
                && !job.is_made_again(task)
                && !job.is_suspect(next);
            if !follows || !self.about.capacity.can_run(&job.class(class).class) {
                return;
            }
            if self.room(job, class) == 0 {
                let end = TaskOfJob { job: job.id.clone(), task: TaskIndex(task) };
                self.load.chain_ends.push_back(end);
                return;
            }
            self.lease(job, next);
            task = next;
        }
    }

    pub(super) fn free_slots(&self) -> u32 {
        self.slots.saturating_sub(self.load.held_slots)
    }

    /// How many more of a class it takes as far as its slots go.
    fn slot_room(&self, job: &TaskJob, class: ClassIndex) -> u32 {
        let class = job.class(class);
        let room = self.load.room(self.slots, class.class.rules.needs.slots, class.mean_run_us);
        if self.load.takes_one_at_a_time(self.now_us) {
            return room.min(u32::from(self.load.held == 0));
        }
        room
    }

    pub(super) fn room(&self, job: &TaskJob, class: ClassIndex) -> u32 {
        let room = self.slot_room(job, class);
        let each = &job.class(class).class.rules.needs.resources;
        if each.is_none() { room } else { room.min(self.offered.minus(&self.load.taken).fits(each)) }
    }

    /// Whether it could hold what needs so much, and cannot now.
    pub(super) fn must_save_for(&self, each: &Resources) -> bool {
        !each.is_none() && self.offered.minus(&self.load.taken).fits(each) == 0 && self.offered.fits(each) > 0
    }

    pub(super) fn lease(&mut self, job: &mut TaskJob, task: u32) {
        let order = job.lease(self.worker, self.about, task);
        if !self.touched.contains(&job.id) {
            self.touched.insert(job.id.clone());
        }
        let class = job.class_of(task);
        self.load.add_one(class.class.rules.needs.slots, class.mean_run_us);
        let each = &class.class.rules.needs.resources;
        if !each.is_none() {
            self.load.taken = self.load.taken.plus(each);
        }
        push_order(&mut self.orders, job, order);
    }
}
