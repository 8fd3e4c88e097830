//! Tasks as people look at them, each with the sentence why it is where it is.

use std::{collections::BTreeMap, iter::successors};

use super::TaskJob;
use crate::{
    core::{Core, Phase},
    fault_code::FaultCode,
    ids::{Incarnation, JobId, Name},
    tasks::{
        ClassIndex, Failure, RunningCall, TaskClass, TaskFailure, TaskIndex, TaskQuery, TaskState, TaskView,
        Value, Work,
    },
};

/// Inputs that a view lists.
const INPUTS_SHOWN: usize = 64;
/// Names of tasks that are listed in one sentence.
pub(super) const NAMED_IN_A_SENTENCE: usize = 5;
/// Skipped tasks that are gone through for the one that failed.
const SKIPPED_FOLLOWED: usize = 256;

/// Why nobody has begun a ready task, by class: all of a class wait for the same, and there may be many.
type ReadyReasons = BTreeMap<ClassIndex, String>;

/// A task that people look at, and the worker that has it.
#[derive(Clone, Copy)]
struct Shown {
    task: TaskIndex,
    holder: Option<Incarnation>,
}

impl Core {
    /// The tasks that a query asks for; `None` if there is no such job.
    pub fn task_views(&self, job: &JobId, query: &TaskQuery, now_us: u64) -> Option<Vec<TaskView>> {
        let job = self.task_jobs.get(job)?;
        let mut reasons = ReadyReasons::default();
        let mut view =
            |task, holder| self.view(job, Shown { task: TaskIndex(task), holder }, now_us, &mut reasons);
        if let Some(name) = &query.name {
            let named = job.graph.task_named(name);
            return Some(named.map(|task| view(task, job.holder(task))).into_iter().collect());
        }
        let holders = job.holders();
        let wanted = |task: &u32| query.state.is_none_or(|state| job.graph.state(*task) == state);
        let tasks = (query.first.0..job.graph.len()).filter(wanted).take(query.limit as usize);
        Some(tasks.map(|task| view(task, holders.get(&task).copied())).collect())
    }

    /// Adds to views of tasks that a worker has, in the order of the tasks, since when they run and how far
    /// they are: what it has told of its calls at `told_ms`. Cost O(calls log views).
    pub fn add_running(
        &self,
        job: &JobId,
        views: &mut [TaskView],
        (worker, told_ms, calls): (Incarnation, u64, &[RunningCall]),
        now_ms: u64,
    ) {
        let Some(job) = self.task_jobs.get(job) else { return };
        let Some(leased) = job.leases.get(&worker) else { return };
        let is_had = |call: &&RunningCall| job.is_of(&call.submission) && leased.contains(&call.task.0);
        for call in calls.iter().filter(is_had) {
            let Ok(at) = views.binary_search_by_key(&call.task, |view| view.task) else { continue };
            let view = &mut views[at];
            if view.attempts == call.attempt {
                let since_ms = told_ms.saturating_sub(call.running_ms);
                view.running_since_ms = Some(since_ms);
                view.progress = call.progress.clone();
                view.reason += &format!("; it has run for {} s", now_ms.saturating_sub(since_ms) / 1_000);
                view.reason.extend(call.progress.iter().map(|progress| format!(": {progress}")));
            }
        }
    }

    /// Adds to views of tasks that workers have what else is still at work there: functions that were told to
    /// stop and have not returned, whose slots no lease counts. `stopping`: how many, and what some are
    /// called, of a worker.
    pub fn add_stopping<'a>(
        &self,
        job: &JobId,
        views: &mut [TaskView],
        stopping: impl Fn(Incarnation) -> Option<(u32, &'a [Name])>,
    ) {
        let Some(job) = self.task_jobs.get(job) else { return };
        for (worker, leased) in &job.leases {
            let Some((count @ 1.., names)) = stopping(*worker) else { continue };
            for view in views.iter_mut().filter(|view| leased.contains(&view.task.0)) {
                view.reason += &still_at_work(count, names);
            }
        }
    }

