//! All jobs and all workers: the one state machine of the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    commit::{Commit, Commits},
    departures::Departure,
    effects::Effect,
    inputs::Input,
    job::Job,
    panics::Handling,
    records::Phase,
    refused::Refused,
    set_aside::SetAside,
    state_dirs::StateDirs,
    tasks::{TaskAssigner, TaskJob},
    training_slots::TrainingSlots,
    trainings::Trainings,
    turn::Turn,
    worker_info::WorkerInfo,
    worker_protocol::TaskReport,
};
use crate::ids::{Incarnation, JobId, RunId};

/// Jobs in the order they were submitted, and the workers they share. A worker serves one job at a time, so
/// that barriers of two jobs can never wait for each other; a process that serves several is several workers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Core {
    pub(super) shards: u32,
    pub(super) jobs: Trainings,
    pub(super) workers: BTreeMap<Incarnation, WorkerInfo>,
    pub(super) training_slots: TrainingSlots,
    /// Workers that serve no job.
    pub(super) idle: BTreeSet<Incarnation>,
    /// Deleted since the last commits were taken.
    pub(super) deleted: Vec<JobId>,
    pub(super) task_jobs: BTreeMap<JobId, TaskJob>,
    /// Those of them that have changed since the last commits were taken.
    pub(super) changed_tasks: BTreeSet<JobId>,
    pub(super) fleet: TaskAssigner,
    /// Graphs that have tasks which train, or could.
    pub(super) with_trainings: BTreeSet<JobId>,
    /// Jobs that train for tasks were loaded: some may not be wanted any more.
    pub(super) has_loaded_trainings: bool,
    /// Workers were loaded with what they had: one of them may be idle beside a job that waits, where the
    /// engine died between two commits.
    pub(super) has_loaded_workers: bool,
    /// Calls may have become ready in this turn, or slots free: they are given out behind the trainings that
    /// take workers in it.
    pub(super) leases_tasks: bool,
    /// Jobs whose records cannot be used now.
    pub(super) set_aside: SetAside,
    /// From which each shard is served now.
    pub(super) state_dirs: StateDirs,
}

impl Core {
    /// An empty core for a parameter server of `shards` shards.
    pub fn new(shards: u32) -> Self {
        Self { shards, ..Self::default() }
    }

    /// Handles one input at `now_us` on the engine's clock (epoch microseconds). The effects may be carried
    /// out once what [`Core::take_commits`] returns is committed.
    pub fn handle(&mut self, now_us: u64, input: Input) -> Result<Vec<Effect>, Refused> {
        let mut effects = Vec::new();
        let turn = &mut Turn { now_us, effects: &mut effects };
        // Workers are placed when one or a job came or went, or an exclusion ended; reports alone never free
        // anybody.
        let mut place = match &input {
            Input::Submit(_)
            | Input::WorkerJoined { .. }
            | Input::WorkerGone { .. }
            | Input::WorkerLeft { .. }
            | Input::Sealed { .. }
            // What waited for the shard wants workers again, and who did not reach it may now.
            | Input::ShardHolds { .. }
            | Input::ShardTakenOver { .. }
            // Trainings of a graph that goes on are begun again.
            | Input::Pause { .. } => true,
            Input::Tick => self.end_exclusions(now_us) | self.ends_wait_for_state_dir(now_us),
            _ => false,
        };
        place |= self.has_loaded_workers;
        let mut asks_back = place || matches!(input, Input::Tick);
        self.dispatch(input, turn)?;
        self.has_loaded_workers = false;
        let mut seen = 0;
        let mut concerns_graphs = self.concerns_trainings_of_graphs();
        loop {
            // A training that ends may let others begin, and with new jobs workers are placed.
            place |= concerns_graphs && self.advance_trainings(turn);
            self.forget_dismissed(seen, turn);
            if frees_workers(&turn.effects[seen..]) {
                self.find_idle_workers();
                (place, asks_back) = (true, true);
            }
            if place {
                self.assign_workers(turn);
            }
            // Slots and GPUs that no training has now are for calls: a training waits for neither, and both
            // would compute there at once.
            if mem::take(&mut self.leases_tasks) | asks_back {
                self.lease_tasks(turn);
            }
            if mem::take(&mut asks_back) {
                self.ask_back_waiting(turn);
            }
            seen = turn.effects.len();
            let touched = self.jobs.take_to_advance();
            for id in &touched {
                let _handling = Handling(id);
                if let Some(job) = self.jobs.taken_mut(id) {
                    job.advance(turn);
                }
            }
            self.describe_lacking(&touched, turn.now_us);
            self.release_unneeded(&touched, turn);
            // A job that ended just now leaves its workers to the next one.
            place = false;
            concerns_graphs = true;
            if !frees_workers(&turn.effects[seen..]) {
                return Ok(effects);
            }
        }
    }

