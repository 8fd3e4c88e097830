//! One job.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    core::{EvaluationSet, JobPhase},
    fault_code::FaultCode,
    ids::{ContentDigest, JobId, JobRef},
    spec::SettingList,
};

use super::{
    Figures, TaskCounts, figures,
    text::{self, UnknownFields},
};
use crate::{JobFields, ListedJobs};

/// One job as of its last commit. Times ending in `_ms` are of the epoch of Unix if they are moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobStatus {
    /// Its name.
    pub id: JobId,
    /// What was drawn for its submission: a job that takes the name later has another.
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub nonce: Option<u32>,
    /// Where it stood at that commit, or that it is damaged.
    pub state: JobPhase,
    /// Stable code of why it failed.
    #[serde(default)]
    pub code: Option<String>,
    /// Why it failed or was canceled, in words.
    #[serde(default)]
    pub reason: Option<String>,
    /// What the job as a whole waits for, in words.
    #[serde(default)]
    pub waiting_for: Option<String>,
    /// What stands in the way of every job right now, and which of its workers do not reach which shard, in
    /// words.
    #[serde(default)]
    pub problem: Option<String>,
    /// How the bytes of its live workers travel to the shards, and whose, where they differ.
    #[serde(default)]
    pub transport: Option<String>,
    /// Workers that could not run it and are not offered it for now, with host and reason.
    #[serde(default)]
    pub excluded: Option<String>,
    /// The task of a graph for which it trains, in words.
    #[serde(default)]
    pub trains_for: Option<String>,
    /// The checkpoint of another job from which it went on, as `JOB/NUMBER`.
    #[serde(default)]
    pub resumed_from: Option<String>,
    /// Rule by which its workers meet, such as `bsp`; empty for a job of general tasks.
    #[serde(default)]
    pub policy: String,
    /// What makes steps of gradients, with its settings where they are not the usual ones, such as `adam,
    /// weight_decay 0.1`; unknown of a job of general tasks, as what follows.
    #[serde(default)]
    pub optimizer: Option<String>,
    /// Rate of its steps, behind a warmup.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// How the rate changes, in words; `None` if it does not.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Samples per iteration and worker.
    #[serde(default)]
    pub batch: Option<u32>,
    /// Most samples that a worker computes on at once; `None`: a whole batch.
    #[serde(default)]
    pub micro_batch: Option<u32>,
    /// Seed of the order of the samples, of those that are held out, and of Dropout.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Gradients with a larger global norm are scaled down to it; `None`: none are.
    #[serde(default)]
    pub clip_norm: Option<f64>,
    /// What the graph computes in, such as `f32`.
    #[serde(default)]
    pub precision: Option<String>,
    /// All of its settings as a job file has them, those that are the default left out but for optimizer,
    /// learning rate, policy, batch, epochs and seed; none of a job of general tasks, or of an earlier
    /// release.
    #[serde(default)]
    pub settings: SettingList,
    /// How gradients travel to the shards; unknown of a job of general tasks.
    #[serde(default)]
    pub compression: Option<String>,
    /// How parameters travel to the workers; unknown of a job of general tasks.
    #[serde(default)]
    pub pull_compression: Option<String>,
    /// Parameters of which only the rows travel that a batch reads.
    #[serde(default)]
    pub row_tables: Option<String>,
    /// How many parameters train with another weight decay or learning rate than the rest, in words.
    #[serde(default)]
    pub groups: Option<String>,
    /// BLAKE3 of the forward model, which the parameter server keeps.
    #[serde(default)]
    pub model_digest: Option<ContentDigest>,
    /// Which generation of the parameters this is, from 1: restoring them begins another.
    #[serde(default)]
    pub generation: u32,
    /// Those that take part now; none when it is over.
    #[serde(default)]
    pub workers: u32,
    /// Shards of the parameter server that hold its parameters.
    #[serde(default)]
    pub shards: u32,
    /// Passes over the training set that the counted samples amount to, rounded down.
    #[serde(default)]
    pub epoch: u32,
    /// Passes of which every sample is counted.
    #[serde(default)]
    pub epochs_complete: u32,
    /// Passes that were asked for.
    #[serde(default)]
    pub epochs: u32,
    /// Samples of done and torn iterations.
    #[serde(default)]
    pub samples_applied: u64,
    /// Samples of all passes that were asked for.
    #[serde(default)]
    pub samples_total: u64,
    /// On average over `training_seconds`.
    #[serde(default)]
    pub samples_per_s: f64,
    /// Over the last five to ten seconds before `progress_ms`, when the count last rose; only while it
    /// trains.
    #[serde(default)]
    pub samples_per_s_lately: Option<f64>,
    /// When `samples_applied` last rose; before it ever did, when that was last looked at.
    #[serde(default)]
    pub progress_ms: u64,
    /// Their pushes are in on every shard.
    #[serde(default)]
    pub iterations_done: u64,
    /// Returned to the pool.
    #[serde(default)]
    pub iterations_lost: u64,
    /// Pushed to some shards when the worker died.
    #[serde(default)]
    pub iterations_torn: u64,
    /// Not finite, pushed without weight.
    #[serde(default)]
    pub iterations_skipped: u64,
    /// Undone when the job went back to a checkpoint: they count in nothing else.
    #[serde(default)]
    pub iterations_rolled_back: u64,
    /// Samples of those.
    #[serde(default)]
    pub samples_rolled_back: u64,
    /// Which checkpoints it keeps, in words; unknown of a job of general tasks, or of an earlier release.
    #[serde(default)]
    pub checkpoints: Option<String>,
    /// Number of the newest complete checkpoint.
    #[serde(default)]
    pub checkpoint: Option<u64>,
    /// The moment whose parameters it holds.
    #[serde(default)]
    pub checkpoint_ms: Option<u64>,
    /// Samples that were counted by then.
    #[serde(default)]
    pub checkpoint_samples: Option<u64>,
    /// Its size on all shards.
    #[serde(default)]
    pub checkpoint_bytes: Option<u64>,
    /// Why the newest that was tried failed, with its code; `None` once one is complete.
    #[serde(default)]
    pub checkpoint_problem: Option<String>,
    /// Of the newest report; not finite if it diverged.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Mean over all samples of the newest epoch that is complete.
    #[serde(default)]
    pub epoch_loss: Option<f64>,
    /// Closed so far.
    #[serde(default)]
    pub barriers: u64,
    /// In words.
    #[serde(default)]
    pub next_barrier: Option<String>,
    /// Predicted waiting at barriers, all workers together.
    #[serde(default)]
    pub predicted_wait_ms: u64,
    /// Actual waiting at barriers, all workers together; a barrier counts once it is known when each worker
    /// came to it.
    #[serde(default)]
    pub actual_wait_ms: u64,
    /// All waiting of workers for others, at barriers and where the policy lets nobody go further ahead,
    /// together.
    #[serde(default)]
    pub waited_ms: u64,
    /// Supersteps that were planned again because a worker overran its prediction.
    #[serde(default)]
    pub replanned: u64,
    /// Iterations that the fastest worker is ahead of the slowest now.
    #[serde(default)]
    pub lead: u64,
    /// The most that a worker was ahead of the slowest when its push was in, as a shard saw it.
    #[serde(default)]
    pub max_lead: u64,
    /// When the engine took it in.
    #[serde(default)]
    pub submitted_ms: Option<u64>,
    /// When the shards first held its parameters, or all of its general tasks had come.
    #[serde(default)]
    pub started_ms: Option<u64>,
    /// When every sample was counted; `None` again after it has gone back to a checkpoint.
    #[serde(default)]
    pub trained_ms: Option<u64>,
    /// When it was over, however it ended.
    #[serde(default)]
    pub ended_ms: Option<u64>,
    /// For how long it has trained, without the queue, pauses, and what no engine led; `None` before it
    /// began.
    #[serde(default)]
    pub training_seconds: Option<f64>,
    /// The figure that says which evaluation is the best, such as `validation loss`; `None` where the
    /// training is not evaluated.
    #[serde(default)]
    pub monitor: Option<String>,
    /// Samples that the model had seen at the best evaluation so far; once its parameters or those of a
    /// worse one are handed on in place of the last ones, at the one that they are of.
    #[serde(default)]
    pub best_samples: Option<u64>,
    /// What it measured.
    #[serde(flatten, with = "figures::best")]
    pub best: Figures,
    /// When that was.
    #[serde(default)]
    pub best_ms: Option<u64>,
    /// The checkpoint in which the shards keep the parameters of the best evaluation, where they are to.
    #[serde(default)]
    pub best_checkpoint: Option<u64>,
    /// Why the parameters of the best evaluation are not handed on, in words: the shards could not keep or
    /// not read them.
    #[serde(default)]
    pub best_lost: Option<String>,
    /// What the learning rate is, behind the warmup and before any decay, since evaluations have reduced it;
    /// `None` if they have not.
    #[serde(default)]
    pub reduced_learning_rate: Option<f64>,
    /// Why training ended before its epochs were over, in words.
    #[serde(default)]
    pub stopped_early: Option<String>,
    /// With which parameters training ended: `best`, those after `best_samples`, or `last`.
    #[serde(default)]
    pub handed_on: Option<String>,
    /// What the newest evaluation on validation samples measured.
    #[serde(flatten, with = "figures::validation")]
    pub validation: Figures,
    /// Validation samples on which it was measured.
    #[serde(default)]
    pub validation_samples: Option<u64>,
    /// What the newest evaluation on test samples measured: of a node `evaluate`, while it trains, or at its
    /// end.
    #[serde(flatten, with = "figures::test")]
    pub test: Figures,
    /// Samples on which it was measured.
    #[serde(default)]
    pub test_samples: Option<u64>,
    /// The file that a `snapshot` node wrote, or the last weights of a job that is over.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// BLAKE3 of that file.
    #[serde(default)]
    pub snapshot_digest: Option<ContentDigest>,
    /// Whether it is over and its last weights are still to be written.
    #[serde(default)]
    pub weights_pending: bool,
    /// Why they are not written yet, in words: they are tried again.
    #[serde(default)]
    pub weights_problem: Option<String>,
    /// Why they are lost, in words, with the code.
    #[serde(default)]
    pub weights_lost: Option<String>,
    /// Of a job of general tasks, about which nothing of the above is known that has to do with training.
    #[serde(default)]
    pub tasks: Option<TaskCounts>,
}

