//! Tasks that train: the core begins a training job for each, and the end of that job is the task's. Both are
//! stored on their own, so that a crash may come between them: what is missing is begun again, and what
//! nobody wants is canceled.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    TaskJob,
    record::Argument,
    trained::{NOT_KEPT, Trained},
    values::ValueWithPreview,
};
use crate::{
    core::{Assignee, Core, Effect, Happening, Job, Phase, panics::Handling, turn::Turn},
    fault_code::FaultCode,
    ids::JobId,
    spec::ValidJob,
    tasks::{Failure, FailureCause, Preview, TaskState, TrainingChanges, Value, Work},
};

/// Code of an attempt whose training has records that cannot be used.
/// Code of a training whose changes cannot be read.
const UNREADABLE: FaultCode = FaultCode::new("E056");
/// Most trainings of one graph that wait for workers; the others are not begun yet.
const MAX_QUEUED: usize = 16;

/// The tasks of one graph that train.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Trainings {
    /// Those that could begin.
    pub ready: BTreeSet<u32>,
    /// Those that have begun, with the jobs that train for them.
    pub open: BTreeMap<u32, JobId>,
}

/// The attempt at a task for which a job trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::core) struct ParentTask {
    pub job: JobId,
    pub nonce: u32,
    pub task: u32,
    pub attempt: u16,
}

impl Core {
    /// Whether what was changed may end a task that trains, or let one begin. What takes too long is found at
    /// a tick.
    pub(in crate::core) fn concerns_trainings_of_graphs(&self) -> bool {
        let may_concern = || !self.changed_tasks.is_empty() || self.jobs.has_touched_one_that_does_not_run();
        self.has_loaded_trainings || !self.with_trainings.is_empty() && may_concern()
    }

    /// Ends the tasks whose trainings are over, and begins those that are ready. Tells whether there are new
    /// jobs.
    pub(in crate::core) fn advance_trainings(&mut self, turn: &mut Turn<'_>) -> bool {
        if std::mem::take(&mut self.has_loaded_trainings) {
            self.cancel_unwanted(turn);
        }
        let mut begun = false;
        for id in self.with_trainings.clone() {
            let _handling = Handling(&id);
            self.take_trained(&id, turn);
            begun |= self.begin_trainings(&id, turn);
            if !self.task_jobs.get(&id).is_some_and(TaskJob::has_trainings) {
                self.with_trainings.remove(&id);
            }
        }
        begun
    }

    /// Cancels trainings that were loaded and that no task waits for: their graph has ended or gone on
    /// without them. One that is set aside may be taken in again.
    fn cancel_unwanted(&mut self, turn: &mut Turn<'_>) {
        let Self { jobs, task_jobs, set_aside, .. } = self;
        for (_, job) in jobs.live_mut().filter(|(_, job)| !job.state.phase.is_over()) {
            let unwanted = job.state.trains_for.as_ref().is_some_and(|of| {
                let graph = task_jobs.get(&of.job).filter(|graph| graph.state.nonce == of.nonce);
                let waits = graph.and_then(|graph| graph.trainings.open.get(&of.task)) == Some(&job.spec.id);
                !waits && !set_aside.contains(&of.job)
            });
            if unwanted {
                job.cancel("no task waits for it".to_owned(), turn);
            }
        }
    }

    /// Notes of each graph whether all its trainings wait, and for what.
    pub(in crate::core) fn note_waiting_trainings(&mut self) {
        let Self { jobs, task_jobs, changed_tasks, .. } = self;
        for (id, graph) in task_jobs {
            let mut waits = None;
            for training in graph.trainings.open.values() {
                let job = jobs.get(training).filter(|job| *job.phase() == Phase::Queued);
                waits = job.map(|job| (training, job.state.waiting_for.as_deref().unwrap_or("its workers")));
                if waits.is_none() {
                    break;
                }
            }
            let waits = waits.map(|(training, what)| format!("{what} (training {training})"));
            if graph.trainings_wait_for != waits {
                graph.trainings_wait_for = waits;
                graph.changes.job_state = true;
                changed_tasks.insert(id.clone());
            }
        }
    }

    fn take_trained(&mut self, id: &JobId, turn: &mut Turn<'_>) {
        let Self { jobs, task_jobs, .. } = self;
        let Some(graph) = task_jobs.get_mut(id) else { return };
        let mut ended = Vec::new();
        for (&task, training) in &graph.trainings.open {
            if let Some(limit_ms) = graph.class_of(task).class.rules.run_limit_ms
                && let Some(job) = jobs.get_mut(training)
            {
                job.end_after(limit_ms, turn);
            }
            let trained = jobs.get(training).and_then(Job::trained);
            ended.extend(trained.map(|trained| (task, trained)));
        }
        if ended.is_empty() {
            return;
        }
        for (task, trained) in ended {
            graph.training_ended(task, trained, turn.now_us);
        }
        self.note(id, turn);
        self.leases_tasks = true;
    }

