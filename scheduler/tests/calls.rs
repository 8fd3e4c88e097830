//! Calls of a model: what they do, and workers that run them, a step at a time.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use syncline_scheduler::{
    fault_code::FaultCode,
    ids::{ContentDigest, JobId, SubmissionId},
    sim::{new_task, task_end},
    tasks::{
        Arg, Attempt, Attempts, Backoff, BlobValue, Bytes, Capacity, Failure, FailureCause, FunctionId,
        Gives, LostValues, NewTask, OnFailure, OneArg, Order, OrderArg, OrderGroup, Outcome, ReportGroup,
        Rules, Spawned, TaskClass, TaskEnd, TaskIndex, TaskOrder, TaskRef, Value, Work,
    },
};

/// What a task of the model does; its first argument says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Gives one more than the sum of what it takes.
    Sum,
    /// The same, after so many failed attempts.
    Flaky(u8),
    /// Adds so many tasks of one less, and gives what their sum gives.
    Spawn(u8),
    Skip,
    Broken,
}

impl Kind {
    pub fn bytes(self) -> Bytes {
        match self {
            Self::Sum => vec![0, 0],
            Self::Flaky(n) => vec![1, n],
            Self::Spawn(n) => vec![2, n],
            Self::Skip => vec![3, 0],
            Self::Broken => vec![4, 0],
        }
        .into()
    }

    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0, _] => Self::Sum,
            [1, n] => Self::Flaky(*n),
            [2, n] => Self::Spawn(*n),
            [3, _] => Self::Skip,
            _ => Self::Broken,
        }
    }

    /// What it gives where it takes `sum` in all.
    pub fn value(self, sum: u64) -> Option<u64> {
        match self {
            Self::Sum | Self::Flaky(_) => Some(sum + 1),
            Self::Spawn(n) => Some(spawned_value(n)),
            Self::Skip | Self::Broken => None,
        }
    }
}

fn spawned_value(n: u8) -> u64 {
    1 + u64::from(n) * if n <= 1 { 1 } else { spawned_value(n - 1) }
}

/// Attempts that may fail.
pub const ERRORS: u16 = 3;

/// The class of all calls.
pub fn class() -> TaskClass {
    let function = FunctionId { name: "model".parse().unwrap(), signature: 7, types: String::new() };
    let rules = Rules {
        // Deaths are many here, and say nothing against a task.
        crashes: 1_000,
        errors: ERRORS,
        backoff: Backoff { first_ms: 1, longest_ms: 5 },
        // Nothing reaches it; it is kept and read back.
        queue_limit_ms: Some(3_600_000),
        on_failure: OnFailure::SkipDependents,
        ..Rules::default()
    };
    TaskClass { work: Work::Call(function), rules }
}

/// What a worker offers that runs them.
pub fn capacity(slots: u32) -> Capacity {
    let function = class().work.function().unwrap().clone();
    Capacity { slots, functions: [function].into(), ..Capacity::default() }
}

/// A task of a job.
pub type TaskKey = (JobId, u32);

/// Values on the parameter server of the model, by digest.
pub type Blobs = Rc<RefCell<BTreeMap<ContentDigest, u64>>>;

/// What tells a value from all others, as the digest of its blob.
fn digest_of(named: &impl Hash) -> ContentDigest {
    let mut hasher = DefaultHasher::new();
    named.hash(&mut hasher);
    let mut bytes = [0; ContentDigest::BYTES];
    bytes[..8].copy_from_slice(&hasher.finish().to_be_bytes());
    ContentDigest::from_bytes(bytes)
}

/// Runs the calls that it is given, a step at a time.
#[derive(Default)]
pub struct CallWorker {
    /// Where it keeps every second value; all travel without it.
    pub blobs: Option<Blobs>,
    pub inbox: VecDeque<Order>,
    pub held: BTreeMap<TaskKey, (u32, TaskOrder)>,
    /// What it has computed.
    values: BTreeMap<TaskKey, u64>,
    pub reports: VecDeque<(JobId, u32, TaskEnd)>,
    /// How many of the first of these ended under an engine that leads no more, are on their way, and not
    /// called back.
    pub under_another: usize,
}

impl CallWorker {
    /// Another engine leads, and its orders so far tell what this worker has: what it holds besides is over,
    /// and of what has ended besides only that is still heard of which is on its way.
    pub fn engine_changed(&mut self, mut is_on_its_way: impl FnMut() -> bool) {
        self.held.clear();
        let mut named = BTreeSet::new();
        for order in &self.inbox {
            if let Order::Run(OrderGroup { submission, tasks, .. }) = order {
                let job = &submission.job;
                named.extend(tasks.iter().map(|order| (job.clone(), order.task, order.attempt)));
            }
        }
        let key = |(job, _, end): &(JobId, u32, TaskEnd)| (job.clone(), end.task, end.attempt);
        self.reports.retain(|report| named.contains(&key(report)) || is_on_its_way());
        self.under_another = self.reports.len();
        let ended: BTreeSet<_> = self.reports.iter().map(key).collect();
        self.read_orders();
        // What it did already and has not reported is reported, not done again.
        self.held.retain(|(job, _), (_, order)| !ended.contains(&(job.clone(), order.task, order.attempt)));
    }

