//! Which worker serves which job, and why a job waits for workers.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    job::Job,
    member::Member,
    panics::Handling,
    records::Phase,
    state_machine::Core,
    tasks::{TaskJob, waits_to_be_resumed},
    training_slots::TrainingSlots,
    turn::Turn,
    worker_info::WorkerInfo,
};
use crate::ids::{Incarnation, JobId, ProcessId};

/// A job that needs several workers at once is overtaken by jobs that need fewer for so long.
const OVERTAKEN_US: u64 = 60_000_000;
/// So many trainings, in their order, are told which workers are there. Thousands may wait behind them, and
/// each sentence that changes is a commit, whenever a worker or a job comes or goes.
const TOLD: usize = 16;
/// Jobs that are named where a job waits for the workers that serve them.
const NAMED: usize = 8;

impl Core {
    /// Whether a worker could train and serves no job.
    fn is_idle(&self, worker: Incarnation) -> bool {
        if !self.workers.get(&worker).is_some_and(|about| about.trains) {
            return false;
        }
        let serves = |job: &Job| job.members.get(&worker).is_some_and(|m| !m.is_gone());
        !self.jobs.live().any(|job| !job.state.phase.is_over() && serves(job))
    }

    /// Takes in a worker, which is idle unless it serves a job already.
    pub(super) fn worker_joined(&mut self, worker: Incarnation, about: WorkerInfo) {
        self.add_worker(worker, about);
        self.note_if_idle(worker);
    }

    pub(super) fn add_worker(&mut self, worker: Incarnation, about: WorkerInfo) {
        self.training_slots.insert(worker, &about);
        self.workers.insert(worker, about);
    }

    /// A worker came, or its job has done with it.
    pub(super) fn note_if_idle(&mut self, worker: Incarnation) {
        if self.is_idle(worker) {
            self.idle.insert(worker);
        }
    }

    /// Gives no job to the other training slots of a worker that leaves: they are about to leave as well.
    pub(super) fn withhold_process(&mut self, worker: Incarnation) {
        let Some(process) = self.workers.get(&worker).and_then(|about| about.process) else { return };
        let workers = &self.workers;
        self.idle.retain(|slot| workers.get(slot).is_none_or(|about| about.process != Some(process)));
    }

    /// Forgets a worker.
    pub(super) fn forget_worker(&mut self, worker: Incarnation) {
        if let Some(about) = self.workers.remove(&worker) {
            self.training_slots.remove(worker, &about);
        }
        self.idle.remove(&worker);
    }

    /// Looks for idle workers among all, after a job has ended.
    pub(super) fn find_idle_workers(&mut self) {
        self.idle = self.workers.keys().copied().filter(|w| self.is_idle(*w)).collect();
    }

    /// Gives idle workers to the jobs that want more, oldest job first, all of its `min_workers` or none to
    /// one at which nobody is at work, and notes what each queued job waits for. Cost O(n log n) in the
    /// idle workers for each job that wants some.
    pub(super) fn assign_workers(&mut self, turn: &mut Turn<'_>) {
        let place = |j: &Job| {
            // Trainings of one graph in the order of its tasks, many of which are ready in the same moment.
            let task = j.state.trains_for.as_ref().map_or(0, |of| of.task);
            (j.state.submitted_us, task, j.id().clone())
        };
        let open = self.jobs.live().filter(|j| !j.state.phase.is_over());
        let mut order: Vec<(u64, u32, JobId)> = open.map(place).collect();
        order.sort();
        // Without those that are kept for a job that has waited long.
        let mut free = self.idle.clone();
        let mut kept = Vec::new();
        let lost = self.describe_lost_for_all();
        for (_, _, id) in &order {
            let _handling = Handling(id);
            if self.is_held_back(id) || lost.is_some() && self.jobs.get(id).is_some_and(Job::is_queued) {
                continue;
            }
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let train = job.train();
            let least = train.min_workers as usize;
            let needed = job.needed_behind_training();
            let most = needed.unwrap_or(train.max_workers) as usize;
            // An evaluation waits for nobody who prepares itself.
            let present = if needed.is_some() { job.active().count() } else { job.present().count() };
            let queued = job.state.phase == Phase::Queued;
            let wanted = most.saturating_sub(present);
            if wanted == 0 {
                continue;
            }
            let mut able = job.idle_workers(&self.workers, &free, &self.training_slots);
            able.truncate(wanted);
            if job.begins() && present + able.len() < least {
                if !able.is_empty() && job.may_be_kept_for(&self.workers, turn.now_us) {
                    for worker in &able {
                        free.remove(worker);
                    }
                    kept.push(KeptWorkers { job: id.clone(), count: able.len(), least });
                }
                continue;
            }
            let entry = job.entry();
            for worker in able {
                free.remove(&worker);
                self.idle.remove(&worker);
                let about = self.workers.get(&worker).cloned().unwrap_or_default();
                job.join(worker, about, entry, turn);
            }
            // A job that may run without workers still needs one to begin.
            if queued && !job.clocks.is_empty() {
                job.state.phase = Phase::Opening;
                turn.effects.push(job.open_order());
            }
        }
        let mut queue = Queue { there: self.describe_workers(), kept, lost, in_front: 0 };
        for (_, _, id) in &order {
            let _handling = Handling(id);
            let waits = self.waits_for_workers(id, &mut queue);
            if let Some(job) = self.jobs.get_mut(id).filter(|j| j.state.phase != Phase::Running) {
                job.wait_for(waits);
            }
        }
        self.note_waiting_trainings();
    }