    fn dispatch(&mut self, input: Input, turn: &mut Turn<'_>) -> Result<(), Refused> {
        match input {
            Input::Submit(submission) => return self.submit(submission, turn),
            Input::SubmitGraph(_)
            | Input::ExtendGraph { .. }
            | Input::StartGraph { .. }
            | Input::AbandonGraph { .. }
            | Input::Pause { .. }
            | Input::CancelTask(_)
            | Input::TasksEnded { .. } => return self.handle_tasks(input, turn),
            Input::Cancel(cancellation) => return self.cancel(cancellation, turn),
            Input::Delete(id) => return self.delete(&id, turn),
            Input::RequestCheckpoint(id) => return self.request_checkpoint(&id),
            Input::WorkerJoined { worker, about } => self.worker_registered(worker, about),
            Input::WorkerGone { worker, reason, never_told } => {
                self.give_back_untold(worker, never_told, turn);
                self.count_deaths(worker, turn.now_us);
                self.worker_gone(worker, Departure::Lost, &reason, turn);
            }
            Input::WorkerLeft { worker, begun } => self.worker_left(worker, begun, turn),
            Input::Report { worker, report } => self.take_report(worker, report, turn),
            Input::ShardGone { shard, reason } => self.shard_gone(shard, &reason, turn),
            Input::ShardTakenOver { shard, address } => self.shard_taken_over(shard, &address, turn.now_us),
            Input::ShardServed { shard, dirs } => self.shard_served(shard, dirs),
            Input::ShardHolds { shard, asked_us, held } => {
                self.shard_holds(shard, asked_us, &held, turn);
            }
            Input::Tick => self.tick(turn),
            Input::WeightsDelayed { run, reason } => self.weights_delayed(&run, reason),
            Input::WeightsMissing { run, fault, missing_us } => {
                self.weights_missing(&run, fault, missing_us, turn);
            }
            Input::WeightsKept { run, outcome } => self.weights_kept(&run, outcome, turn),
            Input::ShardsOpened { run } => {
                let state_dirs = self.state_dirs.clone();
                self.with_open_job(&run, |job| job.opened(&state_dirs, turn));
            }
            Input::OpeningDelayed { run, reason } => {
                self.with_open_job(&run, |job| job.opening_delayed(reason));
            }
            Input::Attached { run, shard, progress, floor } => {
                self.with_open_job(&run, |job| {
                    job.attached(shard, &progress, &floor, turn);
                });
            }
            Input::ShardFailed { run, code, .. } if self.may_lie_elsewhere(&run, code) => {}
            Input::ShardFailed { run, code, reason } => {
                self.with_open_job(&run, |job| job.shard_failed(code, reason, turn));
            }
            Input::BarrierClosed { run, shard, barrier } => {
                self.with_open_job(&run, |job| job.shard_closed(shard, barrier, turn));
            }
            Input::Sealed { run, worker, shard, progress } => {
                self.sealed(&run, worker, shard, progress, turn);
            }
            Input::CheckpointPinned { run, number, shard, outcome } => {
                self.with_open_job(&run, |job| {
                    job.checkpoint_pinned(number, shard, outcome, turn);
                });
            }
            Input::CheckpointWritten { run, number, shard, outcome } => {
                self.with_open_job(&run, |job| {
                    job.checkpoint_written(number, shard, outcome, turn);
                });
            }
            Input::Planned { run, superstep, revision, plan } => {
                self.with_open_job(&run, |job| {
                    job.take_plan(superstep, revision, plan, turn);
                });
            }
            Input::SnapshotWritten { key, outcome } => {
                self.with_open_job(&key.run, |job| {
                    job.snapshot_written(&key, outcome, turn);
                });
            }
        }
        Ok(())
    }

    fn worker_registered(&mut self, worker: Incarnation, about: WorkerInfo) {
        self.worker_joined(worker, about);
        self.tasks_worker_joined(worker);
    }

    pub(super) fn worker_gone(
        &mut self,
        worker: Incarnation,
        departure: Departure,
        reason: &str,
        turn: &mut Turn<'_>,
    ) {
        self.forget_worker(worker);
        for (id, job) in self.jobs.live_mut().filter(|(_, j)| !j.state.phase.is_over()) {
            let _handling = Handling(id);
            job.worker_gone(worker, reason, turn);
        }
        self.tasks_worker_gone(worker, departure, turn);
    }

    /// Workers that a job has dismissed when it ended are gone until they register again.
    fn forget_dismissed(&mut self, from: usize, turn: &mut Turn<'_>) {
        let dismissed: Vec<(Incarnation, String)> = turn.effects[from..]
            .iter()
            .filter_map(|effect| match effect {
                Effect::DismissWorker { worker, reason } => Some((*worker, reason.clone())),
                _ => None,
            })
            .filter(|(worker, _)| self.workers.contains_key(worker))
            .collect();
        for (worker, reason) in dismissed {
            self.worker_gone(worker, Departure::Dismissed, &reason, turn);
        }
    }