    pub fn read_orders(&mut self) {
        for order in std::mem::take(&mut self.inbox) {
            match order {
                Order::Run(OrderGroup { submission: SubmissionId { job, nonce }, tasks, .. }) => {
                    // What it did already and has not reported is reported, not done again.
                    let ended = |order: &TaskOrder| {
                        let same = |(of, _, end): &(JobId, u32, TaskEnd)| {
                            (of, end.task, end.attempt) == (&job, order.task, order.attempt)
                        };
                        self.reports.iter().skip(self.under_another).any(same)
                    };
                    let open = tasks.into_iter().filter(|order| !ended(order)).collect::<Vec<_>>();
                    self.held.extend(open.into_iter().map(|o| ((job.clone(), o.task.0), (nonce, o))));
                }
                Order::Recall(recall) => {
                    for Attempt { task, attempt } in recall.tasks {
                        let key = (recall.submission.job.clone(), task.0);
                        if self.held.get(&key).is_some_and(|(_, order)| order.attempt == attempt) {
                            self.held.remove(&key);
                            self.drop_dependents(&key.0, key.1);
                        }
                    }
                }
                Order::GiveBack(asked) => {
                    // Every second one has begun.
                    for asked_back in asked.tasks.iter().filter(|attempt| attempt.task.0 % 2 == 0) {
                        self.give_back(&asked.submission, asked_back);
                    }
                }
                Order::Stop(stop) => {
                    // Every second one has not begun, or checks whether it is to stop; the others go on.
                    let SubmissionId { job, nonce } = stop.submission;
                    for Attempt { task, attempt } in stop.tasks.into_iter().filter(|of| of.task.0 % 2 == 0) {
                        let key = (job.clone(), task.0);
                        if self.held.get(&key).is_some_and(|(_, order)| order.attempt == attempt) {
                            self.held.remove(&key);
                            let end = task_end(task.0, attempt, Outcome::Stopped);
                            self.reports.push_back((job.clone(), nonce, end));
                        }
                    }
                }
            }
        }
    }

    fn give_back(&mut self, SubmissionId { job, nonce }: &SubmissionId, asked: &Attempt) {
        let Attempt { task, attempt } = *asked;
        let key = (job.clone(), task.0);
        if self.held.get(&key).is_some_and(|(_, order)| order.attempt == attempt) {
            self.held.remove(&key);
            self.drop_dependents(job, task.0);
            let end = task_end(task.0, attempt, Outcome::GivenBack);
            self.reports.push_back((job.clone(), *nonce, end));
        }
    }

    /// Whether there is something to read, to run or to report.
    pub fn can_move(&self) -> bool {
        !self.inbox.is_empty() || !self.reports.is_empty() || !self.runnable().is_empty()
    }

    /// All that it has reported or has to, in order.
    pub fn unacknowledged(&self) -> Vec<ReportGroup> {
        let group = |(job, nonce, end): &(JobId, u32, TaskEnd)| ReportGroup {
            submission: SubmissionId { job: job.clone(), nonce: *nonce },
            ended: vec![end.clone()],
        };
        self.reports.iter().map(group).collect()
    }

    /// The engine has these reports.
    pub fn acknowledge(&mut self, groups: &[ReportGroup]) {
        let has = |group: &ReportGroup, job: &JobId, end: &TaskEnd| {
            group.submission.job == *job
                && group.ended.iter().any(|e| (e.task, e.attempt) == (end.task, end.attempt))
        };
        self.reports.retain(|(job, _, end)| !groups.iter().any(|group| has(group, job, end)));
    }

    /// What it has run and not reported.
    pub fn begun(&self) -> Vec<Attempts> {
        let attempts = |(job, nonce, end): &(JobId, u32, TaskEnd)| Attempts {
            submission: SubmissionId { job: job.clone(), nonce: *nonce },
            tasks: vec![Attempt { task: end.task, attempt: end.attempt }],
        };
        self.reports.iter().map(attempts).collect()
    }

    /// The sum of what an argument is; `None` if it waits for a task that is held here.
    fn sum(&self, job: &JobId, arg: &OrderArg) -> Option<u64> {
        let value = |part: &OneArg| match part {
            // What failed counts for a hundred.
            OneArg::Failure(_) => Some(100),
            OneArg::Value(Value::Inline(bytes)) => Some(u64::from_le_bytes(bytes[..].try_into().unwrap())),
            OneArg::Value(Value::Blob(blob)) => {
                self.blobs.as_ref().unwrap().borrow().get(&blob.digest).copied()
            }
            OneArg::Kept(_) => Some(0),
            OneArg::Held(task) => self.values.get(&(job.clone(), task.0)).copied(),
        };
        arg.parts().iter().map(value).sum()
    }

