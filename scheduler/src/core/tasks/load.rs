//! Reads a job of general tasks back as it was committed.

use std::collections::BTreeMap;

use super::{
    TaskJob,
    commit::{Header, parse_ranges},
    graph::Graph,
    job::{ClassState, JobState},
    reconstruction::is_awaited,
    record::TaskRecord,
    values::ValueWithPreview,
};
use crate::{
    core::{StoredJob, Unreadable, recovery::parse},
    ids::Incarnation,
    tasks::{TaskClass, TaskState, WINDOW_TASKS},
};

impl StoredJob {
    /// Whether it is a job of general tasks, for [`TaskJob::load`].
    pub fn holds_tasks(&self) -> bool {
        self.spec.starts_with("{\"graph\"")
    }
}

fn unreadable(what: &'static str, field: &str, cause: impl ToString) -> Unreadable {
    Unreadable { what, field: field.to_owned(), cause: cause.to_string() }
}

/// The fields of a hash by number, in order.
fn by_number<'a, V>(
    what: &'static str,
    fields: &'a BTreeMap<String, V>,
) -> Result<BTreeMap<u32, &'a V>, Unreadable> {
    let number = |(field, value): (&'a String, &'a V)| match field.parse() {
        Ok(number) => Ok((number, value)),
        Err(e) => Err(unreadable(what, field, e)),
    };
    fields.iter().map(number).collect()
}

impl TaskJob {
    /// Reads a job back. Equal to the live one at the moment of its last commit. Cost O(tasks + edges).
    pub fn load(stored: &StoredJob) -> Result<Self, Unreadable> {
        let Header { graph: id } = parse("job", "spec", &stored.spec)?;
        let state: JobState = parse("job", "job_state", &stored.job_state)?;
        let mut job = Self::empty(id, state);
        for (index, text) in by_number("class", &stored.graph.classes)? {
            if index as usize != job.classes.len() {
                return Err(unreadable("class", &job.classes.len().to_string(), "it is missing"));
            }
            let class: TaskClass = parse("class", &index.to_string(), text)?;
            job.classes.push(ClassState::new(class));
        }
        for (task, text) in by_number("fault", &stored.graph.faults)? {
            job.faults.insert(task, parse("fault", &task.to_string(), text)?);
        }
        let (graph, continued) = load_graph(stored, job.classes.len(), |task| job.is_made_again(task))?;
        (job.graph, job.continued) = (graph, continued);
        if let Some((&task, _)) = job.faults.last_key_value() {
            job.check_task("fault", task)?;
        }
        job.load_leases(stored)?;
        job.restore_attempts();
        job.restore_values(stored)?;
        job.changes.stored_tasks = job.graph.len();
        job.changes.stored_classes = job.classes.len();
        job.restore_queue();
        job.restore_canceling();
        for task in 0..job.graph.len() {
            match job.graph.state(task) {
                TaskState::Ready => job.offer(task),
                TaskState::Training if job.class_of(task).class.work.function().is_none() => {
                    job.restore_training(task);
                }
                TaskState::Training => {
                    return Err(unreadable("window", &task.to_string(), "its task does not train"));
                }
                TaskState::Backoff => {
                    let until_us = job.faults.get(&task).and_then(|faults| faults.backoff_until_us);
                    let until_us =
                        until_us.ok_or_else(|| unreadable("fault", &task.to_string(), "it has no end"))?;
                    job.postponed.insert((until_us, task));
                }
                _ => {}
            }
        }
        if job.state.phase.is_over() {
            job.graph.close();
        }
        Ok(job)
    }

    fn check_task(&self, what: &'static str, task: u32) -> Result<(), Unreadable> {
        match task < self.graph.len() {
            true => Ok(()),
            false => Err(unreadable(what, &task.to_string(), "there is no such task")),
        }
    }

    fn load_leases(&mut self, stored: &StoredJob) -> Result<(), Unreadable> {
        for (field, text) in &stored.workers {
            let worker: Incarnation = field.parse().map_err(|e| unreadable("worker", field, e))?;
            self.workers.insert(worker, parse("worker", field, text)?);
        }
        let mut leased = 0;
        for (field, text) in &stored.graph.leases {
            let worker: Incarnation = field.parse().map_err(|e| unreadable("lease", field, e))?;
            let tasks = parse_ranges(text, self.graph.len());
            let tasks = tasks.ok_or_else(|| unreadable("lease", field, "no list of tasks of the job"))?;
            for &task in &tasks {
                if self.graph.state(task) != TaskState::Leased {
                    return Err(unreadable("lease", field, format!("task {task} is not leased")));
                }
            }
            if !self.workers.contains_key(&worker) {
                return Err(unreadable("worker", field, "it has leases and no record"));
            }
            leased += tasks.len();
            self.leases.insert(worker, tasks);
        }
        match leased == self.graph.count(TaskState::Leased) as usize {
            true => Ok(()),
            false => Err(unreadable("lease", "*", "a leased task has no worker, or two")),
        }
    }