    /// What a task gave, `None` within while it has not ended; `None` if there is no such job or task.
    pub fn task_value(&self, job: &JobId, task: TaskIndex) -> Option<Option<Value>> {
        let job = self.task_jobs.get(job)?;
        let there = task.0 < job.graph.len();
        there.then(|| (job.graph.state(task.0) == TaskState::Done).then(|| job.values.get(task.0)))
    }

    /// The same of the first of several tasks, in their order: at most `most` values, and no further one than
    /// that which goes beyond `most_bytes`. `None` if there is no such job, or not all of these tasks are there.
    pub fn task_values(
        &self,
        job: &JobId,
        tasks: &[TaskIndex],
        most: usize,
        most_bytes: usize,
    ) -> Option<Vec<Option<Value>>> {
        let mut bytes = 0;
        let has_room = |value: &Option<Option<Value>>| {
            let had_room = bytes < most_bytes;
            bytes += value.iter().flatten().map(Value::inline_bytes).sum::<usize>();
            had_room
        };
        let values = tasks.iter().take(most).map(|task| self.task_value(job, *task));
        values.take_while(has_room).collect()
    }

    /// Which of these tasks are over; `None` if there is no such job, or not all of these tasks are there.
    pub fn ended_tasks(&self, job: &JobId, tasks: &[TaskIndex]) -> Option<Vec<TaskIndex>> {
        let graph = &self.task_jobs.get(job)?.graph;
        let there = tasks.iter().all(|task| task.0 < graph.len());
        there.then(|| tasks.iter().copied().filter(|task| graph.state(task.0).is_final()).collect())
    }

    fn view(&self, job: &TaskJob, shown: Shown, now_us: u64, reasons: &mut ReadyReasons) -> TaskView {
        let Shown { task: TaskIndex(task), holder } = shown;
        let slot = job.graph.slot(task);
        let record = job.graph.record(task);
        let work = &job.class(slot.class).class.work;
        let given = job.values.kept(task);
        let last_run = job.last_runs.of(task);
        let worker = holder.or(last_run.map(|run| run.worker));
        let inputs = || record.inputs().map(TaskIndex);
        TaskView {
            task: TaskIndex(task),
            name: record.name.clone(),
            function: work.name().parse().expect("the name of a function, or `train`"),
            state: slot.state,
            attempts: slot.attempts,
            worker: worker.map(|worker| self.worker_name(worker)),
            running_since_ms: None,
            progress: None,
            run_us: last_run.map(|run| run.run_us),
            ended_ms: last_run.map(|run| run.ended_us / 1000),
            inputs: inputs().take(INPUTS_SHOWN).collect(),
            inputs_total: inputs().count() as u32,
            value: given.and_then(|given| given.preview.clone()),
            value_bytes: given.map(|given| given.value.bytes()),
            code: job.why_no_value(task),
            reason: self.reason(job, shown, now_us, reasons),
        }
    }

    pub(super) fn worker_name(&self, worker: Incarnation) -> String {
        match self.workers.get(&worker).map(|about| about.name.as_str()) {
            None | Some("") => worker.to_string(),
            Some(name) => format!("{name} ({worker})"),
        }
    }

