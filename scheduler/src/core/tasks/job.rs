//! One job of general tasks.

use crate::{
    core::{Core, Effect, Input, Phase, Refused, StoredJob, Unreadable},
    ids::{Incarnation, JobId},
    tasks::{TaskIndex, TaskQuery, TaskView, Value},
};

/// One job of general tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskJob {
    id: JobId,
    phase: Phase,
}

impl TaskJob {
    /// Reads a job back. Equal to the live one at the moment of its last commit.
    pub fn load(_stored: &StoredJob) -> Result<Self, Unreadable> {
        Err(Unreadable { what: "job", field: "spec".into(), cause: "not yet".into() })
    }

    /// The job's name.
    pub fn name(&self) -> &JobId {
        &self.id
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The worker that came last.
    pub fn newest_worker(&self) -> Incarnation {
        Incarnation::default()
    }
}

impl StoredJob {
    /// Whether it is a job of general tasks, for [`TaskJob::load`].
    pub fn holds_tasks(&self) -> bool {
        self.spec.starts_with("{\"graph\"")
    }
}

impl Core {
    /// Takes in a job of general tasks that was loaded, and returns what has to be repeated.
    pub fn restore_tasks(&mut self, _job: TaskJob) -> Vec<Effect> {
        Vec::new()
    }

    /// The tasks that a query asks for; `None` if there is no such job.
    pub fn task_views(&self, _job: &JobId, _query: &TaskQuery) -> Option<Vec<TaskView>> {
        None
    }

    /// What a task gave, `None` within while it has not ended; `None` if there is no such job or task.
    pub fn task_value(&self, _job: &JobId, _task: TaskIndex) -> Option<Option<Value>> {
        None
    }

    pub(crate) fn handle_tasks(
        &mut self,
        _now_us: u64,
        _input: Input,
        _effects: &mut [Effect],
    ) -> Result<(), Refused> {
        Ok(())
    }
}
