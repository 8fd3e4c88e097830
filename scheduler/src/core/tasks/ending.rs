//! How attempts at tasks end, and which are tried again.

use std::collections::{BTreeSet, HashMap};

use super::{
    adding::ReferenceScope,
    avoidance::came_back,
    backoff::{pause_us, seed},
    graph::EdgeKind,
    job::{RetryState, TaskJob},
    last_runs::LastRun,
    settling::End,
    values::ValueWithPreview,
};
use crate::{
    core::{Assignee, Happening, Phase, TaskFault},
    fault_code::FaultCode,
    ids::Incarnation,
    tasks::{
        Failure, FailureCause, Gives, MAX_INLINE_BYTES, OnFailure, Outcome, Preview, Spawned, TaskEnd,
        TaskIndex, TaskState, Value,
    },
};

/// Code of a task whose worker was lost too often.
const CRASHED_TOO_OFTEN: FaultCode = FaultCode::new("E052");
/// Times that its worker may be stopped cleanly while a task runs. Whoever upgrades a cluster worker by
/// worker stops a task seldom more than twice (each time it may go to any of those that are left); what makes
/// a container reach its memory limit does so every time.
const MOST_STOPS: u16 = 20;
/// Code of a task that added tasks which cannot be added.
const BAD_CHILDREN: FaultCode = FaultCode::new("E053");
/// Code of a value that should have been a blob.
const TOO_LARGE_INLINE: FaultCode = FaultCode::new("E055");
/// How much a new observation counts in the mean run time.
const MEAN_WEIGHT: f32 = 0.1;

/// What a worker had that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// One task.
    Alone,
    /// Several, maybe of several jobs.
    BesideOthers,
    /// What it had begun: it was stopped cleanly. None of its tasks is to blame, unless it is so again and
    /// again.
    Stopped,
    /// Whatever it had: it was sent away, such as by a training that it cannot serve, and none of its tasks
    /// is to blame.
    Dismissed,
}

/// Whether a value should have been a blob.
pub(super) fn exceeds_inline_limit(value: &Value) -> bool {
    value.inline_bytes() > MAX_INLINE_BYTES
}

impl TaskJob {
    /// Takes the report of one attempt. One that is not leased to this worker any more changes nothing.
    pub(super) fn attempt_ended(&mut self, worker: Incarnation, end: TaskEnd, now_us: u64) {
        let task = end.task.0;
        if task >= self.graph.len() {
            return;
        }
        let slot = *self.graph.slot(task);
        let current = self.is_running() && slot.state == TaskState::Leased && slot.attempts == end.attempt;
        if !current || !self.unlease(worker, task) {
            self.release_late_value(task, &end);
            return self.note_unknown_attempt(task, end.attempt);
        }
        self.settle_attempt(worker, end, now_us);
        self.end_if_due(now_us);
    }

    /// What comes of an attempt that the worker had.
    fn settle_attempt(&mut self, worker: Incarnation, end: TaskEnd, now_us: u64) {
        let task = end.task.0;
        let slot = *self.graph.slot(task);
        if slot.unmet > 0 {
            // Redis lost the end of what it needs, which the worker had: that runs again, and then this.
            return self.wait_again(task);
        }
        if matches!(end.outcome, Outcome::NotBegun | Outcome::GivenBack) {
            return self.never_began(task, now_us);
        }
        self.last_runs.note(task, LastRun { worker, run_us: end.run_us, ended_us: now_us });
        // One whose arguments are lost has not run, and a machine that fails all at once says nothing of how
        // long they run.
        if !matches!(end.outcome, Outcome::ArgumentsLost(_)) && !came_back(&end.outcome) {
            let mean = &mut self.class_mut(slot.class).mean_run_us;
            let run_us = end.run_us as f32;
            *mean = Some(mean.map_or(run_us, |mean| mean + MEAN_WEIGHT * (run_us - mean)));
        }
        if self.is_canceling() {
            return self.attempt_stopped(task, end);
        }
        if self.is_task_canceling(task) {
            if !matches!(end.outcome, Outcome::Value(_) | Outcome::Skipped) {
                self.release_unused(end.outcome.value(), end.outcome.added());
                return self.end_canceled(task, now_us);
            }
            self.forget_canceling(task);
        }
        if let Some(value) = end.outcome.value().filter(|value| exceeds_inline_limit(value)) {
            let bytes = value.inline_bytes();
            let reason = format!(
                "its worker sent {bytes} bytes of a value inline, at most {MAX_INLINE_BYTES} travel so"
            );
            let code = TOO_LARGE_INLINE;
            return self.fail(task, Failure { cause: FailureCause::Worker, code, reason }, now_us);
        }
        let (by, preview) = (Assignee::Worker(worker), end.preview);
        match end.outcome {
            Outcome::Value(value) => {
                self.record_done(task, &by, now_us);
                self.complete_task(task, ValueWithPreview { value, preview });
            }
            Outcome::Skipped => {
                // What waits for it on its worker was dropped there, whatever it waits for.
                self.give_back_followers(task);
                self.settle(task, End::Nothing(TaskState::Skipped));
            }
            Outcome::Failed(failure) => self.attempt_failed(task, &by, failure, now_us),
            Outcome::FailedForGood(failure) => {
                self.record_failed(task, &by, &failure, now_us);
                self.fail(task, failure, now_us);
            }
            // Nobody has told it to: what it was told of was not meant for this job.
            Outcome::Stopped => self.crashed(task, worker, Loss::Alone, now_us),
            Outcome::NotBegun | Outcome::GivenBack => self.never_began(task, now_us),
            Outcome::Spawned(spawned) => self.spawned(task, &by, *spawned, preview, now_us),
            Outcome::ArgumentsLost(lost) => self.arguments_lost(task, &by, *lost, now_us),
        }
    }

