//! Tasks that are to be the only one of a worker, because their workers were lost with others again and again
//! (ADR 51). One worker at a time is emptied for them; all others go on as if there were none. Where no other
//! could take its place, it takes what is ready again for a while, before it is emptied once more.

use std::cmp::Reverse;

use super::{
    job::TaskJob,
    lease_builder::LeaseBuilder,
    leasing::{Matching, TaskAssigner},
    ready_class::ReadyClass,
    worker_load::{TaskOfJob, WorkerLoad},
};
use crate::{
    core::{Effect, panics::Handling},
    ids::Incarnation,
    tasks::{TaskIndex, TaskState},
};

impl TaskJob {
    /// The oldest ready task of a class that is to be alone.
    fn next_alone(&mut self, ready: &ReadyClass) -> Option<u32> {
        while let Some(task) = self.class(ready.class).alone.first().copied() {
            if self.graph.state(task) == TaskState::Ready {
                return Some(task);
            }
            self.class_mut(ready.class).alone.remove(&task);
        }
        None
    }
}

/// A worker that takes nothing more until it has nothing, for a task that is to be alone.
#[derive(Debug, Clone)]
pub(super) struct EmptiedWorker {
    worker: Incarnation,
    task: TaskOfJob,
    since_us: u64,
    /// For how long nothing of it may end before another one is emptied in its place.
    patience_us: u64,
    /// It was given up, and there was no other one: until then it takes what is ready.
    rests_until_us: Option<u64>,
}

/// The patience with the first one. It doubles with each that is given up, so that even where every task is
/// long a worker comes to its end.
const PATIENCE_US: u64 = 10_000_000;

impl TaskAssigner {
    /// Gives tasks that are to be alone to workers that have nothing, and has one worker at a time take
    /// nothing more, for the next of them. Cost O(workers) for each class of such tasks, while there are
    /// any.
    pub(super) fn place_alone(&mut self, matching: &mut Matching<'_>, effects: &mut Vec<Effect>) {
        let mut emptied = None;
        for ready in self.alone_classes.clone() {
            let _handling = Handling(&ready.job);
            loop {
                let job = matching.jobs.get_mut(&ready.job).filter(|job| job.gives_out());
                let Some(task) = job.and_then(|job| job.next_alone(&ready)) else {
                    self.alone_classes.remove(&ready);
                    break;
                };
                let able = self.able(&ready, task, matching);
                let has_nothing = |worker: &&Incarnation| self.loads[*worker].held == 0;
                if let Some(worker) = able.iter().find(has_nothing) {
                    self.lease_alone(*worker, &ready, task, matching, effects);
                    continue;
                }
                let to_be_alone = TaskOfJob { job: ready.job.clone(), task: TaskIndex(task) };
                emptied = emptied.or_else(|| self.to_empty(&able, to_be_alone, matching.now_us));
                break;
            }
        }
        self.emptied = emptied;
    }

    /// The workers that may have this task of a class as their only one, now or once they have nothing: none
    /// that has such a task already, nor one that could have what is ready of a job in front, nor one from
    /// which it came back while it waits for others. Those come first from which nothing came back.
    fn able(&self, ready: &ReadyClass, task: u32, matching: &Matching<'_>) -> Vec<Incarnation> {
        let Some(job) = matching.jobs.get(&ready.job) else { return Vec::new() };
        let last = self.last_standing(matching, ready, task);
        let standing = |worker: &Incarnation| job.standing(task, (*worker, &self.loads[worker]));
        let is_able = |worker: Incarnation| {
            let mut in_front = self.ready_classes.iter().take_while(|other| other.turn() < ready.turn());
            matching.could_have(worker, ready) && !in_front.any(|other| matching.could_have(worker, other))
        };
        let free = self.loads.iter().filter(|(_, load)| !load.alone).map(|(worker, _)| *worker);
        let mut able: Vec<_> = free.filter(|worker| is_able(*worker) && standing(worker) <= last).collect();
        able.sort_by_key(standing);
        able
    }

    /// Whom to empty for a task: the one that is being emptied, as long as its tasks end; else the one of
    /// which something has ended last, because what it has is likely to be short. One that is given up without
    /// another in its place rests as long as it was waited for: what is short passes meanwhile.
    fn to_empty(&self, able: &[Incarnation], task: TaskOfJob, now_us: u64) -> Option<EmptiedWorker> {
        let load = |worker: &Incarnation| &self.loads[worker];
        let before = self.emptied.clone().filter(|emptied| able.contains(&emptied.worker));
        let (mut patience_us, mut given_up) = (PATIENCE_US, None);
        if let Some(before) = before {
            let moved_us = before.since_us.max(load(&before.worker).progress_us);
            match before.rests_until_us {
                None if now_us.saturating_sub(moved_us) <= before.patience_us => {
                    return Some(EmptiedWorker { task, ..before });
                }
                // It has rested.
                Some(until_us) if until_us <= now_us => {}
                _ => given_up = Some(before.worker),
            }
            if given_up.is_some() && able.len() == 1 {
                let rests_until_us =
                    before.rests_until_us.or(Some(now_us.saturating_add(before.patience_us)));
                return Some(EmptiedWorker { task, rests_until_us, ..before });
            }
            patience_us = before.patience_us.saturating_mul(2);
        }
        let others = able.iter().filter(|worker| Some(**worker) != given_up);
        let liveliest = others
            .max_by_key(|worker| (load(worker).progress_us, Reverse(load(worker).held), Reverse(**worker)));
        let worker = liveliest.copied()?;
        Some(EmptiedWorker { worker, task, since_us: now_us, patience_us, rests_until_us: None })
    }

    fn lease_alone(
        &mut self,
        worker: Incarnation,
        ready: &ReadyClass,
        task: u32,
        matching: &mut Matching<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let (Some(about), Some(load)) = (matching.workers.get(&worker), self.loads.get_mut(&worker)) else {
            return;
        };
        let Some(job) = matching.jobs.get_mut(&ready.job) else { return };
        let training = (matching.training)(worker, about);
        load.alone = true;
        let (touched, now_us) = (&mut matching.touched, matching.now_us);
        let mut taker = LeaseBuilder::new((worker, about), training, load, touched, now_us);
        job.class_mut(ready.class).alone.remove(&task);
        taker.lease(job, task);
        if !taker.orders.is_empty() {
            effects.push(Effect::Orders { worker, orders: taker.orders });
        }
    }

    pub(super) fn is_emptied(&self, worker: Incarnation) -> bool {
        self.emptied_for(worker).is_some()
    }

    /// The task for which a worker takes nothing more until it has nothing.
    pub(super) fn emptied_for(&self, worker: Incarnation) -> Option<&TaskOfJob> {
        let emptied = self.emptied.as_ref().filter(|emptied| emptied.worker == worker)?;
        emptied.rests_until_us.is_none().then_some(&emptied.task)
    }

    /// Whether what a worker has is a task that is to be alone.
    pub(super) fn has_one_alone(&self, worker: Incarnation) -> bool {
        self.loads.get(&worker).is_some_and(|load| load.alone)
    }

    /// Whether it takes nothing more for now, however many slots it has left.
    pub(super) fn is_reserved(&self, worker: Incarnation, now_us: u64) -> bool {
        let takes_no_more = |load: &WorkerLoad| load.alone || load.takes_one_at_a_time(now_us);
        self.is_emptied(worker) || self.loads.get(&worker).is_some_and(takes_no_more)
    }
}
