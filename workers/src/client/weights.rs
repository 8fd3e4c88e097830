//! What a job has learned, from the parameter server.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use safetensors::{Dtype, SafeTensors};
use syncline_ps::{
    PsError,
    client::{BlobClient, MISSING_PATIENCE},
};
use syncline_rpc::{
    Cause, EngineFault,
    status::{JobPhase, JobStatus, JobView},
};
use syncline_scheduler::{
    fault_code::FaultCode,
    ids::{ContentDigest, JobId, JobRef},
    spec::TrainSpec,
};
use tokio::time::sleep;

use super::{Client, ClientError};
use crate::export::{ExportError, TrainedModel, fill_of_job, float32_values};
use crate::{blocking, normalization::with_normalization, place_file};

/// How long the last weights of a job that has ended are waited for.
const LAST_WEIGHTS_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Why the weights of a job could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The engine could not be asked, or does not do it.
    #[error(transparent)]
    Engine(#[from] ClientError),
    /// No shard gave the model, the snapshot, or a part of the checkpoint.
    #[error(transparent)]
    Shard(#[from] PsError),
    /// Nothing was written yet.
    #[error("[E246] job {job} has no snapshot yet: it is not over{waits}")]
    NoSnapshotYet {
        /// Id of the job.
        job: JobId,
        /// What it waits for, as where a full disk takes no checkpoint of its end, `, and waits for` in front;
        /// empty if it waits for nothing.
        waits: String,
    },
    /// The job ended before there were weights.
    #[error("[E246] job {job} has no snapshot, and is {outcome}")]
    NoSnapshot {
        /// Id of the job.
        job: JobId,
        /// How the job ended.
        outcome: String,
    },
    /// The job is over, and its last weights are not written yet: the disk of the first shard may be full.
    #[error("[E246] job {job} has no snapshot: its last weights are not written yet{because}")]
    WeightsPending {
        /// Id of the job.
        job: JobId,
        /// What is in the way, a colon in front; empty if nobody has said so far.
        because: String,
    },
    /// The job is over, and its last weights could not be written: the shards have them no more.
    #[error("[E246] job {job} has no snapshot: its last weights are lost: {reason}")]
    WeightsLost {
        /// Id of the job.
        job: JobId,
        /// What became of them, in words.
        reason: String,
    },
    /// The snapshot does not go into the job's model.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The file could not be written; what stood there is as it was.
    #[error("[E244] cannot write {path}: {source}")]
    Write {
        /// File as it was named.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl FetchError {
    /// The stable code, as in the message.
    pub fn code(&self) -> FaultCode {
        FaultCode::new(match self {
            Self::Engine(source) => return source.code(),
            Self::Shard(source) => source.code(),
            Self::NoSnapshotYet { .. }
            | Self::NoSnapshot { .. }
            | Self::WeightsPending { .. }
            | Self::WeightsLost { .. } => "E246",
            Self::Export(source) => source.code(),
            Self::Write { .. } => "E244",
        })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Engine(error) => return error.hint(),
            Self::Shard(error) => return error.hint(),
            Self::NoSnapshotYet { .. } => {
                "wait until it is over; a node `do = \"snapshot\"` in its graph writes one as soon as its training is. A graph of tasks has \
                 values instead: `syncline tasks JOB TASK`"
                    .to_owned()
            }
            Self::NoSnapshot { job, .. } => {
                format!(
                    "there is none to come: `syncline checkpoint {job} FILE` writes its newest checkpoint, if it kept any (`syncline status \
                     {job}` has the number of the best); `syncline submit FILE --new --resume {job}` goes on from it once what ended the job is \
                     mended, if samples are left, and `--replace` deletes them and begins anew"
                )
            }
            Self::WeightsPending { .. } => {
                "they are tried again until they are written: mend what is in the way, such as a full disk, and ask again".to_owned()
            }
            Self::WeightsLost { job, .. } => after_loss(job),
            Self::Export(error) => return error.hint(),
            Self::Write { .. } => "correct what the system names, or choose another place".to_owned(),
        };
        Some(hint)
    }
}

/// Where the model of a job and its newest snapshot lie.
pub(super) struct Kept {
    /// The submission whose they are: what is read by the name later may be of another one.
    pub of: JobRef,
    pub model: ContentDigest,
    pub snapshot: ContentDigest,
}

/// One parameter, in row-major order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Parameter {
    /// Sizes of the axes; empty for a single number.
    pub shape: Vec<usize>,
    /// As many numbers as the shape says.
    pub values: Vec<f32>,
}

