//! Tasks that a worker has and has not begun: it gives them back when it leaves, and when something long
//! keeps them waiting there while another worker has nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use super::{TaskJob, leasing::offered};
use crate::{
    core::{Core, Effect, departures::Departure, turn::Turn},
    ids::{Incarnation, SubmissionId},
    tasks::{Attempt, Attempts, ClassIndex, Order},
};

/// A worker of which nothing has ended for so long has something long, and what waits for a slot there may
/// wait as long. Several times what a worker takes ahead, so that short tasks are left where they are.
const KEEPS_WAITING_US: u64 = 100_000;
/// One that still keeps some waiting is asked again: what nobody had room for then, somebody may have now.
const ASK_AGAIN_US: u64 = 1_000_000;

impl Core {
    /// A worker leaves cleanly, and names all that it has begun: what it has besides goes elsewhere as if it
    /// had never had it.
    pub(in crate::core) fn worker_left(
        &mut self,
        worker: Incarnation,
        begun: Vec<Attempts>,
        turn: &mut Turn<'_>,
    ) {
        let mut begun = by_job(begun);
        let had = |job: &TaskJob| job.leases.contains_key(&worker);
        let now_us = turn.now_us;
        self.for_each_graph(had, turn, |job| {
            let begun = begun.remove(&job.submission()).unwrap_or_default();
            job.give_back_where(worker, |attempt| !begun.contains(attempt), now_us);
        });
        self.withhold_process(worker);
        self.worker_gone(worker, Departure::Left, "the worker left", turn);
    }

    /// A worker is gone that was not told of these attempts any more: they cannot have been what ended it,
    /// and go elsewhere as if it had never had them.
    pub(in crate::core) fn give_back_untold(
        &mut self,
        worker: Incarnation,
        never_told: Vec<Attempts>,
        turn: &mut Turn<'_>,
    ) {
        let untold = by_job(never_told);
        let now_us = turn.now_us;
        self.for_each_graph(
            |job| untold.contains_key(&job.submission()),
            turn,
            |job| {
                if let Some(untold) = untold.get(&job.submission()) {
                    job.give_back_where(worker, |attempt| untold.contains(attempt), now_us);
                }
            },
        );
    }

    /// Asks workers for what waits there behind something long, where another worker could begin it now. What
    /// they have begun they keep, and say nothing. Cost O(workers), and O(tasks that they have) of those
    /// that keep some waiting.
    pub(in crate::core) fn ask_back_waiting(&mut self, turn: &mut Turn<'_>) {
        let slots = |worker| self.task_slots(worker);
        let asked_before_us = turn.now_us.saturating_sub(ASK_AGAIN_US);
        let keeping: Vec<Incarnation> =
            self.fleet.keep_waiting(turn.now_us, KEEPS_WAITING_US, asked_before_us, slots).collect();
        if keeping.is_empty() {
            return;
        }
        let has_free_slot = |worker: &Incarnation| {
            self.task_slots(*worker) > self.fleet.held_slots(*worker)
                && !self.fleet.is_reserved(*worker, turn.now_us)
        };
        let idle: Vec<Incarnation> = self.workers.keys().copied().filter(has_free_slot).collect();
        for worker in keeping {
            let waiting = self.waiting_at(worker, &idle, turn.now_us);
            if !waiting.is_empty() {
                self.fleet.asked_back(worker, turn.now_us);
                turn.effects.push(Effect::Orders { worker, orders: waiting });
            }
        }
    }

    /// Slots of a worker that tasks can run in.
    fn task_slots(&self, worker: Incarnation) -> u32 {
        let Some(about) = self.workers.get(&worker) else { return 0 };
        about.capacity.slots.saturating_sub(self.training(worker, about))
    }

    /// What one of the idle workers could begin of what a worker has, if that is more than it can run.
    fn waiting_at(&self, worker: Incarnation, idle: &[Incarnation], now_us: u64) -> Vec<Order> {
        let mut slots = self.task_slots(worker);
        let (mut orders, mut waits) = (Vec::new(), false);
        for job in self.task_jobs.values().filter(|job| job.gives_out()) {
            let mut fits = BTreeMap::new();
            let mut tasks = Vec::new();
            for &task in job.leases.get(&worker).into_iter().flatten() {
                let slot = job.graph.slot(task);
                if slot.unmet > 0 {
                    continue;
                }
                let takes = job.class(slot.class).class.rules.needs.slots;
                let avoided = if job.has_waited_for_others(task, now_us) { &[] } else { job.avoided(task) };
                let fits = match avoided {
                    [] => *fits.entry(slot.class).or_insert_with(|| self.one_has_room(job, slot.class, idle)),
                    avoided => {
                        let mut others = idle.to_vec();
                        others.retain(|worker| !avoided.contains(worker));
                        self.one_has_room(job, slot.class, &others)
                    }
                };
                waits |= fits && slots < takes;
                slots = slots.saturating_sub(takes);
                if fits {
                    tasks.push(job.current_attempt(task));
                }
            }
            if !tasks.is_empty() {
                orders.push(Order::GiveBack(job.attempts(tasks)));
            }
        }
        if waits { orders } else { Vec::new() }
    }

    fn one_has_room(&self, job: &TaskJob, class: ClassIndex, idle: &[Incarnation]) -> bool {
        let (class, each) = (&job.class(class).class, job.resources_of(class));
        let slots = class.rules.needs.slots;
        idle.iter().any(|worker| {
            self.workers.get(worker).is_some_and(|about| {
                let free = self.fleet.free(*worker, offered(about, self.training(*worker, about)));
                let has_slots =
                    self.task_slots(*worker).saturating_sub(self.fleet.held_slots(*worker)) >= slots;
                about.capacity.can_run(class) && has_slots && (each.is_none() || free.fits(each) > 0)
            })
        })
    }
}

fn by_job(attempts: Vec<Attempts>) -> BTreeMap<SubmissionId, BTreeSet<Attempt>> {
    let mut by_job: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for Attempts { submission, tasks } in attempts {
        by_job.entry(submission).or_default().extend(tasks);
    }
    by_job
}

impl TaskJob {
    /// What a worker has not begun goes back, by its attempts. What waits there for another task goes with
    /// that.
    fn give_back_where(&mut self, worker: Incarnation, never_began: impl Fn(&Attempt) -> bool, now_us: u64) {
        let leased: Vec<u32> = self.leases.get(&worker).into_iter().flatten().copied().collect();
        for task in leased {
            let goes_back = self.graph.slot(task).unmet == 0 && never_began(&self.current_attempt(task));
            if self.is_running() && goes_back && self.unlease(worker, task) {
                self.never_began(task, now_us);
            }
        }
    }

    /// The attempt of a task that was leased never began: another worker may have it.
    pub(super) fn never_began(&mut self, task: u32, now_us: u64) {
        if self.is_canceling() {
            return self.cancel_task(task);
        }
        if self.is_task_canceling(task) {
            return self.end_canceled(task, now_us);
        }
        self.give_back_followers(task);
        self.note_attempts(task);
        self.put_back(task);
    }
}
