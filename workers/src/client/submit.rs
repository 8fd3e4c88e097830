//! Uploads and submits what [`submit`](crate::submit) has derived and checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use syncline_ps::{PsError, client::BlobClient};
use syncline_rpc::{ClientServiceClient, EngineFault, status::JobStatus, within};
use syncline_scheduler::{
    core::IfTaken,
    ids::{ContentDigest, JobId, JobRef, MAX_NAME_BYTES},
    spec::JobSpec,
    tasks::PreparedTraining,
};
use tokio::time::sleep;
use tracing::warn;

use super::{
    Client, ClientError,
    calls::CALL_TIMEOUT,
    shard_absence::{SHARD_PAUSE, ShardAbsence},
};
use crate::blocking;
use crate::submit::{JobGraph, MissingKernel, PreparedJob, SubmitError};

/// How long a shard may be away, as one that is started again is, before an upload gives up.
const SHARD_AWAY_LIMIT: Duration = Duration::from_secs(20);

/// A job that is committed in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submitted {
    /// Id that the graph gave it.
    pub id: JobId,
    /// `false`: the same job was submitted before, and is this one.
    pub is_new: bool,
    /// What was drawn for the submission that made it.
    #[doc(hidden)]
    pub nonce: u32,
    /// What is doubtful about the model, and what settles it, a sentence each.
    pub warnings: Vec<String>,
}

impl Submitted {
    /// This job, and none that takes its name later.
    #[doc(hidden)]
    pub fn job_ref(&self) -> JobRef {
        JobRef { id: self.id.clone(), nonce: Some(self.nonce) }
    }
}

impl Client {
    /// Derives what is to be derived, checks model and data, uploads what the parameter server lacks, and
    /// submits. Returns when the job is committed in Redis.
    ///
    /// The same job again, model, data and settings, is the job that is there, even when it is over: whoever
    /// did not hear the answer asks again. Another job under an id that is taken is refused (E130).
    ///
    /// Deriving takes seconds for a large model, and the first call may have to fetch ONNX Runtime. Without
    /// feature `train` only ready training graphs are taken.
    ///
    /// # Errors
    /// What is wrong with the job shows before anything is sent: E001 for names, E020 to E029 for graph and
    /// settings, E301 to E319 and E247 to E265 for the model, E330 to E339 and E480 to E489 for the data,
    /// E360 for a file that cannot be read, E364 to E368, E101 to E109 where there is no ONNX Runtime.
    /// Then: E130 if the id is another job's, E470 if a worker could not compute it, E410 if a shard is away,
    /// E300 if no engine is reached, E136 if none leads. [`SubmitError`] has them all.
    pub async fn submit(&self, graph: &JobGraph) -> Result<Submitted, SubmitError> {
        self.submit_prepared(self.prepare(graph).await?).await
    }

    /// Submits a job as [`submit`](Self::submit); one of the same id that is over makes room, with all that
    /// is stored of it but its snapshot files.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); E140 if the job of that id goes on.
    pub async fn replace(&self, graph: &JobGraph) -> Result<Submitted, SubmitError> {
        self.replace_prepared(self.prepare(graph).await?).await
    }

    /// Submits a job that [`prepare`](crate::submit::prepare) has made. One that no CPU can compute is
    /// refused while a worker computes on one.
    ///
    /// # Errors
    /// E130 if the id is another job's, E470 if a worker could not compute it, E410 if a shard is away, E300
    /// if no engine is reached, E136 if none leads.
    pub async fn submit_prepared(&self, job: PreparedJob) -> Result<Submitted, SubmitError> {
        self.upload_and_submit(job, IfTaken::Refuse).await
    }

    /// Submits a job as [`submit_prepared`](Self::submit_prepared); one of the same id that is over makes
    /// room.
    ///
    /// # Errors
    /// As [`submit_prepared`](Self::submit_prepared); E140 if the job of that id goes on.
    pub async fn replace_prepared(&self, job: PreparedJob) -> Result<Submitted, SubmitError> {
        self.upload_and_submit(job, IfTaken::Replace).await
    }

    /// As [`submit`](Self::submit), as a new job in any case: under its own id, or if that is taken under the
    /// first one that is free of `digits-2`, `digits-3` and so on. [`Submitted::id`] says which.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), but for E130.
    pub async fn submit_new(&self, graph: &JobGraph) -> Result<Submitted, SubmitError> {
        self.submit_new_prepared(self.prepare(graph).await?).await
    }

