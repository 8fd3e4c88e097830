//! Uploads and submits what [`submit`](crate::submit) has derived and checked.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use syncline_ps::{PsError, client::BlobClient};
use syncline_scheduler::{ids::JobId, spec::JobSpec, tasks::PreparedTraining};
use tokio::time::sleep;
use tracing::warn;

use super::Client;
use crate::blocking;
use crate::submit::{JobGraph, MissingKernel, PreparedJob, SubmitError};

/// How long a shard may be away, as one that is started again is, before an upload gives up.
const SHARD_AWAY_LIMIT: Duration = Duration::from_secs(20);
const SHARD_PAUSE: Duration = Duration::from_millis(200);

/// A job that is committed in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// Id that the graph gave it.
    pub id: JobId,
    /// `false`: the same job was submitted before, and is this one.
    pub is_new: bool,
    /// What is doubtful about the model, and what settles it, a sentence each.
    pub warnings: Vec<String>,
}

impl Client {
    /// Derives what is to be derived, checks model and data, uploads what the parameter server lacks, and submits. Returns
    /// when the job is committed in Redis.
    ///
    /// The same job again, model, data and settings, is the job that is there, also when it is over: whoever did not hear the
    /// answer asks again. Another job under an id that is taken is refused (E130).
    ///
    /// Deriving takes seconds for a large model, and the first call may have to fetch ONNX Runtime. Without feature `train`
    /// only ready training graphs are taken.
    pub async fn submit(&self, graph: &JobGraph) -> Result<Submitted, SubmitError> {
        self.submit_prepared(self.prepare(graph).await?).await
    }

    /// The same; a job of the same id that is over makes room, with all that is stored of it but its snapshot files.
    pub async fn replace(&self, graph: &JobGraph) -> Result<Submitted, SubmitError> {
        self.replace_prepared(self.prepare(graph).await?).await
    }

    /// Submits a job that [`prepare`](crate::submit::prepare) has made. One that no CPU can compute is refused while a
    /// worker computes on one.
    pub async fn submit_prepared(&self, job: PreparedJob) -> Result<Submitted, SubmitError> {
        self.upload_and_submit(job, false).await
    }

    /// The same; a job of the same id that is over makes room.
    pub async fn replace_prepared(&self, job: PreparedJob) -> Result<Submitted, SubmitError> {
        self.upload_and_submit(job, true).await
    }

    /// Derives what is to be derived, checks model and data, and uploads what the parameter server lacks: then tasks of a
    /// graph can train it, see [`TaskGraph::train`](crate::functions::TaskGraph::train). The id of `graph` is of no use here.
    ///
    /// What no job names is removed after an hour or more: submit what uses it before.
    pub async fn prepare_training(&self, graph: &JobGraph) -> Result<PreparedTraining, SubmitError> {
        self.upload_training(self.prepare(graph).await?).await
    }

    /// The same for a job that [`prepare`](crate::submit::prepare) has made.
    pub async fn upload_training(&self, job: PreparedJob) -> Result<PreparedTraining, SubmitError> {
        let spec = self.upload(job).await?;
        Ok(PreparedTraining::new(&spec)?)
    }

    async fn prepare(&self, graph: &JobGraph) -> Result<PreparedJob, SubmitError> {
        let graph = graph.clone();
        #[cfg(feature = "train")]
        let models = self.models.clone();
        blocking(move || {
            #[cfg(feature = "train")]
            return crate::submit::prepare(models.map_or_else(find_models, Ok)?, &graph);
            #[cfg(not(feature = "train"))]
            crate::submit::prepare_ready(&graph)
        })
        .await
        .inspect(|job: &PreparedJob| job.warnings.iter().for_each(|warning| warn!("{warning}")))
    }

    async fn upload_and_submit(&self, job: PreparedJob, replace: bool) -> Result<Submitted, SubmitError> {
        let (id, warnings) = (job.spec.id.clone(), job.warnings.clone());
        let spec = self.upload(job).await?;
        let is_new = self.submit_spec(spec, replace).await?;
        Ok(Submitted { id, is_new, warnings })
    }

    async fn upload(&self, job: PreparedJob) -> Result<JobSpec, SubmitError> {
        let PreparedJob { spec, blobs, missing_cpu_kernel, .. } = job;
        if let Some(MissingKernel { op, precision }) = missing_cpu_kernel {
            let workers = self.workers().await?;
            if let Some(worker) = workers.into_iter().find(|worker| worker.device == "cpu") {
                let precision = precision.name();
                return Err(SubmitError::MissingKernel { worker: worker.name, op, precision });
            }
        }
        let (blobs, deadline) = (Arc::new(blobs), Instant::now() + SHARD_AWAY_LIMIT);
        let mut has_waited = false;
        loop {
            match self.upload_blobs(blobs.clone()).await {
                // One that is started again is back soon, at another address or in another process.
                Err(SubmitError::Upload(error @ PsError::Unreachable { .. }))
                    if Instant::now() < deadline =>
                {
                    if !std::mem::replace(&mut has_waited, true) {
                        warn!(%error, "waiting for a shard");
                    }
                    sleep(SHARD_PAUSE).await;
                }
                done => return done.map(|()| spec),
            }
        }
    }

    /// Uploads what the parameter server lacks, to where the engine says that the shards are now.
    async fn upload_blobs(&self, blobs: Arc<BTreeMap<String, Vec<u8>>>) -> Result<(), SubmitError> {
        let shards = self.shards().await?;
        let blob_client = BlobClient::new(self.token.clone());
        blocking(move || {
            // Blobs are spread over the shards; workers look on all of them.
            for ((digest, bytes), address) in blobs.iter().zip(shards.iter().cycle()) {
                if !blob_client.has(address, digest)? {
                    blob_client.put(address, bytes)?;
                }
            }
            Ok(())
        })
        .await
    }
}

/// The ONNX Runtime that is found on this machine, or fetched; the log says what takes time.
#[cfg(feature = "train")]
fn find_models() -> Result<crate::isolation::ModelHost, SubmitError> {
    let parts = syncline_kit::for_device(syncline_kit::Device::Cpu, &|line| tracing::info!("{line}"))?;
    Ok(crate::isolation::ModelHost::with(&parts)?)
}