/// Jobs, oldest first.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JobList {
    /// All that go on, and of those that are over as many as were asked for, the newest.
    pub jobs: Vec<JobStatus>,
    /// Jobs that are over and that were not asked for, and the oldest of all where there are more than some
    /// ten thousand.
    pub left_out: u32,
}

impl JobList {
    /// As the engine lists them; one that cannot be read is damaged.
    ///
    /// # Errors
    /// E143 if this release cannot read them.
    #[doc(hidden)]
    pub fn read(listed: &ListedJobs) -> Result<Self, UnknownFields> {
        let jobs = listed.jobs.iter().map(JobStatus::read_or_damaged).collect::<Result<_, _>>()?;
        Ok(Self { jobs, left_out: listed.left_out })
    }
}

impl JobStatus {
    /// The set of samples by whose figure the best evaluation is chosen; `None` where no figure chooses one.
    pub fn monitored_set(&self) -> Option<EvaluationSet> {
        let is_validation = self.monitor.as_ref()?.starts_with(EvaluationSet::Validation.name());
        Some(if is_validation { EvaluationSet::Validation } else { EvaluationSet::Test })
    }

    /// What the newest evaluation on these samples measured.
    pub fn figures(&self, on: EvaluationSet) -> &Figures {
        match on {
            EvaluationSet::Validation => &self.validation,
            EvaluationSet::Test => &self.test,
        }
    }

