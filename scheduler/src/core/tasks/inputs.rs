//! What may happen to jobs of general tasks, and what each input changes.

use std::collections::BTreeSet;

use super::{
    InvalidGraph, TaskJob, adding::ReferenceScope, avoidance::came_back, ending::Loss, leasing::Matching,
};
use crate::{
    core::{
        Core, Effect, GraphSubmission, IfTaken, Input, Job, LastWeights, Phase, Refused, WorkerInfo,
        departures::Departure, panics::Handling, submitting::is_same_job, turn::Turn,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Incarnation, JobId},
    tasks::{
        ClassIndex, GraphDigest, GraphReceipt, GraphSpec, NewTask, Outcome, ReportGroup, TaskEnd, TaskIndex,
    },
};

/// Code of a graph of which parts are missing for good.
const GRAPH_ABANDONED: FaultCode = FaultCode::new("E620");
/// Whoever has sent a part of a graph sends the next one within this time, or is gone.
const PART_TIMEOUT_US: u64 = 24 * 3_600 * 1_000_000;

impl Core {
    /// Handles an input that is about general tasks alone.
    pub(in crate::core) fn handle_tasks(&mut self, input: Input, turn: &mut Turn<'_>) -> Result<(), Refused> {
        match input {
            Input::SubmitGraph(submission) => self.submit_graph(submission, turn)?,
            Input::ExtendGraph { job, nonce, first, tasks } => {
                let handling = Handling(&job);
                let extended = self.submitted(&job, nonce)?.extend(first, &tasks, turn.now_us)?;
                drop(handling);
                if extended {
                    self.changed_tasks.insert(job);
                }
            }
            Input::StartGraph { job, nonce, count } => {
                let _handling = Handling(&job);
                if self.submitted(&job, nonce)?.begin(count, turn.now_us)? {
                    self.note(&job, turn);
                }
            }
            Input::AbandonGraph { job, nonce } => self.abandon_graph(job, nonce, turn.effects),
            Input::Pause { job, paused } => self.pause(&job, paused, turn)?,
            Input::CancelTask(cancellation) => self.cancel_task(cancellation, turn)?,
            Input::TasksEnded { worker, groups, under_another } => {
                self.tasks_ended(worker, groups, under_another, turn);
            }
            _ => return Ok(()),
        }
        self.leases_tasks = true;
        Ok(())
    }

    fn submit_graph(&mut self, submission: GraphSubmission, turn: &mut Turn<'_>) -> Result<(), Refused> {
        let GraphSubmission { spec, nonce, if_taken } = submission;
        if self.graph_submitted_before(&spec.id, spec.digest, nonce, if_taken).is_some() {
            return Ok(());
        }
        let job = TaskJob::submitted(&spec, nonce, turn.now_us)?;
        self.check_name(&spec.id, if_taken, || match self.task_jobs.get(&spec.id) {
            Some(there) => there.differences(&job),
            None => ", as a training".to_owned(),
        })?;
        self.make_room_for(&spec.id, turn.effects);
        self.task_jobs.insert(spec.id.clone(), job);
        self.note(&spec.id, turn);
        Ok(())
    }

    /// What a submission of a graph is answered with, because the job is there already.
    pub fn graph_submitted_before(
        &self,
        id: &JobId,
        digest: GraphDigest,
        nonce: u32,
        if_taken: IfTaken,
    ) -> Option<GraphReceipt> {
        let there = self.task_jobs.get(id)?;
        let receipt = there.receipt(digest)?;
        is_same_job(there.phase(), there.state.nonce == nonce, if_taken).then_some(receipt)
    }

    /// Whether a part of the graph with this nonce is there already.
    pub fn has_part(&self, id: &JobId, nonce: u32, first: TaskIndex, tasks: usize) -> bool {
        let job = self.task_jobs.get(id).filter(|job| job.nonce() == nonce);
        job.is_some_and(|job| job.has_part(first, tasks))
    }