    /// Redis may have lost that a task was given out: the next attempt has another number than one that a
    /// worker has ended.
    pub(super) fn note_unknown_attempt(&mut self, task: u32, attempt: u16) {
        if task >= self.graph.len() || !self.is_running() {
            return;
        }
        let slot = self.graph.slot_mut(task);
        let rests = matches!(slot.state, TaskState::Waiting | TaskState::Ready | TaskState::Backoff);
        if attempt > slot.attempts && rests {
            slot.attempts = attempt;
            self.note_attempts(task);
        }
    }

    /// Who has which attempts.
    pub(super) fn leased_attempts(&self) -> BTreeSet<(Incarnation, u32, u16)> {
        let leases = self.leases.iter().flat_map(|(worker, tasks)| tasks.iter().map(|task| (*worker, *task)));
        leases.map(|(worker, task)| (worker, task, self.graph.slot(task).attempts)).collect()
    }

    /// Whether a worker had the attempt when the job was loaded.
    pub(super) fn was_loaded(&self, worker: Incarnation, end: &TaskEnd) -> bool {
        self.loaded.contains(&(worker, end.task.0, end.attempt))
    }

    /// A worker is gone: what it had is tried again elsewhere.
    pub(super) fn worker_gone(&mut self, worker: Incarnation, loss: Loss, now_us: u64) {
        self.workers.remove(&worker);
        self.changes.workers.insert(worker);
        let Some(tasks) = self.leases.remove(&worker) else { return };
        self.changes.leases.insert(worker);
        self.tell(Happening::WorkerGone { worker, tasks: tasks.len() }, now_us);
        for task in tasks {
            if !self.is_running() {
                return;
            }
            match self.graph.state(task) {
                TaskState::Leased if self.is_canceling() => self.cancel_task(task),
                TaskState::Leased if self.is_task_canceling(task) => self.end_canceled(task, now_us),
                TaskState::Leased if self.graph.slot(task).unmet > 0 => self.wait_again(task),
                TaskState::Leased => match loss {
                    Loss::Stopped => self.stopped_cleanly(task, worker, now_us),
                    Loss::Dismissed => self.lost_without_blame(task, worker, now_us),
                    Loss::Alone | Loss::BesideOthers => self.crashed(task, worker, loss, now_us),
                },
                // It went with one that it needs.
                _ => {}
            }
        }
        self.end_if_due(now_us);
    }

    /// How many of the tasks that a worker has may run there.
    pub(super) fn could_have_begun(&self, worker: Incarnation) -> usize {
        let leased = self.leases.get(&worker).into_iter().flatten();
        leased.filter(|task| self.graph.slot(**task).unmet == 0).count()
    }

    /// Ends the lease of a task; `false` if the worker has none.
    pub(super) fn unlease(&mut self, worker: Incarnation, task: u32) -> bool {
        let held = self.leases.get_mut(&worker).is_some_and(|tasks| tasks.remove(&task));
        if held {
            self.changes.leases.insert(worker);
            self.outbox.freed.push((worker, self.graph.slot(task).class));
        }
        held
    }

    /// Who has a leased task. Cost O(workers that have leases).
    pub(super) fn holder(&self, task: u32) -> Option<Incarnation> {
        self.leases.iter().find(|(_, tasks)| tasks.contains(&task)).map(|(worker, _)| *worker)
    }