    fn reason(&self, job: &TaskJob, shown: Shown, now_us: u64, reasons: &mut ReadyReasons) -> String {
        let task = shown.task.0;
        let faults = job.faults.get(&task);
        let last = || job.failure(task).map(in_words).unwrap_or_default();
        match job.graph.state(task) {
            TaskState::Waiting if job.state.phase == Phase::Queued => {
                "the rest of the graph has not come".into()
            }
            TaskState::Waiting => format!("it waits for {}", self.unmet(job, task)),
            TaskState::Ready if job.state.paused => "the job is paused".into(),
            TaskState::Ready | TaskState::Training => {
                let queued_until_us = faults.and_then(|faults| faults.queued_until_us);
                let left_s =
                    queued_until_us.map(|until_us| until_us.saturating_sub(job.led_us(now_us)) as f64 / 1e6);
                let left_s = left_s.filter(|_| self.waits_for_a_worker(job, task));
                let fails = left_s.map(|left_s| format!("; it fails in {left_s:.1} s if nobody begins it"));
                let lost = match faults.map_or((false, 0), |faults| (faults.alone, faults.crashes)) {
                    (true, _) => {
                        "; it is to be the only task of a worker, because its worker was lost with others again and again".to_owned()
                    }
                    (false, 0) => String::new(),
                    // Who comes last for it says why.
                    (false, _) if !job.avoided(task).is_empty() => String::new(),
                    (false, 1) => "; an attempt before ended with its worker, or failed by its machine".to_owned(),
                    (false, crashes) => {
                        format!("; {crashes} attempts before ended with their workers, or failed by their machines")
                    }
                };
                let why = match job.graph.state(task) {
                    TaskState::Ready if job.avoided(task).is_empty() => {
                        let why = || self.why_not_held(job, task, now_us);
                        reasons.entry(job.graph.slot(task).class).or_insert_with(why).clone()
                    }
                    _ => self.why_not_held(job, task, now_us),
                };
                why + &lost + &fails.unwrap_or_default()
            }
            TaskState::Backoff => {
                let until_us = faults.and_then(|faults| faults.backoff_until_us).unwrap_or_default();
                let pause_s = until_us.saturating_sub(now_us) as f64 / 1e6;
                format!("its next attempt is in {pause_s:.1} s, because the last one failed: {}", last())
            }
            TaskState::Leased => self.why_leased(job, shown, now_us),
            TaskState::Continued => match job.continued.get(&task) {
                Some(&child) => format!(
                    "it gives what task {} gives, which is {}",
                    job.display(child),
                    job.graph.state(child)
                ),
                None => "it gives what another task gives".into(),
            },
            TaskState::Done => match job.class_of(task).class.work {
                Work::Call(_) => match job.graph.continued_by(task) {
                    Some(child) => format!("it is done, and gives what task {} gave", job.display(child)),
                    None => "it is done".into(),
                },
                Work::Train(_) => format!("job {} has trained for it", job.training_of(task)),
            },
            TaskState::Failed => format!("it failed: {}", last()),
            TaskState::Skipped => job.why_skipped(task),
            // Some are over before their job is.
            TaskState::Canceled if job.is_canceling() => Phase::Canceled.cut_short(&job.state.cancel_reason),
            TaskState::Canceled => job.state.phase.cut_short(&job.state.cancel_reason),
        }
    }

    /// Who has a task that is leased, and what it does there.
    fn why_leased(
        &self,
        job: &TaskJob,
        Shown { task: TaskIndex(task), holder }: Shown,
        now_us: u64,
    ) -> String {
        let holder = holder.map(|worker| self.worker_name(worker)).unwrap_or_default();
        if let Some(until_us) = job.state.canceling_until_us {
            let left_s = until_us.saturating_sub(now_us) as f64 / 1e6;
            return format!(
                "{holder} was told to stop it, because the job is canceled; it is given up in {left_s:.1} s"
            );
        }
        let faults = job.faults.get(&task);
        if let Some(until_us) = faults.and_then(|faults| faults.canceling_until_us) {
            let left_s = until_us.saturating_sub(now_us) as f64 / 1e6;
            let why = job.failure(task).map(|failure| failure.reason.as_str()).unwrap_or_default();
            return format!("{holder} was told to stop it, because {why}; it is given up in {left_s:.1} s");
        }
        match job.graph.slot(task).unmet {
            0 => format!("{holder} has it"),
            _ => format!("{holder} has it, and waits there for {}", self.unmet(job, task)),
        }
    }

    /// Why no worker has begun a task that could begin, or how it trains, in words.
    pub(super) fn why_not_held(&self, job: &TaskJob, task: u32, now_us: u64) -> String {
        match &job.class_of(task).class {
            TaskClass { work: Work::Call(function), rules } => {
                let comes_last = |worker| self.fleet.comes_last(job, task, worker);
                self.why_not_given(function, &rules.needs, comes_last, now_us)
            }
            TaskClass { work: Work::Train(_), .. } if job.graph.state(task) == TaskState::Ready => {
                job.why_not_begun()
            }
            TaskClass { work: Work::Train(_), .. } => self.how_it_trains(job, task),
        }
    }