    /// The job that this one went on from, as long as the best evaluation is still one of that job.
    pub fn whose_best(&self) -> Option<&str> {
        let from =
            self.resumed_from.as_ref().filter(|_| self.best_samples.is_some() && self.best_ms.is_none())?;
        Some(from.rsplit_once('/').map_or(from, |(job, _)| job))
    }

    /// From the fields of the `job` hash.
    ///
    /// # Errors
    /// E143 if this release cannot read them.
    #[doc(hidden)]
    pub fn read(fields: &JobFields) -> Result<Self, UnknownFields> {
        let what = format!("job {}", fields.get("id").map_or("?", String::as_str));
        Ok(Self { tasks: TaskCounts::read(&what, fields)?, ..text::read(&what, fields)? })
    }

    /// Reads a job; one that cannot be read is damaged, so that it hides no other.
    ///
    /// # Errors
    /// E143 if this release cannot read them.
    #[doc(hidden)]
    pub fn read_or_damaged(fields: &JobFields) -> Result<Self, UnknownFields> {
        Self::read(fields).or_else(|error| Self::damaged(fields, &error))
    }

    /// What is known of a job of which something cannot be read.
    pub(super) fn damaged(fields: &JobFields, error: &UnknownFields) -> Result<Self, UnknownFields> {
        let known = fields.iter().filter(|(name, _)| ["id", "problem"].contains(&name.as_str()));
        let known = known.map(|(name, value)| (name.clone(), value.clone()));
        let said = [("state", "damaged"), ("code", "E143"), ("reason", &error.to_string())]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self::read(&known.chain(said).collect())
    }

