//! A training's checkpoint as a file: for another job, another cluster, or people.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    time::Duration,
};

use syncline_ps::checkpoint_file::{CheckpointSamples, write_checkpoint_file};
use syncline_rpc::{ClientServiceClient, folder, input, within};
use syncline_scheduler::{ids::JobId, spec::ResumeSpec};
use tokio::{runtime::Handle, time::sleep};

use super::{Client, ClientError, FetchError, calls::CALL_TIMEOUT};
use crate::blocking;

/// A checkpoint that was written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedCheckpoint {
    /// Its number among the checkpoints of the job.
    pub number: u64,
    /// Samples that are in its parameters.
    pub samples: u64,
    /// Epochs that were over.
    pub epoch: u32,
    /// Of the file.
    pub bytes: u64,
}

/// From one question whether a checkpoint is complete to the next.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Client {
    /// Has the shards keep a checkpoint of what a training has learned so far, and waits until it is
    /// complete: until all workers have ended what they hold, and all shards have written. Training goes
    /// on once they have copied. Of a training that is paused one is kept as well. Its number is that of
    /// the result, or a smaller one where a later checkpoint came first.
    ///
    /// # Errors
    /// E638 if none can be made, as of a graph of tasks, or with `checkpoint = "none"`, or does not come
    /// because of a full disk; E131 if there is no such job, E137 if it is over; E300 if no engine is
    /// reached, E136 if none leads.
    pub async fn keep_checkpoint(&self, job: &JobId) -> Result<u64, ClientError> {
        let asked = |c: ClientServiceClient| {
            let job = job.clone();
            async move { c.request_checkpoint(within(CALL_TIMEOUT), job).await }
        };
        let number = self.retry(asked).await?;
        let is_there = |c: ClientServiceClient| {
            let job = job.clone();
            async move { c.has_checkpoint(within(CALL_TIMEOUT), job, number).await }
        };
        while !self.retry(is_there).await? {
            sleep(ASK_AGAIN_AFTER).await;
        }
        Ok(number)
    }

    /// Writes a training's checkpoint, the newest or the one of this `number`, as one safetensors file:
    /// parameters, the optimizer's state, and how far the training was.
    /// [`Settings::resume`](crate::submit::Settings::resume) goes on from it, with any number of shards
    /// and workers.
    ///
    /// The job may be running or over; one that is done has that of its end, if that was asked for in its
    /// settings. The file is complete or absent. Costs the memory of one shard's part. Each shard keeps
    /// its part for ten minutes, and a second more for each MB of all, where it would have been removed
    /// before.
    ///
    /// # Errors
    /// E146 if the job has no such checkpoint, E244 if the file cannot be written, E650 if another job took the
    /// name meanwhile.
    pub async fn save_checkpoint(
        &self,
        job: &JobId,
        number: Option<u64>,
        path: impl Into<PathBuf>,
    ) -> Result<SavedCheckpoint, FetchError> {
        let path = path.into();
        let of = self.status(job).await?.job.job_ref();
        let train = self.training(job).await?;
        let samples = CheckpointSamples::of(&train.data, train.seed);
        let kept = self.checkpoint_parts(job, number).await?;
        self.check_not_replaced(&of).await?;
        let (client, runtime) = (self.clone(), Handle::current());
        // Ours, not of the thread that writes: whoever gives this call up leaves nothing behind.
        let unfinished = Unfinished::new(&path);
        let partial = unfinished.0.clone();
        let saved = blocking(move || {
            let get = |digest| runtime.block_on(client.blob(digest));
            write(&path, &partial, (kept.resume, samples), kept.parts.into_iter().map(get))
        })
        .await;
        drop(unfinished);
        saved
    }
}

/// The name of a file that is being written: of no other call, even in other containers and before a crash,
/// where processes have the same numbers; and in the same folder, so that it can be renamed. The file is
/// removed when this is dropped before it has been.
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(path: &Path) -> Self {
        Self(path.with_added_extension(format!("{:016x}.partial", rand::random::<u64>())))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Usually it has its own name by now.
        let _ = fs::remove_file(&self.0);
    }
}

/// A new file that its owner alone can read: weights and moments tell much about the data.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn write(
    path: &Path,
    unfinished: &Path,
    (resume, samples): (ResumeSpec, CheckpointSamples),
    parts: impl ExactSizeIterator<Item = Result<Vec<u8>, FetchError>>,
) -> Result<SavedCheckpoint, FetchError> {
    let saved = SavedCheckpoint {
        number: resume.checkpoint,
        samples: resume.samples(),
        epoch: resume.position.epoch,
        bytes: 0,
    };
    let mut refused = None;
    let parts = parts.map(|part| {
        part.map_err(|error| {
            refused = Some(error);
            io::Error::other("a part of it cannot be fetched")
        })
    });
    let finish = || -> io::Result<u64> {
        input::check_replaceable(path)?;
        let mut out = BufWriter::with_capacity(1 << 20, private_file(unfinished)?);
        write_checkpoint_file(resume, Some(samples), parts, &mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(unfinished, path)?;
        folder::sync_name(path)?;
        Ok(file.metadata()?.len())
    };
    finish().map(|bytes| SavedCheckpoint { bytes, ..saved }).map_err(|source| match refused {
        Some(error) => error,
        None => FetchError::Write { path: path.to_owned(), source },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use syncline_scheduler::{
        samples::SamplePosition,
        spec::{DataSpec, Source},
    };

    use super::*;

    pub(in crate::client) fn resume() -> ResumeSpec {
        ResumeSpec {
            job: "digits".parse().unwrap(),
            checkpoint: 1,
            epoch_samples: 10,
            train_samples: 10,
            seed: 0,
            shuffle: true,
            position: SamplePosition::default(),
            iterations: 0,
            iterations_torn: 0,
            samples_torn: 0,
            steps_by_round: false,
            evaluated: true,
            evaluations: None,
            reduced_rate: None,
            steps: Vec::new(),
        }
    }

    #[test]
    fn what_is_no_file_makes_way_for_none_and_what_fails_leaves_nothing() {
        let resume = resume();
        let samples = CheckpointSamples::of(&DataSpec::new(Source::csv("a.csv")), 0);
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let write = |path: &Path| {
            let unfinished = Unfinished::new(path);
            let about = (resume.clone(), samples.clone());
            write(path, &unfinished.0, about, std::iter::empty()).unwrap_err().to_string()
        };
        let error = write(&folder);
        assert!(error.contains("[E244]") && error.contains("not a file"), "{error}");
        let error = write(&dir.path().join("new"));
        assert!(error.contains("[E244]"), "{error}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [folder]);
    }

    #[test]
    fn nobody_meets_or_removes_what_another_one_of_the_same_process_number_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("digits.safetensors");
        let process = std::process::id();
        let others = (0..100).map(|n| path.with_added_extension(format!("{process}-{n}.partial")));
        let others: Vec<PathBuf> = others.collect();
        others.iter().for_each(|other| drop(private_file(other).unwrap()));
        for _ in 0..2 {
            let unfinished = Unfinished::new(&path);
            private_file(&unfinished.0).unwrap();
        }
        assert!(others.iter().all(|other| other.exists()));
        assert_ne!(Unfinished::new(&path).0, Unfinished::new(&path).0);
    }

    #[test]
    fn who_gives_up_a_checkpoint_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let unfinished = Unfinished::new(&dir.path().join("digits.safetensors"));
        private_file(&unfinished.0).unwrap();
        drop(unfinished);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
