//! Uploads the blobs and submits the job.

use syncline_engine::{client::Client, rpc::Token};
use syncline_ps::client::BlobClient;

use super::{SubmitError, prepare::Prepared};

/// Uploads to the parameter server what it lacks, then submits. Returns when the job is committed in Redis.
pub async fn submit(client: &Client, token: &Token, job: Prepared) -> Result<(), SubmitError> {
    let Prepared { spec, blobs } = job;
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
    Ok(client.submit(spec).await?)
}