    /// Drops a job that is over, because another takes its name.
    pub(in crate::core) fn make_room_for(&mut self, id: &JobId, effects: &mut Vec<Effect>) {
        if let Some(old) = self.jobs.remove(id) {
            effects.push(Effect::CloseShards { run: old.run(), weights: LastWeights::Drop });
            effects.extend(old.remove_checkpoints());
        }
        self.remove_task_job(id, effects);
    }

    /// Forgets a job of general tasks with its values, and the jobs that trained for it.
    pub(in crate::core) fn remove_task_job(&mut self, id: &JobId, effects: &mut Vec<Effect>) {
        let Some(job) = self.task_jobs.remove(id) else { return };
        self.fleet.job_gone(id);
        self.set_aside.drop_trainings_of(id);
        let trained = |job: &&Job| job.state.trains_for.as_ref().is_some_and(|of| of.job == *id);
        let trained: Vec<JobId> = self.jobs.all().filter(trained).map(|job| job.id().clone()).collect();
        for training in trained {
            self.make_room_for(&training, effects);
            self.deleted.push(training);
        }
        let digests: Vec<ContentDigest> = job.values.blobs().collect();
        if !digests.is_empty() {
            effects.push(Effect::ReleaseBlobs { digests });
        }
        self.changed_tasks.remove(id);
    }

    /// Whoever sent a graph does not send the rest of it. One that has begun meanwhile was sent by another
    /// client, and goes on, as does a job of another submission.
    fn abandon_graph(&mut self, id: JobId, nonce: u32, effects: &mut Vec<Effect>) {
        let Ok(job) = self.submitted(&id, nonce) else { return };
        if *job.phase() == Phase::Queued {
            // No task of it has run: nobody else releases what was uploaded for them.
            job.release_all_arguments(effects);
            self.remove_task_job(&id, effects);
            self.deleted.push(id);
        }
    }

    /// The job that was submitted with this nonce.
    fn submitted(&mut self, id: &JobId, nonce: u32) -> Result<&mut TaskJob, Refused> {
        let job = self.task_jobs.get_mut(id).filter(|job| job.state.nonce == nonce);
        job.ok_or_else(|| Refused::Unknown { job: id.clone() })
    }

    fn tasks_ended(
        &mut self,
        worker: Incarnation,
        groups: Vec<ReportGroup>,
        under_another: bool,
        turn: &mut Turn<'_>,
    ) {
        let has_ended = |end: &TaskEnd| !matches!(end.outcome, Outcome::NotBegun | Outcome::GivenBack);
        if groups.iter().flat_map(|group| &group.ended).any(has_ended) {
            self.fleet.progress(worker, turn.now_us);
        }
        if groups.iter().flat_map(|group| &group.ended).any(|end| has_ended(end) && !came_back(&end.outcome))
        {
            self.fleet.note_run(worker);
        }
        for ReportGroup { submission, ended } in groups {
            let _handling = Handling(&submission.job);
            let Some(job) = self.task_jobs.get_mut(&submission.job).filter(|job| job.is_of(&submission))
            else {
                continue;
            };
            for end in ended {
                if under_another && !job.was_loaded(worker, &end) {
                    job.note_unknown_attempt(end.task.0, end.attempt);
                } else {
                    if came_back(&end.outcome) && job.avoid(worker, &end, turn.now_us) {
                        self.fleet.note_return(worker, turn.now_us);
                    }
                    job.attempt_ended(worker, end, turn.now_us);
                }
            }
            self.note(&submission.job, turn);
        }
    }

    /// A worker came: it may have room for tasks.
    pub(in crate::core) fn tasks_worker_joined(&mut self, worker: Incarnation) {
        if let Some(about) = self.workers.get(&worker) {
            self.fleet.worker_joined(worker, about);
        }
    }

