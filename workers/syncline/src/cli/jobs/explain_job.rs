//! `syncline explain JOB`: what stands in the way of a whole job.

use serde::Serialize;
use syncline_rpc::status::{JobView, TaskCounts};
use syncline_scheduler::{
    core::{BarrierExplanation, JobPhase},
    ids::{JobId, Superstep},
    tasks::{TaskQuery, TaskState, TaskView},
};

use super::source::Source;
use crate::cli::{Failure, support::describe};

/// Most general tasks that are named.
const TASKS_SHOWN: u32 = 10;

/// States in which something may be the matter, the worst first.
const TOLD: [TaskState; 7] = [
    TaskState::Failed,
    TaskState::Backoff,
    TaskState::Ready,
    TaskState::Training,
    TaskState::Leased,
    TaskState::Continued,
    TaskState::Waiting,
];

/// Where a job stands, and why.
#[derive(Debug, Serialize)]
pub(super) struct JobExplanation {
    pub job: JobId,
    pub state: JobPhase,
    /// What it waits for, what is wrong, how many tasks failed or wait for a worker, or how it ended; empty
    /// where nothing stands in its way.
    pub because: Vec<String>,
    /// The next barrier of a training, as far as one is begun.
    pub barrier: Option<BarrierExplanation>,
    /// General tasks that have failed, or have not ended, the most telling first; the first ten of them.
    pub tasks: Vec<TaskView>,
    /// How many such tasks there are besides.
    pub tasks_left_out: u64,
}

impl JobExplanation {
    pub(super) async fn fetch(source: &Source, view: &JobView) -> Result<Self, Failure> {
        let job = &view.job;
        let mut because: Vec<String> =
            describe::obstacles(view).into_iter().map(|(what, text)| format!("{what}: {text}")).collect();
        because.extend(job.tasks.iter().filter(|_| !job.is_over()).flat_map(troubles));
        because.extend(job.outcome());
        let barrier = match next_barrier(job.next_barrier.as_deref()).filter(|_| !job.is_over()) {
            // One that has closed meanwhile may be forgotten already.
            Some(barrier) => source.explain_barrier(&job.id, barrier).await.ok(),
            None => None,
        };
        let (mut tasks, mut all) = (Vec::new(), 0);
        if let Some(counts) = &job.tasks {
            tasks = telling_tasks(source, &job.id, counts).await?;
            all = TOLD.iter().map(|state| counts.of(*state)).sum();
        }
        let tasks_left_out = all.saturating_sub(tasks.len() as u64);
        Ok(Self { job: job.id.clone(), state: job.state, because, barrier, tasks, tasks_left_out })
    }
}

/// What is the matter with some tasks while others go on.
fn troubles(counts: &TaskCounts) -> Vec<String> {
    let troubles = [
        (counts.failed, "failed"),
        (counts.backoff, "failed, and wait for their next attempt"),
        (counts.ready, "wait for a worker"),
    ];
    let troubles = troubles.into_iter().filter(|(tasks, _)| *tasks > 0);
    troubles.map(|(tasks, what)| format!("{tasks} of {} tasks {what}", counts.total)).collect()
}

/// The number in front of what is said of the next barrier, such as `12: planning`.
pub(super) fn next_barrier(said: Option<&str>) -> Option<Superstep> {
    said?.split_once(':')?.0.parse().ok()
}

async fn telling_tasks(source: &Source, job: &JobId, counts: &TaskCounts) -> Result<Vec<TaskView>, Failure> {
    let mut told = Vec::new();
    for state in TOLD.into_iter().filter(|state| counts.of(*state) > 0) {
        let limit = TASKS_SHOWN - told.len() as u32;
        if limit == 0 {
            break;
        }
        let query = TaskQuery { limit, state: Some(state), ..TaskQuery::default() };
        told.extend(source.tasks(job, &query).await?);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_failed_or_wait_are_told_of_while_others_go_on() {
        let counts = TaskCounts { total: 9, leased: 3, ready: 2, failed: 1, ..TaskCounts::default() };
        assert_eq!(troubles(&counts), ["1 of 9 tasks failed", "2 of 9 tasks wait for a worker"]);
        assert!(
            troubles(&TaskCounts { total: 9, leased: 3, waiting: 6, ..TaskCounts::default() }).is_empty()
        );
    }

    #[test]
    fn the_number_of_the_next_barrier_is_read_from_its_words() {
        for (said, want) in [
            (None, None),
            (Some("none planned"), None),
            (Some("12: planning"), Some(Superstep(12))),
            (Some("0: in 12 ms"), Some(Superstep(0))),
        ] {
            assert_eq!(next_barrier(said), want, "{said:?}");
        }
    }
}