/// The parameters of a job as of its snapshot.
#[derive(Debug, Clone)]
pub struct Weights(Vec<u8>);

impl Weights {
    /// Those in the bytes of a safetensors file.
    pub(crate) fn of_file(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes of a safetensors file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Writes them as a safetensors file, which is there as a whole or as it was before. Blocks until it is
    /// on disk.
    ///
    /// # Errors
    /// E244 if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FetchError> {
        write(path.as_ref(), &self.0)
    }

    /// Parameters by name.
    ///
    /// # Errors
    /// E380 if it is no safetensors file of float32, as every snapshot is.
    pub fn tensors(&self) -> Result<BTreeMap<String, Parameter>, ExportError> {
        let damaged = |cause: String| ExportError::Damaged { source_name: "the snapshot".to_owned(), cause };
        let file = SafeTensors::deserialize(&self.0).map_err(|error| damaged(error.to_string()))?;
        file.iter()
            .map(|(name, view)| {
                if view.dtype() != Dtype::F32 {
                    return Err(damaged(format!("`{name}` is {:?}", view.dtype())));
                }
                Ok((
                    name.to_owned(),
                    Parameter { shape: view.shape().to_vec(), values: float32_values(&view) },
                ))
            })
            .collect()
    }
}

impl TrainedModel {
    /// Writes it as an ONNX file, which is there as a whole or as it was before. Blocks until it is on disk.
    ///
    /// # Errors
    /// E244 if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FetchError> {
        write(path.as_ref(), &self.onnx)
    }

    /// With nodes before its float inputs that scale numbers as the job did.
    ///
    /// # Errors
    /// E301 to E308 if the model is none.
    #[doc(hidden)]
    pub fn taking_numbers_of_the_data(self, train: &TrainSpec) -> Result<Self, ExportError> {
        let onnx = with_normalization(&self.onnx, train).map_err(ExportError::Model)?;
        Ok(Self { onnx, ..self })
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), FetchError> {
    place_file(path, bytes, true).map_err(|source| FetchError::Write { path: path.to_owned(), source })
}

impl Client {
    /// The parameters of a job that has written a snapshot, or is over.
    ///
    /// # Errors
    /// E246 if the job has no snapshot, E139 if it is damaged, E131 if there is no such job, E404 and E410 if
    /// no shard gives it as long as this client is patient; E300 if no engine is reached, E136 if none
    /// leads.
    pub async fn weights(&self, job: &JobId) -> Result<Weights, FetchError> {
        self.weights_of(&job.clone().into()).await
    }

    /// The same of the submission that is meant.
    ///
    /// # Errors
    /// As [`weights`](Self::weights), E650 if another job has the name by now.
    #[doc(hidden)]
    pub async fn weights_of(&self, job: &JobRef) -> Result<Weights, FetchError> {
        Ok(Weights(self.blob(self.kept(job).await?.snapshot).await?))
    }

    /// The forward model of such a job with the trained parameters in it, in the form that predicts. It takes
    /// numbers that are scaled as in the data of the job, and says in its metadata how:
    /// `syncline.normalization`, and `syncline.class_names`. Of a job with `scale`, `mean`, `std`,
    /// `standardize` or `normalize`,
    /// [`trained_model_with_normalization`](Self::trained_model_with_normalization) takes those of the files.
    ///
    /// # Errors
    /// As [`weights`](Self::weights); E249 if the job trained a graph that was ready, E247 if the snapshot
    /// does not fit the model, E650 if another job took the name meanwhile.
    pub async fn trained_model(&self, job: &JobId) -> Result<TrainedModel, FetchError> {
        Ok(self.trained(&job.clone().into()).await?.0)
    }