    /// A worker is gone, with the tasks that it had.
    pub(in crate::core) fn tasks_worker_gone(
        &mut self,
        worker: Incarnation,
        departure: Departure,
        turn: &mut Turn<'_>,
    ) {
        self.fleet.worker_gone(worker);
        let begun = self.task_jobs.values().map(|job| job.could_have_begun(worker)).sum::<usize>();
        let loss = match departure {
            Departure::Left => Loss::Stopped,
            Departure::Dismissed => Loss::Dismissed,
            Departure::Lost if begun > 1 => Loss::BesideOthers,
            Departure::Lost => Loss::Alone,
        };
        let had = |job: &TaskJob| !job.state.phase.is_over() && job.workers.contains_key(&worker);
        let now_us = turn.now_us;
        self.for_each_graph(had, turn, |job| job.worker_gone(worker, loss, now_us));
    }

    /// Time has passed: pauses end, and the time of what was told to stop, or waits.
    pub(in crate::core) fn tasks_tick(&mut self, turn: &mut Turn<'_>) {
        let now_us = turn.now_us;
        let due = |job: &TaskJob| {
            let paused = job.postponed.first().is_some_and(|(until_us, _)| *until_us <= now_us);
            let stopped = job.canceling.first().is_some_and(|(until_us, _)| *until_us <= now_us);
            paused || stopped || job.is_grace_over(now_us) || job.is_abandoned(now_us)
        };
        self.for_each_graph(due, turn, |job| {
            job.end_abandoned(now_us);
            job.end_backoffs(now_us);
            job.end_grace(now_us);
            job.end_task_graces(now_us);
        });
        self.expire_queue_deadlines(turn);
    }

    pub(super) fn for_each_graph(
        &mut self,
        wanted: impl Fn(&TaskJob) -> bool,
        turn: &mut Turn<'_>,
        mut change: impl FnMut(&mut TaskJob),
    ) {
        let wanted = self.task_jobs.iter().filter(|(_, job)| wanted(job));
        for id in wanted.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let _handling = Handling(&id);
            if let Some(job) = self.task_jobs.get_mut(&id) {
                change(job);
            }
            self.note(&id, turn);
        }
    }

    /// Sees to what happened to a job.
    pub(in crate::core) fn note(&mut self, id: &JobId, turn: &mut Turn<'_>) {
        let _handling = Handling(id);
        let Some(job) = self.task_jobs.get_mut(id) else { return };
        job.limit_queued(turn.now_us);
        self.fleet.take_note(job);
        job.take_recalls(turn.effects);
        for training in std::mem::take(&mut job.outbox.trainings_ended) {
            if let Some(training) = self.jobs.get_mut(&training).filter(|job| !job.phase().is_over()) {
                training.cancel(format!("job {id} does not need it any more"), turn);
            }
        }
        if !self.changed_tasks.contains(id) {
            self.changed_tasks.insert(id.clone());
        }
        if job.has_trainings() && !self.with_trainings.contains(id) {
            self.with_trainings.insert(id.clone());
        }
    }

    /// Gives ready tasks to workers that have room.
    pub(in crate::core) fn lease_tasks(&mut self, turn: &mut Turn<'_>) {
        let Self { fleet, task_jobs, workers, training_slots, idle, changed_tasks, .. } = self;
        let training = |worker: Incarnation, about: &WorkerInfo| training_slots.training(worker, about, idle);
        let mut matching = Matching {
            jobs: task_jobs,
            workers,
            training: &training,
            now_us: turn.now_us,
            touched: BTreeSet::new(),
        };
        fleet.place(&mut matching, turn.effects);
        changed_tasks.append(&mut matching.touched);
    }

    /// Takes in a job of general tasks that was loaded, and returns what has to be repeated.
    pub fn restore_tasks(&mut self, mut job: TaskJob) -> Vec<Effect> {
        let mut effects = Vec::new();
        job.loaded = job.leased_attempts();
        for (&worker, tasks) in &job.leases {
            if let Some(about) = job.workers.get(&worker).filter(|_| !self.workers.contains_key(&worker)) {
                self.add_worker(worker, about.clone());
            }
            self.fleet.restore(worker, &job, tasks);
            effects.push(Effect::Orders { worker, orders: job.orders_of(worker) });
        }
        for worker in job.leases.keys() {
            self.has_loaded_workers = true;
            self.note_if_idle(*worker);
        }
        if job.forget_workers_without_leases() {
            self.changed_tasks.insert(job.id.clone());
        }
        self.fleet.take_note(&mut job);
        if job.has_trainings() {
            self.with_trainings.insert(job.id.clone());
            // Some may be over, or not there: what follows is seen to with the next input.
            self.jobs.touch_all();
        }
        self.task_jobs.insert(job.id.clone(), job);
        effects
    }

    /// A job of general tasks.
    pub fn task_job(&self, id: &JobId) -> Option<&TaskJob> {
        self.task_jobs.get(id)
    }
}