    /// What a training that has not begun waits for where one that has waits for a shard, which every one
    /// needs: workers that it took would be missing to the older one when the shard is there again.
    fn describe_lost_for_all(&self) -> Option<String> {
        let waits = self.jobs.live().find(|job| job.awaits_shards())?;
        Some(format!("a parameter shard that counts as lost, like job `{}`, which is before it", waits.id()))
    }

    /// Whether a training is paused or waits for a shard, or has not begun and its graph is paused.
    fn is_held_back(&self, id: &JobId) -> bool {
        if self.jobs.get(id).is_some_and(|job| job.state.paused || job.awaits_shards()) {
            return true;
        }
        let of = self.jobs.get(id).filter(|job| job.state.phase == Phase::Queued);
        let of = of.and_then(|job| job.state.trains_for.as_ref());
        of.and_then(|of| self.task_jobs.get(&of.job)).is_some_and(TaskJob::is_paused)
    }

    /// Why a job has not begun, in words; `None` if it has all the workers it needs.
    fn waits_for_workers(&self, id: &JobId, queue: &mut Queue) -> Option<String> {
        let job = self.jobs.get(id)?;
        match job.state.phase {
            Phase::Queued if job.state.paused => return Some(waits_to_be_resumed(id)),
            Phase::Queued if queue.lost.is_some() => return queue.lost.clone(),
            Phase::Queued if self.is_held_back(id) => {
                let graph = job.state.trains_for.as_ref().map(|of| of.job.to_string()).unwrap_or_default();
                return Some(format!("its graph, which is paused: `syncline resume {graph}`"));
            }
            Phase::Queued => {}
            Phase::Opening => return Some(job.waits_for_shards()),
            _ => return None,
        }
        let least = job.train().min_workers;
        let wanted = format!("{least} {}", if least == 1 { "worker" } else { "workers" });
        queue.in_front += 1;
        if queue.in_front > TOLD && job.state.excluded.is_empty() {
            return Some(format!("{wanted}: {}", self.describe_place_behind()));
        }
        let mut text = format!("{wanted}: {}", queue.there);
        let excludes = |about: &&WorkerInfo| job.excludes(about);
        let excluded = match job.state.excluded.is_empty() {
            true => 0,
            false => self.workers.values().filter(excludes).count(),
        };
        if excluded > 0 {
            text.push_str(&format!(", {excluded} cannot run it ({})", job.exclusions()));
        } else if let Some(text_of_kept) = describe_kept(id, &queue.kept) {
            text.push_str(&text_of_kept);
        } else if self.idle.len() >= least as usize {
            text.push_str(", and a job takes one slot of each worker");
        }
        Some(text)
    }

    /// What keeps those that are not told which workers are there, in words that seldom change.
    fn describe_place_behind(&self) -> String {
        match self.workers.values().any(|about| about.trains) {
            true => format!("{TOLD} or more trainings that came before it wait as well"),
            false => "none that trains is there".to_owned(),
        }
    }