    /// Submits a job that [`prepare`](crate::submit::prepare) has made, as a new one in any case, see
    /// [`submit_new`](Self::submit_new).
    ///
    /// # Errors
    /// As [`submit_prepared`](Self::submit_prepared), but for E130.
    pub async fn submit_new_prepared(&self, job: PreparedJob) -> Result<Submitted, SubmitError> {
        let warnings = job.warnings.clone();
        let mut spec = self.upload(job).await?;
        let (wanted, mut taken) = (spec.id, self.ids().await?);
        loop {
            spec.id = first_free(&wanted, &taken);
            match self.submit_spec(spec.clone(), IfTaken::Refuse).await {
                Ok((nonce, true)) => return Ok(Submitted { id: spec.id, is_new: true, nonce, warnings }),
                // Somebody else was faster.
                Ok((_, false)) | Err(ClientError::Refused(EngineFault::DuplicateJob { .. })) => {
                    taken.insert(spec.id)
                }
                Err(error) => return Err(error.into()),
            };
        }
    }

    /// An id that no job has now: this one, or with the lowest number behind it from 2.
    ///
    /// # Errors
    /// E300 if no engine is reached, E136 if none leads.
    #[doc(hidden)]
    pub async fn free_id(&self, wanted: &JobId) -> Result<JobId, ClientError> {
        let mut taken = self.ids().await?;
        loop {
            let free = first_free(wanted, &taken);
            // Of very many jobs only the newest are listed.
            match self.record(&free).await {
                Ok(_) => taken.insert(free),
                Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => return Ok(free),
                Err(error) => return Err(error),
            };
        }
    }

    async fn ids(&self) -> Result<BTreeSet<JobId>, ClientError> {
        Ok(self.jobs().await?.into_iter().map(|job| job.id).collect())
    }