    fn restore_canceling(&mut self) {
        if self.is_canceling() {
            return;
        }
        for (task, faults) in &self.faults {
            if !self.graph.state(*task).is_final() {
                self.canceling.extend(faults.canceling_until_us.map(|until_us| (until_us, *task)));
            }
        }
    }

    fn restore_queue(&mut self) {
        for (task, faults) in &self.faults {
            if matches!(self.graph.state(*task), TaskState::Ready | TaskState::Training) {
                self.queue.extend(faults.queued_until_us.map(|until_us| (until_us, *task)));
            }
        }
    }

    /// A task without a record of faults that was ever leased is at its first attempt.
    fn restore_attempts(&mut self) {
        for task in 0..self.graph.len() {
            let recorded = self.faults.get(&task).map(|faults| faults.attempts);
            let slot = self.graph.slot_mut(task);
            let begun = matches!(
                slot.state,
                TaskState::Leased | TaskState::Training | TaskState::Continued | TaskState::Done
            );
            slot.attempts = recorded.unwrap_or(u16::from(begun));
        }
    }

    fn restore_values(&mut self, stored: &StoredJob) -> Result<(), Unreadable> {
        for (task, bytes) in by_number("value", &stored.graph.values)? {
            self.check_task("value", task)?;
            let given = ValueWithPreview::from_stored(bytes);
            let given = given.ok_or_else(|| unreadable("value", &task.to_string(), "no value"))?;
            let (uses, stays) = self.uses(task);
            self.values.insert(task, given, uses, stays);
        }
        self.values.mark_stored();
        Ok(())
    }
}

/// The tasks, and which of them are continued by which.
fn load_graph(
    stored: &StoredJob,
    classes: usize,
    is_made_again: impl Fn(u32) -> bool,
) -> Result<(Graph, BTreeMap<u32, u32>), Unreadable> {
    let (mut graph, mut continued) = (Graph::default(), BTreeMap::new());
    let mut records: Vec<TaskRecord> = Vec::new();
    for (first, text) in by_number("chunk", &stored.graph.chunks)? {
        if first as usize != records.len() {
            return Err(unreadable("chunk", &records.len().to_string(), "it is missing"));
        }
        let chunk: Vec<TaskRecord> = parse("chunk", &first.to_string(), text)?;
        records.extend(chunk);
    }
    let mut states = Vec::with_capacity(records.len());
    for (window, letters) in by_number("window", &stored.graph.windows)? {
        let field = window.to_string();
        if window as usize * WINDOW_TASKS as usize != states.len() {
            return Err(unreadable("window", &field, "one before it is missing or short"));
        }
        for letter in letters.bytes() {
            let state = TaskState::from_letter(letter);
            states.push(state.ok_or_else(|| unreadable("window", &field, "a letter of no state"))?);
        }
    }
    if states.len() != records.len() {
        let cause = format!("{} states of {} tasks", states.len(), records.len());
        return Err(unreadable("window", "*", cause));
    }
    for (task, record) in records.iter().enumerate() {
        let earlier = |input: &u32| (*input as usize) < task;
        let known = record.inputs().all(|input| earlier(&input))
            && record.parent.as_ref().is_none_or(earlier)
            && (record.class.0 as usize) < classes;
        if !known {
            return Err(unreadable("chunk", &task.to_string(), "it refers to what is not there"));
        }
        let is_open =
            |input: u32, kind| is_awaited(states[input as usize], is_made_again(input), states[task], kind);
        let child = graph.add_in(record, states[task], is_open);
        let is_told =
            |parent: &u32| matches!(states[*parent as usize], TaskState::Continued | TaskState::Skipped);
        if let Some(parent) = record.parent.filter(is_told) {
            continued.insert(parent, child);
        }
    }
    graph.mark_stored();
    Ok((graph, continued))
}
