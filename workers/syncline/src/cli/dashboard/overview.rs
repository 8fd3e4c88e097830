//! The cluster as a whole, asked for once for all who look on.

use std::sync::Arc;

use serde::Serialize;
use syncline_rpc::status::{EngineStatus, JobList, JobStatus, LiveWorker};
use syncline_workers::client::Client;

use super::fresh::Fresh;
use crate::cli::Failure;

/// Jobs that are over of which it tells; the newest.
const MOST_OVER: u32 = 100;

/// The engine that leads, or one that stands by where none leads, and what it knows of jobs and workers.
pub(super) struct Overview {
    pub engine: EngineStatus,
    /// Redis may be away while an engine answers.
    pub known: Result<Known, Failure>,
}

/// Jobs and workers.
pub(super) struct Known {
    pub jobs: JobList,
    pub workers: Vec<LiveWorker>,
}

/// All of it in one answer.
#[derive(Debug, Serialize)]
pub(super) struct Whole<'o> {
    engine: &'o EngineStatus,
    /// Oldest first: all that are not over, and the newest that are.
    jobs: &'o [JobStatus],
    /// Older jobs that are left out.
    left_out: u32,
    workers: &'o [LiveWorker],
}

impl Overview {
    /// Why nobody leads; `None`: the engine does.
    pub(super) fn idle(&self) -> Option<&str> {
        self.engine.idle.as_deref()
    }

    pub(super) fn whole(&self) -> Result<Whole<'_>, &Failure> {
        let Known { jobs, workers } = self.known.as_ref()?;
        Ok(Whole { engine: &self.engine, jobs: &jobs.jobs, left_out: jobs.left_out, workers })
    }
}

#[derive(Default)]
pub(super) struct Overviews(Fresh<Result<Arc<Overview>, Arc<Failure>>>);

impl Overviews {
    /// As of less than a second ago.
    pub(super) async fn get(&self, client: &Client) -> Result<Arc<Overview>, Arc<Failure>> {
        self.0.get(async { ask(client).await.map(Arc::new).map_err(Arc::new) }).await
    }
}

async fn ask(client: &Client) -> Result<Overview, Failure> {
    let engine = client.engine().await?;
    Ok(Overview { engine, known: known(client).await })
}

async fn known(client: &Client) -> Result<Known, Failure> {
    Ok(Known { jobs: client.list_jobs(Some(MOST_OVER)).await?, workers: client.workers().await? })
}