    /// This job, and none that takes its name later. Which one a damaged job was nobody can say.
    #[doc(hidden)]
    pub fn job_ref(&self) -> JobRef {
        let nonce = self.nonce.filter(|_| self.state != JobPhase::Damaged);
        JobRef { id: self.id.clone(), nonce }
    }

    /// Whether nothing follows unless somebody mends it.
    pub fn is_over(&self) -> bool {
        self.state.is_over()
    }

    /// Whether nothing of it is to come any more: it is over, and where it is done its last weights are
    /// written, or lost.
    pub fn is_settled(&self) -> bool {
        self.is_over() && !(self.state == JobPhase::Done && self.weights_pending)
    }

    /// Why it failed, behind the code, or why it was canceled; `None` if nobody said.
    pub fn coded_reason(&self) -> Option<String> {
        let reason = self.reason.as_deref()?;
        let code = self.code.as_deref().and_then(|code| code.parse::<FaultCode>().ok());
        Some(code.map_or(Cow::Borrowed(reason), |code| code.in_front_of(reason)).into_owned())
    }

    /// How it ended, in words such as `canceled: too slow`; `None` while it goes on.
    pub fn outcome(&self) -> Option<String> {
        let reason = self.coded_reason().map(|reason| format!(": {reason}")).unwrap_or_default();
        self.is_over().then(|| format!("{}{reason}", self.state.word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> JobFields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_damaged_job_says_what_it_can() {
        let known = [("id", "a"), ("state", "damaged"), ("code", "E030"), ("reason", "cut"), ("problem", "")];
        let job = JobStatus::read(&fields(&known)).unwrap();
        assert!(job.is_over());
        assert_eq!((job.code.as_deref(), job.problem, job.loss), (Some("E030"), None, None));
    }

    #[test]
    fn the_best_evaluation_is_another_jobs_until_one_of_its_own_is_better_table() {
        let (from, samples, ms) = (("resumed_from", "before/3"), ("best_samples", "24"), ("best_ms", "1000"));
        #[rustfmt::skip]
        let cases = [
            (vec![],                  None),
            (vec![samples, ms],       None),
            (vec![from],              None),
            (vec![from, samples],     Some("before")),
        ];
        for (known, want) in cases {
            let job = JobStatus::read(&fields(&[&known[..], &[("id", "a"), ("state", "running")]].concat()))
                .unwrap();
            assert_eq!(job.whose_best(), want, "{known:?}");
        }
        let own = fields(&[("id", "a"), ("state", "running"), from, samples, ms]);
        assert_eq!(JobStatus::read(&own).unwrap().whose_best(), None);
    }

    #[test]
    fn phases_are_called_the_same_in_redis_json_and_words() {
        for phase in
            ["queued", "opening", "running", "paused", "canceling", "done", "failed", "canceled", "damaged"]
        {
            let job = JobStatus::read(&fields(&[("id", "a"), ("state", phase)])).unwrap();
            assert_eq!(job.state.word(), phase);
        }
        let asleep = fields(&[("id", "a"), ("state", "asleep")]);
        assert!(JobStatus::read(&asleep).is_err());
        let job = JobStatus::read_or_damaged(&asleep).unwrap();
        assert_eq!((job.state, job.code.as_deref()), (JobPhase::Damaged, Some("E143")));
        assert!(job.reason.unwrap().contains("unknown variant `asleep`"));
    }
}