    fn begin_trainings(&mut self, id: &JobId, turn: &mut Turn<'_>) -> bool {
        let Self { jobs, task_jobs, set_aside, .. } = self;
        let Some(graph) = task_jobs.get_mut(id) else { return false };
        // One that is set aside may be taken in again.
        let is_there = |of: &ParentTask, training: &JobId| {
            set_aside.contains(training)
                || jobs.get(training).is_some_and(|job| job.state.trains_for.as_ref() == Some(of))
        };
        let open = graph.trainings.open.iter();
        let missing = open.filter(|(task, training)| !is_there(&graph.attempt(**task), training));
        let mut to_begin: Vec<u32> = missing.map(|(task, _)| *task).collect();
        let is_queued =
            |training: &&JobId| jobs.get(training).is_some_and(|job| *job.phase() == Phase::Queued);
        let queued = graph.trainings.open.values().filter(is_queued).count() + to_begin.len();
        let room = MAX_QUEUED.saturating_sub(queued);
        to_begin.extend(graph.take_ready_trainings(room));
        for task in &to_begin {
            self.begin_training(id, *task, turn);
        }
        if !to_begin.is_empty() {
            self.note(id, turn);
        }
        !to_begin.is_empty()
    }

    fn begin_training(&mut self, id: &JobId, task: u32, turn: &mut Turn<'_>) {
        let Some(graph) = self.task_jobs.get_mut(id) else { return };
        let of = graph.attempt(task);
        let training = graph.training_of(task);
        match graph.training_job(task, &training) {
            Ok(spec) => {
                let begun =
                    Happening::TrainingBegun { task: graph.display(task), training: training.clone() };
                graph.tell(begun, turn.now_us);
                let mut job = Job::new(spec, of.draw(turn.now_us), self.shards, turn.now_us);
                job.state.trains_for = Some(of);
                // Of an earlier graph of this name, or of this one before Redis lost that it had begun.
                self.set_aside.replace(&training);
                self.make_room_for(&training, turn.effects);
                self.insert_new(job);
            }
            Err(failure) => graph.training_ended(task, Err(failure), turn.now_us),
        }
    }

    /// The records of a training that was begun for a task cannot be used: that attempt has failed.
    pub fn training_damaged(&mut self, training: &JobId, reason: &str, now_us: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        let reason = format!("the records of job {training} cannot be used: {reason}");
        let failure = Failure { cause: FailureCause::Worker, code: FaultCode::RECORDS_UNUSABLE, reason };
        self.fail_training(training, failure, &mut Turn { now_us, effects: &mut effects });
        effects
    }

    /// A training that was begun for a task is about to be deleted. Where the task waits for its weights,
    /// that attempt has failed; it would otherwise begin the same one once more.
    pub(in crate::core) fn training_deleted(&mut self, training: &JobId, turn: &mut Turn<'_>) {
        let reason = format!("job {training} was deleted before its parameters were kept");
        let failure = Failure { cause: FailureCause::Function, code: NOT_KEPT, reason };
        self.fail_training(training, failure, turn);
    }

    /// Somebody has given up a training that was set aside: where a task waits for its weights, that attempt
    /// has failed.
    pub fn training_given_up(&mut self, training: &JobId, now_us: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.training_deleted(training, &mut Turn { now_us, effects: &mut effects });
        effects
    }

    /// Ends the attempt for which a job trains, if a task waits for it.
    fn fail_training(&mut self, training: &JobId, failure: Failure, turn: &mut Turn<'_>) {
        let task_of = |graph: &TaskJob| {
            let mut open = graph.trainings.open.iter();
            open.find_map(|(task, of)| (of == training).then_some(*task))
        };
        let found = self.task_jobs.iter().find_map(|(id, graph)| Some((id.clone(), task_of(graph)?)));
        if let Some((id, task)) = found
            && let Some(graph) = self.task_jobs.get_mut(&id)
        {
            graph.training_ended(task, Err(failure), turn.now_us);
            self.note(&id, turn);
        }
    }

    /// How a task trains, in words.
    pub(super) fn how_it_trains(&self, graph: &TaskJob, task: u32) -> String {
        let Some(training) = graph.trainings.open.get(&task) else { return "it trains".to_owned() };
        let Some(job) = self.jobs.get(training) else { return format!("job {training} is to train for it") };
        let waits = job.state.waiting_for.as_ref().map(|what| format!(", and waits for {what}"));
        format!("job {training} trains for it, which is {}{}", job.phase().shown(), waits.unwrap_or_default())
    }
}