    /// The same with nodes before its float inputs that scale numbers as the job did: it takes them as they
    /// are in the files.
    ///
    /// # Errors
    /// As [`trained_model`](Self::trained_model).
    pub async fn trained_model_with_normalization(&self, job: &JobId) -> Result<TrainedModel, FetchError> {
        let (trained, train) = self.trained(&job.clone().into()).await?;
        Ok(trained.taking_numbers_of_the_data(&train)?)
    }

    /// The trained model, and how it was trained, of the submission that is meant.
    ///
    /// # Errors
    /// As [`trained_model`](Self::trained_model).
    #[doc(hidden)]
    pub async fn trained(&self, job: &JobRef) -> Result<(TrainedModel, TrainSpec), FetchError> {
        let Kept { of, model, snapshot } = self.kept(job).await?;
        let train = self.training(&of.id).await?;
        self.check_not_replaced(&of).await?;
        let (model, snapshot) = (self.blob(model).await?, self.blob(snapshot).await?);
        Ok((fill_of_job(&model, &of.id, &snapshot, &train.data)?, train))
    }

    /// A job's model and its newest snapshot. A job that has just ended may still write its last weights.
    pub(super) async fn kept(&self, job: &JobRef) -> Result<Kept, FetchError> {
        let deadline = Instant::now() + LAST_WEIGHTS_LIMIT;
        loop {
            let status = JobView::read_or_damaged(&self.poll(job, self.patience).await?);
            let status = status.map_err(ClientError::from)?.job;
            match (status.model_digest, status.snapshot_digest) {
                (Some(model), Some(snapshot)) => {
                    return Ok(Kept { of: status.job_ref(), model, snapshot });
                }
                _ if status.weights_pending && Instant::now() < deadline => sleep(POLL_INTERVAL).await,
                _ => return Err(no_snapshot(&job.id, &status)),
            }
        }
    }

    /// Fetches a blob, from wherever its shards are by then.
    pub(super) async fn blob(&self, digest: ContentDigest) -> Result<Vec<u8>, FetchError> {
        let fetch = || async move {
            let (shards, blobs) = (self.shards().await?, BlobClient::new(self.token.clone()));
            Ok(blocking(move || blobs.get(&shards, digest)).await?)
        };
        retry_while_away(self.patience.engine, fetch).await
    }
}