    fn take_report(&mut self, worker: Incarnation, report: TaskReport, turn: &mut Turn<'_>) {
        let key = report.key.clone();
        let _handling = Handling(&key.run.job);
        turn.effects.push(Effect::AckReport { worker, key: key.clone() });
        let fault = self.open_job(&key.run).and_then(|job| job.report(worker, report, turn));
        if let Some(fault) = fault {
            self.exclude(worker, &key, fault, turn);
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_>) {
        for (id, job) in self.jobs.live_mut().filter(|(_, j)| j.state.phase == Phase::Running) {
            let _handling = Handling(id);
            job.tick(turn);
            job.remove_superseded_checkpoints(turn);
        }
        self.end_waits_for_state_dirs(turn);
        self.end_queued(turn);
        self.tasks_tick(turn);
    }

    fn open_job(&mut self, run: &RunId) -> Option<&mut Job> {
        self.jobs.get_mut(&run.job).filter(|j| j.is_run(run) && !j.state.phase.is_over())
    }

    /// Does something with a job unless it is over or another run of it began: then the message is late.
    pub(super) fn with_open_job(&mut self, run: &RunId, act: impl FnOnce(&mut Job)) {
        let _handling = Handling(&run.job);
        if let Some(job) = self.open_job(run) {
            act(job);
        }
    }

    /// What changed since the last call, by job. Commit each as a unit before carrying out the effects.
    pub fn take_commits(&mut self, now_us: u64) -> Commits {
        let gone = self.deleted.drain(..).map(|id| (id, Commit { gone: true, ..Commit::default() }));
        let mut commits: Commits = gone.collect();
        let touched = self.jobs.take_to_commit();
        for id in &touched {
            let _handling = Handling(id);
            let commit = self.jobs.taken_mut(id).and_then(|job| job.take_commit(now_us));
            // A job that took the place of one that was deleted in the same turn begins with nothing anyway.
            commits.extend(commit.map(|commit| (id.clone(), commit)));
        }
        self.jobs.settle(&touched);
        for id in mem::take(&mut self.changed_tasks) {
            let handling = Handling(&id);
            let commit = self.task_jobs.get_mut(&id).and_then(TaskJob::take_commit);
            drop(handling);
            commits.extend(commit.map(|commit| (id, commit)));
        }
        commits
    }

    /// Drops what changed since the last call, where nothing is stored. Finished work is forgotten as by
    /// [`Core::take_commits`].
    pub fn discard_changes(&mut self) {
        self.deleted.clear();
        self.changed_tasks.clear();
        self.set_aside.discard_changes();
        let touched = self.jobs.take_to_commit();
        for id in &touched {
            if let Some(job) = self.jobs.taken_mut(id) {
                job.discard_changes();
            }
        }
        self.jobs.settle(&touched);
    }

    /// Everything about one job as one commit: for a store that has lost some of it.
    pub fn full_commit(&mut self, id: &JobId, now_us: u64) -> Option<Commit> {
        let _handling = Handling(id);
        if let Some(job) = self.task_jobs.get_mut(id) {
            job.mark_all_changed();
            return job.take_commit();
        }
        let job = self.jobs.get_mut(id)?;
        job.mark_all_changed();
        job.take_commit(now_us)
    }

    /// One job.
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// Takes in a job that was loaded, and returns what has to be repeated because it may not have been
    /// carried out.
    pub fn restore(&mut self, mut job: Job) -> Vec<Effect> {
        job.await_attachment();
        let effects = job.pending_effects();
        self.has_loaded_trainings |= job.state.trains_for.is_some();
        if !job.state.phase.is_over() {
            for worker in job.present() {
                let about = job.members[&worker].about.clone();
                // It registered with an earlier engine, and has room for general tasks beside this job.
                self.has_loaded_workers = true;
                self.fleet.worker_joined(worker, &about);
                self.add_worker(worker, about);
                self.idle.remove(&worker);
            }
        }
        self.jobs.insert(job);
        effects
    }

    /// Forgets a job that is over, whose keys expire. What shards have of it goes as well: without its record
    /// nobody can use that.
    pub fn forget(&mut self, id: &JobId) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.jobs.get(id).is_some_and(|j| j.state.phase.is_over()) {
            effects.extend(self.jobs.remove(id).into_iter().flat_map(Job::forgotten));
        }
        if self.task_jobs.get(id).is_some_and(|job| job.phase().is_over()) {
            self.task_jobs.remove(id);
            self.fleet.job_gone(id);
        }
        effects
    }

    /// Workers that take part in some job or wait for one.
    pub fn workers(&self) -> impl Iterator<Item = (Incarnation, &WorkerInfo)> + '_ {
        self.workers.iter().map(|(worker, about)| (*worker, about))
    }
}

/// Whether some worker may serve another job after these effects. One that was still to be sealed is gone
/// from a job that goes back.
fn frees_workers(effects: &[Effect]) -> bool {
    let frees = |effect: &Effect| match effect {
        Effect::CloseShards { .. } | Effect::DismissWorker { .. } => true,
        Effect::OpenShards { run, .. } => run.generation.number() > 1,
        _ => false,
    };
    effects.iter().any(frees)
}