impl fmt::Display for ParentTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} of {}", self.task, self.job)
    }
}

impl ParentTask {
    /// The nonce of the job that begins now: another for each attempt of each submission, and also where the
    /// same attempt begins once more because Redis lost the job. Shards may hold what it had pushed.
    fn draw(&self, now_us: u64) -> u32 {
        (super::backoff::seed(self.nonce, self.task, self.attempt) ^ now_us) as u32
    }
}

impl TaskJob {
    pub(super) fn has_trainings(&self) -> bool {
        !(self.trainings.ready.is_empty() && self.trainings.open.is_empty())
    }

    fn attempt(&self, task: u32) -> ParentTask {
        let attempt = self.graph.slot(task).attempts;
        ParentTask { job: self.id.clone(), nonce: self.state.nonce, task, attempt }
    }

    /// A task trains, as was stored.
    pub(super) fn restore_training(&mut self, task: u32) {
        self.trainings.open.insert(task, self.training_of(task));
    }

    /// The job of a task's last attempt.
    pub(super) fn training_of(&self, task: u32) -> JobId {
        self.id.of_training(task, self.graph.slot(task).attempts)
    }

    /// Takes up to so many tasks that could begin to train: they do.
    fn take_ready_trainings(&mut self, most: usize) -> Vec<u32> {
        if !self.gives_out() {
            return Vec::new();
        }
        let mut begun = Vec::new();
        while begun.len() < most
            && let Some(task) = self.trainings.ready.pop_first()
        {
            if self.graph.state(task) == TaskState::Ready {
                self.begin_attempt(task, TaskState::Training);
                self.restore_training(task);
                begun.push(task);
            }
        }
        begun
    }

    /// The job that trains for a task.
    fn training_job(&self, task: u32, id: &JobId) -> Result<ValidJob, Failure> {
        let failure = |code, reason| Failure { cause: FailureCause::Function, code, reason };
        let Work::Train(prepared) = &self.class_of(task).class.work else {
            return Err(failure(UNREADABLE, "it does not train".to_owned()));
        };
        let value = match self.graph.record(task).arguments.into_iter().next() {
            None => None,
            Some(Argument::Value(bytes)) => Some(Value::Inline(bytes)),
            Some(Argument::Blob(blob)) => Some(Value::Blob(blob)),
            Some(Argument::Output(input)) => Some(self.values.get(input)),
            Some(Argument::Outputs(_) | Argument::Outcome(_) | Argument::Outcomes(_)) => {
                Some(Value::default())
            }
        };
        let changes = value.map_or(Ok(TrainingChanges::new()), decode);
        let changes = changes.map_err(|cause| {
            failure(UNREADABLE, format!("what it changes of the training cannot be read: {cause}"))
        })?;
        prepared.job(id.clone(), &changes).map_err(|invalid| {
            let (code, text) = (invalid.code(), invalid.to_string());
            failure(code, code.stripped_from(&text).to_owned())
        })
    }

    /// The training of a task is over.
    fn training_ended(&mut self, task: u32, trained: Result<Trained, Failure>, now_us: u64) {
        // One that ended at the same moment may have ended the job.
        if !self.is_running() || self.graph.state(task).is_final() {
            return;
        }
        let by = Assignee::Training(self.training_of(task));
        self.trainings.open.remove(&task);
        self.clear_queue_deadline(task);
        let ended = trained.and_then(|trained| {
            let preview = serde_json::to_string(&trained).ok().map(Preview::from);
            let given = |bytes: Vec<u8>| ValueWithPreview { value: Value::Inline(bytes.into()), preview };
            postcard::to_stdvec(&trained).map(given).map_err(|e| Failure {
                cause: FailureCause::Function,
                code: UNREADABLE,
                reason: e.to_string(),
            })
        });
        match ended {
            Ok(given) => {
                self.record_done(task, &by, now_us);
                self.complete_task(task, given);
            }
            Err(failure) => self.attempt_failed(task, &by, failure, now_us),
        }
        self.end_if_due(now_us);
    }

    /// The job is over: nobody wants its trainings any more.
    pub(super) fn end_trainings(&mut self) {
        let Trainings { open, .. } = std::mem::take(&mut self.trainings);
        self.outbox.trainings_ended.extend(open.into_values());
    }

    /// Why a training that could begin has not.
    pub(super) fn why_not_begun(&self) -> String {
        format!("{MAX_QUEUED} trainings of the job wait for workers before it")
    }
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    match value {
        Value::Inline(bytes) => postcard::from_bytes(&bytes).map_err(|e| e.to_string()),
        Value::Blob(blob) => Err(format!("they are {} bytes, far more than any", blob.bytes)),
    }
}