    /// The inputs that have not ended, in words.
    fn unmet(&self, job: &TaskJob, task: u32) -> String {
        let record = job.graph.record(task);
        let inputs = record.inputs();
        let open: Vec<u32> = inputs.filter(|input| !job.graph.state(*input).is_final()).collect();
        let named = open.iter().take(NAMED_IN_A_SENTENCE);
        let named: Vec<String> = named
            .map(|input| format!("task {}, which is {}", job.display(*input), job.graph.state(*input)))
            .collect();
        match open.len().saturating_sub(NAMED_IN_A_SENTENCE) {
            0 => named.join("; "),
            more => format!("{}; and {more} more", named.join("; ")),
        }
    }
}

impl TaskJob {
    /// A task whose value this one needs, or gives, and which has none.
    pub(super) fn nothing_given(&self, task: u32) -> Option<u32> {
        if let Some(child) = self.continued.get(&task) {
            return Some(*child);
        }
        let record = self.graph.record(task);
        let gives_nothing =
            |input: &u32| matches!(self.graph.state(*input), TaskState::Failed | TaskState::Skipped);
        record.values_of().find(gives_nothing)
    }

    /// What a skipped task lacks, and if that was skipped as well, what that lacks, and so on for some tasks.
    fn lacking(&self, task: u32) -> Vec<u32> {
        let lacks = |task: &u32| self.nothing_given(*task);
        successors(lacks(&task), lacks).take(SKIPPED_FOLLOWED).collect()
    }

    /// The last failure of a task.
    fn failure(&self, task: u32) -> Option<&Failure> {
        self.faults.get(&task)?.last.as_ref()
    }

    /// Code of what keeps a task from giving a value, if that is a failure.
    fn why_no_value(&self, task: u32) -> Option<FaultCode> {
        match self.graph.state(task) {
            TaskState::Backoff | TaskState::Failed => Some(self.failure(task)?.code),
            TaskState::Skipped => Some(self.failure(*self.lacking(task).last()?)?.code),
            TaskState::Canceled => self.state.phase.why_ended("").0,
            _ => None,
        }
    }

    /// What is told of a task that gave nothing to one that takes its outcome.
    pub(super) fn task_failure(&self, task: u32) -> TaskFailure {
        let failed = self.lacking(task).last().copied().unwrap_or(task);
        let code = self.why_no_value(task);
        let reason = match self.graph.state(task) {
            TaskState::Skipped => self.why_skipped(task),
            _ => self.failure(task).map(|failure| failure.reason.clone()).unwrap_or_default(),
        };
        let reason = code.map_or(&*reason, |code| code.stripped_from(&reason)).to_owned();
        let attempts = self.faults.get(&failed).map_or(0, |faults| faults.attempts);
        TaskFailure { code, reason, attempts }
    }

    /// What a skipped task lacks, in words.
    fn why_skipped(&self, task: u32) -> String {
        let chain = self.lacking(task);
        let (Some(&first), Some(&last)) = (chain.first(), chain.last()) else {
            return "it had nothing to give".into();
        };
        let name = self.display(first);
        let lacks = match self.continued.contains_key(&task) {
            true => format!("it gives what task {name} gives"),
            false => format!("it needs task {name}"),
        };
        let mut why = format!("{lacks}, which is {}", self.graph.state(first));
        if last != first {
            why += &format!(", because task {} is {}", self.display(last), self.graph.state(last));
        }
        why + &self.failure(last).map(|failure| format!(": {}", in_words(failure))).unwrap_or_default()
    }
}

fn still_at_work(count: u32, names: &[Name]) -> String {
    let names = names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    let what = match count {
        1 => format!("1 function there ({names}) that was told to stop has"),
        _ => format!("{count} functions there ({names}) that were told to stop have"),
    };
    format!("; {what} not returned, and may keep it from a slot")
}

fn in_words(Failure { code, reason, .. }: &Failure) -> String {
    code.in_front_of(reason).into_owned()
}
