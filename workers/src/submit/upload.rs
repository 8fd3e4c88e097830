//! Uploads the blobs and submits the job.

use syncline_engine::{
    client::Client,
    rpc::{Token, WorkerFields},
};
use syncline_ps::client::BlobClient;
use syncline_scheduler::spec::JobSpec;

use super::{
    SubmitError,
    prepare::{MissingKernel, PreparedJob},
};

/// Uploads to the parameter server what it lacks, then submits. Returns when the job is committed in Redis.
///
/// A job that no CPU can compute is refused while a worker computes on one.
pub async fn submit(client: &Client, token: &Token, job: PreparedJob) -> Result<(), SubmitError> {
    let spec = upload(client, token, job).await?;
    Ok(client.submit(spec).await?)
}

/// The same; a job of the same id that is over makes room.
pub async fn submit_replacing(client: &Client, token: &Token, job: PreparedJob) -> Result<(), SubmitError> {
    let spec = upload(client, token, job).await?;
    Ok(client.submit_replacing(spec).await?)
}

async fn upload(client: &Client, token: &Token, job: PreparedJob) -> Result<JobSpec, SubmitError> {
    let PreparedJob { spec, blobs, missing_cpu_kernel, .. } = job;
    if let Some(MissingKernel { op, precision }) = missing_cpu_kernel {
        let workers = client.workers().await?;
        let on_cpu = |worker: &&WorkerFields| worker.get("device").is_some_and(|device| device == "cpu");
        if let Some(worker) = workers.iter().find(on_cpu) {
            let worker = worker.get("name").cloned().unwrap_or_default();
            return Err(SubmitError::MissingKernel { worker, op, precision: precision.name() });
        }
    }
    let shards = client.shards().await?;
    let token = token.clone();
    tokio::task::spawn_blocking(move || -> Result<(), SubmitError> {
        let blob_client = BlobClient::new(token);
        // Blobs are spread over the shards; workers look on all of them.
        for ((digest, bytes), address) in blobs.iter().zip(shards.iter().cycle()) {
            if !blob_client.has(address, digest)? {
                blob_client.put(address, bytes)?;
            }
        }
        Ok(())
    })
    .await
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    Ok(spec)
}