    /// Who has each leased task, for those who ask about many. Cost O(leased tasks).
    pub(super) fn holders(&self) -> HashMap<u32, Incarnation> {
        let leases = self.leases.iter();
        leases.flat_map(|(worker, tasks)| tasks.iter().map(|task| (*task, *worker))).collect()
    }

    /// A task that was leased ahead goes back: what it waits for did not come where it is.
    fn give_back(&mut self, task: u32) {
        // It may have gone with one that was given back before it.
        if self.graph.state(task) != TaskState::Leased {
            return;
        }
        self.recall(task);
        self.wait_again(task);
    }

    /// Takes a leased task from whoever has it.
    pub(super) fn recall(&mut self, task: u32) {
        if let Some(worker) = self.holder(task) {
            self.recall_from(worker, task);
        }
    }

    /// Takes a task from the worker that it is leased to.
    pub(super) fn recall_from(&mut self, worker: Incarnation, task: u32) {
        self.unlease(worker, task);
        self.outbox.recalled.push((worker, self.current_attempt(task)));
    }

    fn wait_again(&mut self, task: u32) {
        self.note_attempts(task);
        self.give_back_followers(task);
        self.put_back(task);
    }

    pub(super) fn give_back_followers(&mut self, task: u32) {
        // What is leased and follows one that is made again does not wait for it there.
        if self.is_made_again(task) {
            return;
        }
        let ahead: Vec<u32> = self
            .graph
            .followers(task)
            .filter(|(f, kind)| *kind != EdgeKind::Continue && self.graph.state(*f) == TaskState::Leased)
            .map(|(f, _)| f)
            .collect();
        ahead.into_iter().for_each(|follower| self.give_back(follower));
    }

    /// Keeps the number of attempts of a task that is not leased: the next one must have another.
    pub(super) fn note_attempts(&mut self, task: u32) -> &mut RetryState {
        let faults = self.faults.entry(task).or_default();
        faults.attempts = self.graph.slot(task).attempts;
        self.changes.faults.insert(task);
        faults
    }

    fn crashed(&mut self, task: u32, worker: Incarnation, loss: Loss, now_us: u64) {
        let budget = self.class_of(task).class.rules.crashes;
        let faults = self.note_attempts(task);
        let (was_alone, before) = (faults.alone, faults.crashes);
        // Any of them may have ended the worker: where nothing else is there, it shows whether it was this
        // one.
        if loss == Loss::BesideOthers && !was_alone && budget > 0 && faults.crashes >= budget {
            faults.alone = true;
            faults.crashes = budget - 1;
        }
        let alone = if was_alone { ", where no other task was" } else { "" };
        // Once is bad luck.
        let again = match before {
            0 => "",
            1 => {
                ", as was the one that had it before: it may end the process that runs it, whose log says how"
            }
            _ => {
                ", as were those that had it before: it may end the process that runs it, whose log says how"
            }
        };
        let reason = format!("its worker {worker} was lost{alone}{again}");
        let code = CRASHED_TOO_OFTEN;
        let failure = Failure { cause: FailureCause::Worker, code, reason };
        self.attempt_failed(task, &Assignee::Worker(worker), failure, now_us);
    }

    /// A worker was stopped while a task ran there: that is no crash, but the task may be why, where it
    /// happens again and again.
    fn stopped_cleanly(&mut self, task: u32, worker: Incarnation, now_us: u64) {
        let faults = self.note_attempts(task);
        faults.stops = faults.stops.saturating_add(1);
        if faults.stops <= MOST_STOPS {
            return self.lost_without_blame(task, worker, now_us);
        }
        let stops = faults.stops;
        let reason = format!(
            "its worker {worker} was stopped while it ran, as happened {stops} times in all: if machines stop workers for want of memory, \
             say with `memory` how much it takes"
        );
        let failure = Failure { cause: FailureCause::Worker, code: CRASHED_TOO_OFTEN, reason };
        self.record_failed(task, &Assignee::Worker(worker), &failure, now_us);
        self.fail(task, failure, now_us);
    }

    /// A task that may have begun is gone with a worker that it has not ended: that does not count, and it is
    /// tried again unless it must not begin twice.
    fn lost_without_blame(&mut self, task: u32, worker: Incarnation, now_us: u64) {
        if self.class_of(task).class.rules.crashes > 0 {
            return self.never_began(task, now_us);
        }
        let reason = format!(
            "its worker {worker} was stopped or sent away and may have begun it, and without `crash_retries` it is not begun again"
        );
        let failure = Failure { cause: FailureCause::Worker, code: CRASHED_TOO_OFTEN, reason };
        self.attempt_failed(task, &Assignee::Worker(worker), failure, now_us);
    }

