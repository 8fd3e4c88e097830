//! Tasks that come into a graph, from outside or from a task of it: checked, then added.

use std::collections::BTreeSet;

use super::{
    invalid::InvalidGraph,
    job::{ClassState, TaskJob},
    record::{Argument, TaskRecord},
};
use crate::tasks::{Arg, ClassIndex, Needs, NewTask, TaskClass, TaskIndex, TaskRef, TrainingChanges, Work};

/// Most classes of one job.
const MAX_CLASSES: usize = 4_096;
/// Most bytes of a record: what is larger belongs into blobs.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Which tasks new ones may refer to, besides each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReferenceScope {
    /// Any that is there: a client adds them.
    Anywhere,
    /// None: a task adds them, and what it knows of may be gone.
    EachOther,
}

impl TaskJob {
    /// Indices of `classes` in the job, those that it did not have added.
    pub(super) fn intern(&mut self, classes: &[TaskClass]) -> Result<Vec<ClassIndex>, InvalidGraph> {
        let index = |class: &TaskClass| {
            let known = self.classes.iter().position(|c| c.class == *class);
            known.map_or_else(|| self.add_class(class), |known| Ok(ClassIndex(known as u16)))
        };
        classes.iter().map(index).collect()
    }

    /// Adds a class behind those that are there, even if one of them equals it: later parts of a graph count
    /// as the client does.
    pub(super) fn add_class(&mut self, class: &TaskClass) -> Result<ClassIndex, InvalidGraph> {
        if self.classes.len() >= MAX_CLASSES {
            return Err(InvalidGraph::TooManyClasses);
        }
        check_class(class)?;
        self.classes.push(ClassState::new(class.clone()));
        Ok(ClassIndex((self.classes.len() - 1) as u16))
    }

    /// Checks tasks that are to come behind those that are there, and makes records of them. Nothing has
    /// changed after an error. `continues`: the task that gives what the new one at this index gives.
    pub(super) fn check(
        &self,
        tasks: &[NewTask],
        classes: &[ClassIndex],
        scope: ReferenceScope,
        continues: Option<(u32, u32)>,
    ) -> Result<Vec<TaskRecord>, InvalidGraph> {
        let base = self.graph.len();
        let mut names = BTreeSet::new();
        let mut records = Vec::with_capacity(tasks.len());
        let mut bytes = 0;
        for (index, task) in tasks.iter().enumerate() {
            let index = index as u32;
            let invalid = InvalidGraph::Reference { task: TaskIndex(base.saturating_add(index)) };
            let resolve = |input: TaskRef| match input {
                TaskRef::New(n) if n < index => Ok(base + n),
                TaskRef::Task(TaskIndex(n)) if scope == ReferenceScope::Anywhere && n < base + index => Ok(n),
                _ => Err(invalid.clone()),
            };
            let resolve_all = |inputs: &[TaskRef]| -> Result<Vec<u32>, InvalidGraph> {
                inputs.iter().map(|input| resolve(*input)).collect()
            };
            let argument = |arg: &Arg| {
                Ok(match arg {
                    Arg::Value(bytes) => Argument::Value(bytes.clone()),
                    Arg::Blob(blob) => Argument::Blob(blob.clone()),
                    Arg::Output(input) => Argument::Output(resolve(*input)?),
                    Arg::Outputs(inputs) => Argument::Outputs(resolve_all(inputs)?),
                    Arg::Outcome(input) => Argument::Outcome(resolve(*input)?),
                    Arg::Outcomes(inputs) => Argument::Outcomes(resolve_all(inputs)?),
                })
            };
            let class = *classes
                .get(task.class.0 as usize)
                .ok_or_else(|| InvalidGraph::Class { task: TaskIndex(base.saturating_add(index)) })?;
            if let Some(name) = &task.name
                && (self.graph.task_named(name).is_some() || !names.insert(name))
            {
                return Err(InvalidGraph::Name { name: name.clone() });
            }
            let arguments = task.args.iter().map(argument).collect::<Result<_, InvalidGraph>>()?;
            let parent = continues.filter(|(_, child)| *child == index).map(|(parent, _)| parent);
            let (after, name) = (resolve_all(&task.after)?, task.name.clone());
            let record = TaskRecord { class, arguments, after, name, parent };
            let size = postcard::experimental::serialized_size(&record).unwrap_or(usize::MAX);
            if size > MAX_RECORD_BYTES {
                return Err(InvalidGraph::TooLarge {
                    task: TaskIndex(base.saturating_add(index)),
                    bytes: size,
                });
            }
            bytes += size;
            records.push(record);
        }
        match self.graph.has_room_for(tasks.len(), bytes) {
            true => Ok(records),
            false => Err(InvalidGraph::TooManyTasks { tasks: u64::from(base) + tasks.len() as u64 }),
        }
    }

    /// Adds tasks that were checked. In a job that runs, those that wait for nothing are ready at once.
    pub(super) fn add(&mut self, records: &[TaskRecord]) {
        for record in records {
            let task = self.graph.add(record);
            if let Some(parent) = record.parent {
                self.continued.insert(parent, task);
            }
            if self.is_running() {
                self.ready_if_met(task);
            }
        }
    }
}

/// Refuses a class whose tasks could never run.
fn check_class(class: &TaskClass) -> Result<(), InvalidGraph> {
    let rules = &class.rules;
    for (limit, ms) in [("run_limit", rules.run_limit_ms), ("queue_limit", rules.queue_limit_ms)] {
        if ms == Some(0) {
            return Err(InvalidGraph::NoTime { limit });
        }
    }
    if rules.needs.labels.contains_key("") {
        return Err(InvalidGraph::NamelessLabel);
    }
    match &class.work {
        Work::Call(_) if rules.needs.slots == 0 => Err(InvalidGraph::NoSlots),
        Work::Call(_) => Ok(()),
        Work::Train(_) if rules.needs != Needs::default() || rules.priority != 0 => {
            Err(InvalidGraph::TrainingNeeds)
        }
        Work::Train(training) => training.check(&TrainingChanges::new()).map_err(InvalidGraph::Training),
    }
}