    /// The digests of arguments that are lost.
    fn lost(&self, order: &TaskOrder) -> Vec<ContentDigest> {
        let Some(blobs) = &self.blobs else { return Vec::new() };
        let parts = order.args[1..].iter().flat_map(OrderArg::parts);
        let digest = |part: &OneArg| match part {
            OneArg::Value(Value::Blob(blob)) => Some(blob.digest),
            _ => None,
        };
        parts.filter_map(digest).filter(|digest| !blobs.borrow().contains_key(digest)).collect()
    }

    pub fn runnable(&self) -> Vec<TaskKey> {
        let can = |((job, _), (_, order)): &(&TaskKey, &(u32, TaskOrder))| {
            let is_here = |arg: &OrderArg| self.sum(job, arg).is_some();
            (order.args[1..].iter().all(is_here) || !self.lost(order).is_empty())
                && order.after.iter().all(|task| !self.held.contains_key(&(job.clone(), task.0)))
        };
        self.held.iter().filter(can).map(|(key, _)| key.clone()).collect()
    }

    /// Drops what waits for a task that gives nothing here.
    fn drop_dependents(&mut self, job: &JobId, task: u32) {
        let waits = |order: &TaskOrder| {
            let held = |arg: &OrderArg| arg.parts().contains(&OneArg::Held(TaskIndex(task)));
            order.args.iter().any(held) || order.after.contains(&TaskIndex(task))
        };
        let dropped: Vec<TaskKey> = self
            .held
            .iter()
            .filter(|((of, _), (_, order))| of == job && waits(order))
            .map(|(key, _)| key.clone())
            .collect();
        for key in dropped {
            self.held.remove(&key);
            self.drop_dependents(job, key.1);
        }
    }

    /// Reports an attempt that gives nothing, whatever the task does.
    pub fn end_with(&mut self, key: &TaskKey, outcome: Outcome) {
        let (nonce, order) = self.held.remove(key).unwrap();
        self.drop_dependents(&key.0, key.1);
        self.reports.push_back((key.0.clone(), nonce, task_end(order.task.0, order.attempt, outcome)));
    }

    pub fn run(&mut self, key: &TaskKey) {
        let (nonce, order) = self.held.remove(key).unwrap();
        let OrderArg::One(OneArg::Value(Value::Inline(kind))) = &order.args[0] else {
            panic!("the kind is a value")
        };
        let kind = Kind::of(kind);
        let failure = |cause| Failure { cause, code: FaultCode::new("E999"), reason: "no".into() };
        let failed = |cause| Outcome::Failed(failure(cause));
        if order.args.iter().flat_map(OrderArg::parts).any(|part| matches!(part, OneArg::Kept(_))) {
            // It is made again, and this would have begun with what there was before.
            self.drop_dependents(&key.0, key.1);
            let end = task_end(order.task.0, order.attempt, Outcome::NotBegun);
            return self.reports.push_back((key.0.clone(), nonce, end));
        }
        let digests = self.lost(&order);
        if !digests.is_empty() {
            self.drop_dependents(&key.0, key.1);
            let lost = LostValues { digests, failure: failure(FailureCause::Worker) };
            let outcome = Outcome::ArgumentsLost(Box::new(lost));
            let end = task_end(order.task.0, order.attempt, outcome);
            return self.reports.push_back((key.0.clone(), nonce, end));
        }
        let sum: u64 = order.args[1..].iter().map(|arg| self.sum(&key.0, arg).unwrap()).sum();
        let bytes = |value: u64| match &self.blobs {
            Some(blobs) if value.is_multiple_of(2) => {
                let digest = digest_of(&(key, order.attempt, nonce));
                blobs.borrow_mut().insert(digest, value);
                Value::Blob(BlobValue { digest, bytes: 100_000 })
            }
            _ => Value::Inline(value.to_le_bytes().to_vec().into()),
        };
        let outcome = match kind {
            Kind::Flaky(n) if order.attempt <= u16::from(n) => failed(FailureCause::Function),
            Kind::Sum | Kind::Flaky(_) => {
                self.values.insert(key.clone(), sum + 1);
                Outcome::Value(bytes(sum + 1))
            }
            Kind::Spawn(n) => Outcome::Spawned(Box::new(spawn(n))),
            Kind::Skip => Outcome::Skipped,
            Kind::Broken => failed(FailureCause::Function),
        };
        if !matches!(outcome, Outcome::Value(_)) {
            self.drop_dependents(&key.0, key.1);
        }
        let end = TaskEnd { task: order.task, attempt: order.attempt, run_us: 5, outcome, preview: None };
        self.reports.push_back((key.0.clone(), nonce, end));
    }
}

/// What a task adds that spawns so many.
fn spawn(n: u8) -> Spawned {
    let child = if n <= 1 { Kind::Sum } else { Kind::Spawn(n - 1) };
    let task = |args| NewTask { args, ..new_task(0) };
    let mut tasks: Vec<NewTask> = (0..n).map(|_| task(vec![Arg::Value(child.bytes())])).collect();
    let all = (0..u32::from(n)).map(TaskRef::New).collect();
    tasks.push(task(vec![Arg::Value(Kind::Sum.bytes()), Arg::Outputs(all)]));
    Spawned { classes: vec![class()], tasks, gives: Gives::New(u32::from(n)) }
}