/// Fetches again while a shard is away, for so long: one that is started anew, or taken over, is back in
/// seconds. As [`BlobClient::get_within`], of shards that the engine names anew each time.
async fn retry_while_away<T, F>(limit: Duration, fetch: impl Fn() -> F) -> Result<T, FetchError>
where
    F: Future<Output = Result<T, FetchError>>,
{
    let since = Instant::now();
    let mut missing_since = None::<Instant>;
    loop {
        let fetched = fetch().await;
        let is_late = match &fetched {
            Err(FetchError::Shard(error)) if error.is_away() => since.elapsed() >= limit,
            Err(FetchError::Shard(error)) if error.is_missing() => {
                let missing_since = *missing_since.get_or_insert_with(Instant::now);
                missing_since.elapsed() >= limit.min(MISSING_PATIENCE)
            }
            _ => true,
        };
        if is_late {
            return fetched;
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Why there are no weights of this job.
fn no_snapshot(job: &JobId, status: &JobStatus) -> FetchError {
    if status.state == JobPhase::Damaged {
        // The engine's words for it, as it keeps them among the fields of the job.
        let code = status.code.as_deref().and_then(|code| code.parse().ok());
        let cause = Cause { code, reason: status.coded_reason().unwrap_or_default() };
        return ClientError::from(EngineFault::Unreadable { job: job.clone(), cause }).into();
    }
    if status.weights_pending {
        let because = status.weights_problem.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return FetchError::WeightsPending { job: job.clone(), because };
    }
    if let Some(reason) = status.weights_lost.clone() {
        return FetchError::WeightsLost { job: job.clone(), reason };
    }
    match status.outcome() {
        Some(outcome) => FetchError::NoSnapshot { job: job.clone(), outcome },
        None => {
            let waits = status.waiting_for.as_ref().map(|what| format!(", and waits for {what}"));
            FetchError::NoSnapshotYet { job: job.clone(), waits: waits.unwrap_or_default() }
        }
    }
}

/// What helps where the last weights of a job are lost.
pub(super) fn after_loss(job: &JobId) -> String {
    format!(
        "`syncline submit FILE --new --resume {job}` trains again what its newest checkpoint lacks, if it kept any; `--replace` deletes its \
         checkpoints and trains all of it again"
    )
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs};

    use syncline_rpc::{
        CheckpointParts, ClientServiceRequest as Request, ClientServiceResponse as Response, JobRecord,
        ShardFault,
    };
    use syncline_scheduler::{
        sim::{training, training_job},
        spec::NodeKind,
    };

    use super::*;
    use crate::client::{checkpoint::tests::resume, fake_engine};

    #[test]
    fn submitting_anew_is_advised_only_where_no_weights_are_to_come() {
        let job = "digits".parse().unwrap();
        #[rustfmt::skip]
        let cases = [
            ("running",  "false", "",       "wait until it is over"),
            ("canceled", "true",  "",       "they are tried again"),
            ("canceled", "false", "",       "there is none to come: `syncline checkpoint digits FILE` writes"),
            ("done",     "false", "[E402]", "`syncline submit FILE --new --resume digits` trains again"),
        ];
        for (state, pending, lost, want) in cases {
            let fields =
                [("id", "digits"), ("state", state), ("weights_pending", pending), ("weights_lost", lost)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let error = no_snapshot(&job, &JobStatus::read(&fields.into()).unwrap());
            assert_eq!(error.code(), "E246");
            assert!(error.hint().unwrap().starts_with(want), "{state} {pending}: {error}");
        }
    }

    /// As while somebody submits it again with `--replace`: what the settings are of nobody knows.
    #[tokio::test]
    async fn a_job_that_is_replaced_while_it_is_read_is_not_mixed_with_the_other_one() {
        let digest = ContentDigest::LOWEST.to_string();
        let client = fake_engine::start(move |request| {
            Some(match request {
                Request::Job { job: JobRef { nonce: Some(1), id: job }, .. } => {
                    Response::Job(Err(EngineFault::Replaced { job }))
                }
                Request::Job { .. } => {
                    let fields = [
                        ("id", "digits"),
                        ("state", "done"),
                        ("nonce", "1"),
                        ("model_digest", &*digest),
                        ("snapshot_digest", &*digest),
                    ];
                    let job = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                    Response::Job(Ok(JobRecord { job, ..JobRecord::default() }))
                }
                Request::Training { .. } => {
                    let job = training_job(training("bsp".parse().unwrap(), 64, 32));
                    let mut nodes = job.nodes.into_iter().map(|node| node.kind);
                    let train = nodes.find_map(|kind| match kind {
                        NodeKind::Train(train) => Some(*train),
                        _ => None,
                    });
                    Response::Training(Ok(train.unwrap()))
                }
                Request::Checkpoint { .. } => {
                    Response::Checkpoint(Ok(CheckpointParts { resume: resume(), parts: Vec::new() }))
                }
                Request::WaitJob { job, .. } => {
                    assert_eq!(job.nonce, Some(1));
                    Response::WaitJob(Err(EngineFault::Replaced { job: job.id }))
                }
                _ => return None,
            })
        });
        let (client, job) = (client.await, "digits".parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("digits.safetensors");
        assert_eq!(client.trained_model(&job).await.unwrap_err().code(), "E650");
        assert_eq!(client.trained_model_with_normalization(&job).await.unwrap_err().code(), "E650");
        assert_eq!(client.trained_job(&job).await.unwrap_err().code(), "E650");
        let meant = JobRef { id: job.clone(), nonce: Some(1) };
        assert_eq!(client.trained(&meant).await.unwrap_err().code(), "E650");
        assert_eq!(client.weights_of(&meant).await.unwrap_err().code(), "E650");
        assert_eq!(client.save_checkpoint(&job, None, &file).await.unwrap_err().code(), "E650");
        assert!(!file.exists());
    }

    #[test]
    fn whoever_asks_for_the_weights_of_a_training_that_waits_at_its_end_is_told_for_what() {
        let told = |waits: &str| {
            let fields = [("id", "digits"), ("state", "running"), ("waiting_for", waits)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            no_snapshot(&"digits".parse().unwrap(), &JobStatus::read(&fields.into()).unwrap()).to_string()
        };
        assert_eq!(told(""), "[E246] job digits has no snapshot yet: it is not over");
        assert!(
            told("the shards: the disk is full").ends_with(", and waits for the shards: the disk is full")
        );
    }

    #[test]
    fn nobody_is_told_to_replace_a_job_that_is_set_aside_and_may_go_on() {
        let fields =
            [("id", "digits"), ("state", "damaged"), ("code", "E586"), ("reason", "[E586] it lies on 2")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let error = no_snapshot(&"digits".parse().unwrap(), &JobStatus::read(&fields.into()).unwrap());
        assert_eq!(error.code(), "E139");
        assert!(error.hint().unwrap().ends_with("delete nothing"), "{error}");
    }

    #[tokio::test]
    async fn what_a_shard_that_is_away_or_has_just_taken_over_may_have_is_fetched_again() {
        let unreachable =
            || PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause: "it is cut".into() };
        let second_away =
            || ShardFault::SecondAway { digest: ContentDigest::LOWEST, cause: "it is away".into() };
        let missing = || ShardFault::MissingBlob { digest: ContentDigest::LOWEST };
        let other = || ShardFault::Invalid { what: "w".into() };
        let fetch = async |limit, failures: [PsError; 2]| {
            let left = Cell::new(Vec::from(failures));
            let tries = Cell::new(0);
            let fetched = retry_while_away(limit, || {
                tries.set(tries.get() + 1);
                let mut failures = left.take();
                let failure = failures.pop();
                left.set(failures);
                async { failure.map_or(Ok(()), |error| Err(FetchError::Shard(error))) }
            });
            (fetched.await.map_err(|error| error.code().to_string()), tries.get())
        };
        let minute = Duration::from_secs(60);
        let both = [unreachable(), second_away().into()];
        assert_eq!(fetch(minute, both).await, (Ok(()), 3));
        assert_eq!(fetch(minute, [missing().into(), unreachable()]).await, (Ok(()), 3));
        assert_eq!(fetch(minute, [unreachable(), other().into()]).await.1, 1);
        let impatient = fetch(Duration::ZERO, [missing().into(), unreachable()]).await;
        assert_eq!(impatient, (Err("E410".to_owned()), 1));
    }

    #[test]
    fn weights_replace_a_file_by_another_one_and_leave_what_cannot_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("digits.safetensors");
        let weights = |byte| Weights(vec![byte; 3]);
        weights(1).save(&path).unwrap();
        let reader = fs::File::open(&path).unwrap();
        weights(2).save(&path).unwrap();
        assert_eq!(
            io::read_to_string(reader).unwrap(),
            "\u{1}\u{1}\u{1}",
            "half of one and half of the other"
        );
        assert_eq!(fs::read(&path).unwrap(), [2; 3]);
        let error = weights(3).save(dir.path()).unwrap_err();
        assert_eq!(error.code(), "E244");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing unfinished is left");
    }
}