    /// Which workers that train are there and what they do, in words.
    pub(super) fn describe_workers(&self) -> String {
        let all = self.workers.values().filter(|about| about.trains).count();
        let idle = self.idle.len();
        match (all, self.workers.len()) {
            (0, 0) => return "none is there".into(),
            (0, others) => {
                return format!(
                    "none of the {others} that are there trains, as `syncline worker` does, and one of yours with --device cpu"
                );
            }
            _ => {}
        }
        let alone = self.workers.values().filter(|about| about.trains && about.process.is_none()).count();
        let processes = alone + self.training_slots.process_count();
        let mut text = match processes == all {
            true => format!("of {all} that are there {idle} are idle"),
            false => format!("of {processes} that are there with {all} training slots {idle} slots are idle"),
        };
        if all > idle {
            let has_some = |job: &&Job| {
                let serves = |(w, m): (&Incarnation, &Member)| !m.is_gone() && self.workers.contains_key(w);
                !job.state.phase.is_over() && job.members.iter().any(serves)
            };
            let serving = || self.jobs.live().filter(has_some);
            let named: Vec<String> = serving().take(NAMED).map(|job| format!("`{}`", job.id())).collect();
            text.push_str(&format!(", {} serve {}", all - idle, named.join(", ")));
            match serving().count().saturating_sub(NAMED) {
                0 => {}
                more => text.push_str(&format!(" and {more} more")),
            }
        }
        text
    }
}

/// What trainings that have not begun wait for, as they are told of it one after the other.
struct Queue {
    /// The workers that train, in words.
    there: String,
    kept: Vec<KeptWorkers>,
    /// A shard that every training needs, in words.
    lost: Option<String>,
    /// Those that wait for workers, so far.
    in_front: usize,
}

/// Idle workers that wait with an older job until it has all that it needs.
struct KeptWorkers {
    job: JobId,
    count: usize,
    least: usize,
}

/// Which idle workers another job cannot have, in words; `None` if it could have all of them.
fn describe_kept(id: &JobId, kept: &[KeptWorkers]) -> Option<String> {
    let others: Vec<String> = kept
        .iter()
        .filter(|kept| kept.job != *id)
        .map(|KeptWorkers { job, count, least }| {
            format!(", {count} of them kept for `{job}`, which came before and needs {least} at once")
        })
        .collect();
    (!others.is_empty()).then(|| others.concat())
}

impl Job {
    /// Whether nobody is at work yet, or any more, and samples are left: then it takes all of its
    /// `min_workers`. One that goes on with those that were not lost needs no others.
    fn begins(&self) -> bool {
        let opened = matches!(self.state.phase, Phase::Opening | Phase::Running);
        let trains = opened && !self.state.cursor.is_exhausted();
        self.is_queued() || trains && self.active().next().is_none()
    }

    /// Idle workers that may join, those of processes that train least first, and one of each process.
    pub(super) fn idle_workers(
        &self,
        workers: &BTreeMap<Incarnation, WorkerInfo>,
        idle: &BTreeSet<Incarnation>,
        slots: &TrainingSlots,
    ) -> Vec<Incarnation> {
        let about = |worker: &Incarnation| Some((*worker, workers.get(worker)?));
        let joinable = idle.iter().filter_map(about).filter(|(_, about)| !self.excludes(about));
        let mut joinable: Vec<_> = joinable
            .map(|(worker, about)| (slots.training(worker, about, idle), worker, about.process))
            .collect();
        joinable.sort_unstable();
        let mut processes: BTreeSet<ProcessId> =
            self.present().filter_map(|worker| self.members[&worker].about.process).collect();
        joinable.retain(|(_, _, process)| process.is_none_or(|process| processes.insert(process)));
        joinable.into_iter().map(|(_, worker, _)| worker).collect()
    }

    /// Whether idle workers wait for it until it has all of its `min_workers`: jobs that need fewer would
    /// overtake it forever. Not where there are not so many at all.
    fn may_be_kept_for(&self, workers: &BTreeMap<Incarnation, WorkerInfo>, now_us: u64) -> bool {
        let able = workers.iter().filter(|(_, about)| about.trains && !self.excludes(about));
        let (mut alone, mut processes) = (0, BTreeSet::new());
        for (_, about) in able {
            match about.process {
                Some(process) => _ = processes.insert(process),
                None => alone += 1,
            }
        }
        let there = alone + processes.len();
        now_us.saturating_sub(self.queued_since_us()) >= OVERTAKEN_US
            && there >= self.train().min_workers as usize
    }

    /// Notes in words what the job waits for.
    pub(super) fn wait_for(&mut self, waits: Option<String>) {
        if self.state.waiting_for != waits {
            self.state.waiting_for = waits;
            self.changes.job_state = true;
        }
    }
}
