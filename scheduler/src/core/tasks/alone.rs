//! Tasks that are to be the only one of a worker, because their workers were lost with others again and again (ADR 51). One
//! worker at a time is emptied for them; all others go on as if there were none.

use super::{
    job::TaskJob,
    lease_builder::LeaseBuilder,
    leasing::{Matching, TaskAssigner, offered},
    ready_class::ReadyClass,
};
use crate::{
    core::{Effect, WorkerInfo, panics::Handling},
    ids::Incarnation,
    tasks::TaskState,
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

impl TaskAssigner {
    /// Gives tasks that are to be alone to workers that have nothing, and chooses who takes nothing more until it has nothing, for the next
    /// of them. That is the one that has least: it gets no more, so that the least is never more than before, and whoever has long tasks
    /// is not waited for. Cost O(workers) while there are such tasks.
    pub(super) fn place_alone(&mut self, matching: &mut Matching<'_>, effects: &mut Vec<Effect>) {
        self.emptied = None;
        for ready in self.alone_classes.clone() {
            let _handling = Handling(&ready.job);
            loop {
                let job = matching.jobs.get_mut(&ready.job).filter(|job| job.gives_out());
                let Some(task) = job.and_then(|job| job.next_alone(&ready)) else {
                    self.alone_classes.remove(&ready);
                    break;
                };
                match self.least_busy(&ready, matching) {
                    Some((worker, true)) => self.lease_alone(worker, &ready, task, matching, effects),
                    Some((worker, false)) => return self.emptied = Some(worker),
                    None => break,
                }
            }
        }
    }

    /// Of the workers that can run a class, the one that has least, and whether that is nothing; none where other jobs come first.
    fn least_busy(&self, ready: &ReadyClass, matching: &Matching<'_>) -> Option<(Incarnation, bool)> {
        let can_run = |about: &WorkerInfo, ready: &ReadyClass| {
            let job = matching.jobs.get(&ready.job).filter(|job| job.gives_out());
            job.is_some_and(|job| about.capacity.can_run(&job.class(ready.class).class))
        };
        let each = matching.jobs.get(&ready.job)?.resources_of(ready.class);
        let able = self.loads.iter().filter_map(|(worker, load)| {
            let about = matching.workers.get(worker)?;
            let training = (matching.training)(*worker, about);
            let has_slot = about.capacity.slots > training;
            let fits = each.is_none() || offered(about, training).fits(each) > 0;
            (has_slot && fits && can_run(about, ready)).then_some((load.held, load.held_us, *worker, about))
        });
        let (held, _, worker, about) =
            able.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)))?;
        let mut in_front = self.ready_classes.iter().take_while(|other| other.turn() < ready.turn());
        (!in_front.any(|other| can_run(about, other))).then_some((worker, held == 0))
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
        (load.progress_us, load.asked_us, load.alone) = (matching.now_us, None, true);
        let mut taker = LeaseBuilder {
            worker,
            about,
            slots: about.capacity.slots.saturating_sub(training),
            offered: offered(about, training),
            load,
            orders: Vec::new(),
            touched: &mut matching.touched,
        };
        job.class_mut(ready.class).alone.remove(&task);
        taker.lease(job, task);
        if !taker.orders.is_empty() {
            effects.push(Effect::Orders { worker, orders: taker.orders });
        }
    }

    /// Whether it takes nothing more for now, however many slots it has left.
    pub(super) fn is_reserved(&self, worker: Incarnation) -> bool {
        self.emptied == Some(worker) || self.loads.get(&worker).is_some_and(|load| load.alone)
    }
}