    /// Looks whether the cluster would take a job that [`prepare`](crate::submit::prepare) has made, as far
    /// as can be told without it: whether its workers can compute it, and who has its id. Sends nothing.
    ///
    /// # Errors
    /// E470 if a worker could not compute it, E300 if no engine is reached, E136 if none leads.
    pub async fn check_prepared(&self, job: &PreparedJob) -> Result<Option<JobStatus>, SubmitError> {
        self.check_kernels(job.missing_cpu_kernel.as_ref()).await?;
        match self.status(&job.spec.id).await {
            Ok(there) => Ok(Some(there.job)),
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Derives what is to be derived, checks model and data, and uploads what the parameter server lacks:
    /// then tasks of a graph can train it, see [`TaskGraph::train`](crate::functions::TaskGraph::train).
    /// The id of `graph` is of no use here.
    ///
    /// What no job names is removed after an hour or more: submit what uses it before.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), but for what depends on the id.
    pub async fn prepare_training(&self, graph: &JobGraph) -> Result<PreparedTraining, SubmitError> {
        self.upload_training(self.prepare(graph).await?).await
    }

    /// Uploads what tasks of a graph need to train a job that [`prepare`](crate::submit::prepare) has made,
    /// see [`prepare_training`](Self::prepare_training).
    ///
    /// # Errors
    /// E470 if a worker could not compute it, E410 if a shard is away, E300 if no engine is reached, E136 if
    /// none leads.
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
            return crate::submit::prepare(
                models.map_or_else(crate::isolation::ModelHost::find, Ok)?,
                &graph,
            );
            #[cfg(not(feature = "train"))]
            crate::submit::prepare_ready(&graph)
        })
        .await
        .inspect(|job: &PreparedJob| job.warnings.iter().for_each(|warning| warn!("{warning}")))
    }

    async fn upload_and_submit(&self, job: PreparedJob, if_taken: IfTaken) -> Result<Submitted, SubmitError> {
        let (id, warnings) = (job.spec.id.clone(), job.warnings.clone());
        // It may wait for these shards itself. Where all are there, what they have lost of it is uploaded.
        if self.lacks_shards().await
            && let Some(nonce) = self.submitted_before(&job.spec, if_taken).await?
        {
            return Ok(Submitted { id, is_new: false, nonce, warnings });
        }
        let spec = self.upload(job).await?;
        let (nonce, is_new) = self.submit_spec(spec, if_taken).await?;
        Ok(Submitted { id, is_new, nonce, warnings })
    }

    /// Whether the engine says right now that shards are missing.
    async fn lacks_shards(&self) -> bool {
        let shards = self.once(|c| async move { c.shards(within(CALL_TIMEOUT)).await }).await;
        matches!(shards, Err(ClientError::Refused(EngineFault::MissingShards { .. })))
    }

    /// The nonce of the job that is there, where a submission is that one.
    async fn submitted_before(&self, spec: &JobSpec, if_taken: IfTaken) -> Result<Option<u32>, ClientError> {
        let ask = |c: ClientServiceClient| {
            let spec = spec.clone();
            async move { c.submitted_before(within(CALL_TIMEOUT), spec, if_taken).await }
        };
        self.retry(ask).await
    }

    async fn upload(&self, job: PreparedJob) -> Result<JobSpec, SubmitError> {
        let PreparedJob { spec, blobs, missing_cpu_kernel, .. } = job;
        self.check_kernels(missing_cpu_kernel.as_ref()).await?;
        let uploaded = Arc::new(AtomicUsize::new(0));
        let mut absence = ShardAbsence::of_at_most(SHARD_AWAY_LIMIT);
        let mut has_waited = false;
        loop {
            match self.upload_blobs(blobs.clone(), uploaded.clone()).await {
                // One that is started again is back soon, at another address or in another process.
                Err(SubmitError::Upload(error @ PsError::Unreachable { .. }))
                    if absence.is_short(uploaded.load(Ordering::Relaxed), Instant::now()) =>
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

    /// Refuses a job that no CPU can compute while a worker computes on one.
    async fn check_kernels(&self, missing: Option<&MissingKernel>) -> Result<(), SubmitError> {
        let Some(MissingKernel { op, precision }) = missing else { return Ok(()) };
        match self.workers().await?.into_iter().find(|worker| worker.trains() && worker.device == "cpu") {
            Some(worker) => {
                let (op, precision) = (op.clone(), precision.name());
                Err(SubmitError::MissingKernel { worker: worker.name, op, precision })
            }
            None => Ok(()),
        }
    }

    /// Uploads what the parameter server lacks, to where the engine says that the shards are now; counts what
    /// got through.
    async fn upload_blobs(
        &self,
        blobs: Arc<BTreeMap<ContentDigest, Arc<Vec<u8>>>>,
        uploaded: Arc<AtomicUsize>,
    ) -> Result<(), SubmitError> {
        let shards = self.shards().await?;
        let blob_client = BlobClient::new(self.token.clone());
        blocking(move || {
            // Blobs are spread over the shards; workers look on all of them.
            for ((digest, bytes), address) in blobs.iter().zip(shards.iter().cycle()) {
                if !blob_client.has(address, *digest)? {
                    blob_client.put(address, bytes)?;
                    uploaded.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
        .await
    }
}

/// The first of `digits`, `digits-2`, `digits-3` and so on that is not taken. A long name is cut so that the
/// number fits.
fn first_free(wanted: &JobId, taken: &BTreeSet<JobId>) -> JobId {
    let numbered = |number: u64| {
        let end = format!("-{number}");
        let start = &wanted.as_str()[..wanted.as_str().len().min(MAX_NAME_BYTES - end.len())];
        format!("{start}{end}").parse().ok()
    };
    let candidates = iter::once(wanted.clone()).chain((2..).filter_map(numbered));
    candidates.into_iter().find(|id| !taken.contains(id)).unwrap_or_else(|| wanted.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_the_lowest_number_that_is_free_table() {
        let long = "a".repeat(MAX_NAME_BYTES);
        let cut = format!("{}-2", &long[2..]);
        #[rustfmt::skip]
        let cases: [(&str, &[&str], &str); 5] = [
            ("digits",   &[],                                 "digits"),
            ("digits",   &["digit", "digits-2"],              "digits"),
            ("digits",   &["digits"],                         "digits-2"),
            ("digits",   &["digits", "digits-2", "digits-4"], "digits-3"),
            (&long,      &[&long],                            &cut),
        ];
        for (wanted, taken, want) in cases {
            let taken = taken.iter().map(|id| id.parse().unwrap()).collect();
            assert_eq!(first_free(&wanted.parse().unwrap(), &taken).as_str(), want);
        }
    }
}