    /// An attempt failed: the task is tried again while its budget lasts.
    pub(super) fn attempt_failed(&mut self, task: u32, by: &Assignee, failure: Failure, now_us: u64) {
        self.give_back_followers(task);
        self.record_failed(task, by, &failure, now_us);
        let rules = &self.class_of(task).class.rules;
        let (backoff, crashes, errors) = (rules.backoff, rules.crashes, rules.errors);
        let nonce = self.state.nonce;
        let faults = self.note_attempts(task);
        let (count, budget) = match failure.cause {
            FailureCause::Worker => (&mut faults.crashes, crashes),
            FailureCause::Function => (&mut faults.errors, errors),
        };
        *count = count.saturating_add(1);
        let (count, attempts) = (*count, faults.attempts);
        faults.last = Some(failure.clone());
        // The next attempt could not be told from this one.
        if count <= budget && attempts < u16::MAX {
            let until_us = now_us + pause_us(backoff, count, seed(nonce, task, attempts));
            faults.backoff_until_us = Some(until_us);
            faults.wait_for_others_from(until_us);
            self.graph.set_state(task, TaskState::Backoff);
            self.graph.slot_mut(task).unmet = self.open_inputs(task);
            self.postponed.insert((until_us, task));
            return;
        }
        self.fail(task, failure, now_us);
    }

    /// A task fails for good.
    pub(super) fn fail(&mut self, task: u32, failure: Failure, now_us: u64) {
        self.give_back_followers(task);
        let ends_job = self.class_of(task).class.rules.on_failure == OnFailure::FailJob && !self.catch(task);
        self.note_attempts(task).last = Some(failure.clone());
        self.settle(task, End::Nothing(TaskState::Failed));
        let Failure { code, reason, .. } = failure;
        let fault = TaskFault { code, reason };
        self.tell(Happening::TaskFailed { task: self.display(task), fault }, now_us);
        if ends_job {
            self.end_with(task, now_us);
        }
    }

    /// The job fails, because a task has.
    pub(super) fn end_with(&mut self, failed: u32, now_us: u64) {
        let Some(RetryState { attempts, last: Some(failure), .. }) = self.faults.get(&failed) else { return };
        let times = if *attempts > 1 { format!(" (attempt {attempts})") } else { String::new() };
        let reason = format!("task {}{times}: {}", self.display(failed), failure.reason);
        self.end(Phase::Failed { code: failure.code, reason }, now_us);
    }

    /// A task has ended, and adds tasks.
    fn spawned(&mut self, task: u32, by: &Assignee, spawned: Spawned, preview: Option<Preview>, now_us: u64) {
        let Spawned { classes, mut tasks, gives } = spawned;
        if gives.value().is_some() && self.is_made_again(task) {
            // It runs again for its value alone: what it adds was added when it was done for the first time.
            self.release_unused(None, &tasks);
            tasks.clear();
        }
        let continues = match &gives {
            Gives::Value(_) => None,
            Gives::New(child) => Some((task, *child)),
        };
        let checked = self.intern(&classes).and_then(|classes| {
            if continues.is_some_and(|(_, child)| child as usize >= tasks.len()) {
                return Err(super::InvalidGraph::Reference { task: TaskIndex(task) });
            }
            self.check(&tasks, &classes, ReferenceScope::EachOther, continues)
        });
        let records = match checked {
            Ok(records) => records,
            Err(invalid) => {
                self.release_unused(gives.value(), &tasks);
                let reason = format!("the tasks that it adds are refused: {invalid}");
                let failure = Failure { cause: FailureCause::Function, code: BAD_CHILDREN, reason };
                return self.attempt_failed(task, by, failure, now_us);
            }
        };
        match gives {
            Gives::Value(value) => {
                self.record_done(task, by, now_us);
                self.complete_task(task, ValueWithPreview { value, preview });
            }
            Gives::New(_) => {
                self.give_back_followers(task);
                self.graph.set_state(task, TaskState::Continued);
            }
        }
        self.add(&records);
    }

    /// A task in words: its index, and its name if it has one.
    pub(super) fn display(&self, task: u32) -> String {
        let name = self.graph.slot(task).is_named().then(|| self.graph.record(task).name).flatten();
        name.map_or_else(|| task.to_string(), |name| format!("{task} `{name}`"))
    }
}