impl TaskJob {
    /// Drops the records of workers that have nothing: of one that is gone since, another engine is never
    /// told so. `true`: there were some. Whoever is given something again is recorded again.
    fn forget_workers_without_leases(&mut self) -> bool {
        let Self { workers, leases, changes, .. } = self;
        let idle = workers.extract_if(.., |worker, _| !leases.contains_key(worker));
        changes.workers.extend(idle.map(|(worker, _)| worker));
        !changes.workers.is_empty()
    }

    fn has_part(&self, first: TaskIndex, tasks: usize) -> bool {
        u64::from(first.0) + tasks as u64 <= u64::from(self.graph.len())
    }

    /// Adds a part of the graph; `false` if it is there already.
    pub(super) fn extend(
        &mut self,
        first: TaskIndex,
        tasks: &[NewTask],
        now_us: u64,
    ) -> Result<bool, InvalidGraph> {
        self.await_parts_from(now_us);
        if self.has_part(first, tasks.len()) {
            return Ok(false);
        }
        let there = self.graph.len();
        if first.0 != there {
            return Err(InvalidGraph::Gap { given: first, there });
        }
        if self.state.phase != Phase::Queued {
            return Err(InvalidGraph::Started);
        }
        let classes: Vec<ClassIndex> = (0..self.classes.len() as u16).map(ClassIndex).collect();
        let records = self.check(tasks, &classes, ReferenceScope::Anywhere, None)?;
        self.add(&records);
        Ok(true)
    }

    /// No part could come before.
    pub(in crate::core) fn await_parts_from(&mut self, now_us: u64) {
        self.last_part_us = now_us;
    }

    /// Whether parts of the graph are missing and none has come for long.
    fn is_abandoned(&self, now_us: u64) -> bool {
        let since_us = self.last_part_us.max(self.state.submitted_us);
        self.state.phase == Phase::Queued && now_us.saturating_sub(since_us) > PART_TIMEOUT_US
    }

    fn end_abandoned(&mut self, now_us: u64) {
        if self.is_abandoned(now_us) {
            let tasks = self.graph.len();
            let reason = format!("{tasks} tasks of its graph have come, and none of the others for a day");
            self.end(Phase::Failed { code: GRAPH_ABANDONED, reason }, now_us);
        }
    }

    /// The job of a submission, which has begun if the graph is complete.
    pub(in crate::core) fn submitted(
        spec: &GraphSpec,
        nonce: u32,
        now_us: u64,
    ) -> Result<Self, InvalidGraph> {
        let mut job = Self::new(spec.id.clone(), spec.digest, nonce, now_us);
        let classes: Vec<ClassIndex> =
            spec.classes.iter().map(|class| job.add_class(class)).collect::<Result<_, _>>()?;
        let records = job.check(&spec.tasks, &classes, ReferenceScope::Anywhere, None)?;
        job.add(&records);
        if spec.complete {
            job.begin(spec.tasks.len() as u32, now_us)?;
        }
        Ok(job)
    }

    /// Begins once all tasks have come; `false` if it has begun already.
    fn begin(&mut self, count: u32, now_us: u64) -> Result<bool, InvalidGraph> {
        if self.state.phase != Phase::Queued {
            return Ok(false);
        }
        if self.graph.len() != count {
            return Err(InvalidGraph::Gap { given: TaskIndex(count), there: self.graph.len() });
        }
        if count == 0 {
            return Err(InvalidGraph::Empty);
        }
        self.start(now_us);
        Ok(true)
    }
}
