//! Who answers what is asked about one job: the engine, or a file that `syncline export` wrote.

use std::{collections::BTreeMap, path::PathBuf};

use syncline_rpc::{
    StreamCursor,
    status::{Entry, EvaluationPoint, JobEvent, JobView, MetricsPoint},
};
use syncline_scheduler::{
    core::{BarrierExplanation, TaskExplanation},
    graph::TaskId,
    ids::{JobId, Superstep},
    tasks::{TaskIndex, TaskQuery, TaskState, TaskView},
};
use syncline_workers::client::{Client, TaskError};

use super::task_name::TaskName;
use crate::cli::{ConnectionArgs, EngineClock, Failure, exported::Export};

/// Flags of the commands that look at one job.
#[derive(Debug, clap::Args)]
pub struct SourceArgs {
    /// Read a file of `syncline export` instead of asking a cluster: everything is as of then
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Who answers.
pub(crate) enum Source {
    /// With the address of its Redis server, without password.
    Engine {
        client: Client,
        clock: EngineClock,
        redis: String,
    },
    File(Export),
}

impl SourceArgs {
    /// Connects, or opens the file, and says which job is asked about: the one of the file, which has to be
    /// `job` where that is named. The command line demands it where there is no file.
    pub(crate) async fn open(&self, job: Option<&JobId>) -> Result<(Source, JobId), Failure> {
        match (&self.from, job) {
            (Some(path), job) => {
                let export = Export::open(path, job)?;
                let job = export.job().clone();
                Ok((Source::File(export), job))
            }
            (None, Some(job)) => {
                let (client, about) = Client::connect(&self.connection.find()?).await?;
                let source = Source::Engine { client, clock: EngineClock::of(&about), redis: about.redis };
                Ok((source, job.clone()))
            }
            (None, None) => unreachable!("the command line names a job or a file"),
        }
    }
}

impl Source {
    /// The moment as of which it answers.
    pub(crate) fn now_ms(&self) -> u64 {
        match self {
            Self::Engine { clock, .. } => clock.now_ms(),
            Self::File(export) => export.exported_ms(),
        }
    }

    pub(crate) async fn status(&self, job: &JobId) -> Result<JobView, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.status(job).await?),
            Self::File(export) => Ok(export.status()?),
        }
    }

    pub(crate) async fn events(
        &self,
        job: &JobId,
        after: Option<StreamCursor>,
    ) -> Result<Vec<Entry<JobEvent>>, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.events(job, after).await?),
            Self::File(export) => Ok(export.events(after)?),
        }
    }

    /// The loss curve of a training, oldest first.
    pub(crate) async fn metrics(&self, job: &JobId) -> Result<Vec<Entry<MetricsPoint>>, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.metrics(job, None).await?),
            Self::File(export) => Ok(export.metrics()?),
        }
    }

    /// Its evaluations, oldest first, the best one always among them.
    pub(crate) async fn evaluations(&self, job: &JobId) -> Result<Vec<Entry<EvaluationPoint>>, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.evaluations(job, None).await?),
            Self::File(export) => Ok(export.evaluations()?),
        }
    }

    pub(crate) async fn tasks(&self, job: &JobId, query: &TaskQuery) -> Result<Vec<TaskView>, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.tasks(job, query).await?),
            // As an engine, which tells a graph without such tasks from a job that is no graph.
            Self::File(export) if export.status()?.job.tasks.is_none() => {
                Err(export.lacks("general tasks".to_owned()).into())
            }
            Self::File(export) => Ok(export.tasks(query)?),
        }
    }

    /// One general task.
    pub(crate) async fn task(&self, job: &JobId, name: &TaskName) -> Result<TaskView, Failure> {
        let query = match name {
            TaskName::Number(first) => TaskQuery { first: *first, limit: 1, ..TaskQuery::default() },
            TaskName::Name(name) => TaskQuery { limit: 1, name: Some(name.clone()), ..TaskQuery::default() },
        };
        let found = self.tasks(job, &query).await?.pop();
        let found = found.filter(|view| !matches!(name, TaskName::Number(number) if view.task != *number));
        found.ok_or_else(|| match self {
            Self::Engine { .. } => TaskError::Unknown { job: job.clone(), task: name.to_string() }.into(),
            Self::File(export) => export.lacks(format!("task {name}")).into(),
        })
    }

    /// The states of some general tasks.
    pub(crate) async fn states_of(
        &self,
        job: &JobId,
        tasks: &[TaskIndex],
    ) -> Result<BTreeMap<TaskIndex, TaskState>, Failure> {
        match self {
            Self::Engine { client, .. } => {
                let mut states = BTreeMap::new();
                for task in tasks {
                    states.insert(*task, client.task(job, *task).await?.state);
                }
                Ok(states)
            }
            Self::File(export) => Ok(export.states_of(tasks)?),
        }
    }

    pub(crate) async fn explain_task(&self, job: &JobId, task: &TaskId) -> Result<TaskExplanation, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.explain_task(job, task).await?),
            Self::File(export) => Ok(export.explain_task(task)?),
        }
    }

    pub(crate) async fn explain_barrier(
        &self,
        job: &JobId,
        barrier: Superstep,
    ) -> Result<BarrierExplanation, Failure> {
        match self {
            Self::Engine { client, .. } => Ok(client.explain_barrier(job, barrier).await?),
            Self::File(export) => Ok(export.explain_barrier(barrier)?),
        }
    }
}
