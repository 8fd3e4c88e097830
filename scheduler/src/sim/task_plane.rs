//! General tasks without an engine: a core, what surrounds it, and workers that end at once whatever they are
//! given.

use std::collections::VecDeque;

use super::shell::Shell;
use crate::{
    core::{Core, Effect, GraphSubmission, IfTaken, Input},
    ids::{Incarnation, JobId, SubmissionId},
    tasks::{
        ClassIndex, GraphDigest, GraphSpec, NewTask, Order, Outcome, ReportGroup, TaskClass, TaskEnd,
        TaskIndex, TaskOrder,
    },
};

/// A core and the workers of its general tasks. Neither control nor a task costs time.
#[derive(Debug, Clone)]
pub struct TaskPlane<S> {
    /// The engine's state machine, which leases the tasks and takes their ends.
    pub core: Core,
    /// What hands the core each input, and takes its changes.
    pub shell: S,
}

impl<S: Shell> TaskPlane<S> {
    /// Without jobs and workers.
    pub fn new(shell: S) -> Self {
        Self { core: Core::new(1), shell }
    }

    /// Gives the core inputs, ends what workers are given as `outcome` says, and so on until nothing is under
    /// way.
    pub fn settle(
        &mut self,
        now_us: u64,
        inputs: impl IntoIterator<Item = Input>,
        mut outcome: impl FnMut(&TaskOrder) -> Outcome,
    ) {
        let mut inbox: VecDeque<Input> = inputs.into_iter().collect();
        while let Some(input) = inbox.pop_front() {
            for effect in self.shell.handle(&mut self.core, now_us, input) {
                let Effect::Orders { worker, orders } = effect else { continue };
                for order in orders {
                    let Order::Run(group) = order else { continue };
                    let end = |order: &TaskOrder| task_end(order.task.0, order.attempt, outcome(order));
                    let ended = group.tasks.iter().map(end).collect();
                    let SubmissionId { job, nonce } = &group.submission;
                    inbox.push_back(tasks_ended(worker, job, *nonce, ended));
                }
            }
        }
    }
}

/// A task of this class that takes nothing and has no name.
pub fn new_task(class: u16) -> NewTask {
    NewTask { class: ClassIndex(class), args: vec![], after: vec![], name: None }
}

/// Submits a graph that is complete.
pub fn graph_submission(
    job: &JobId,
    nonce: u32,
    classes: Vec<TaskClass>,
    tasks: Vec<NewTask>,
) -> GraphSubmission {
    let (id, digest) = (job.clone(), GraphDigest::default());
    let spec = GraphSpec { id, digest, classes, tasks, complete: true };
    GraphSubmission { spec: Box::new(spec), nonce, if_taken: IfTaken::Refuse }
}

/// The end of an attempt, which took a microsecond.
pub fn task_end(task: u32, attempt: u16, outcome: Outcome) -> TaskEnd {
    TaskEnd { task: TaskIndex(task), attempt, run_us: 1, outcome, preview: None }
}

/// The report of a worker on tasks of one job.
pub fn tasks_ended(worker: Incarnation, job: &JobId, nonce: u32, ended: Vec<TaskEnd>) -> Input {
    let groups = vec![ReportGroup { submission: SubmissionId { job: job.clone(), nonce }, ended }];
    Input::TasksEnded { worker, groups, under_another: false }
}
