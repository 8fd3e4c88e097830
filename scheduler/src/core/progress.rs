//! How far a training is: what goes back to a checkpoint, and what another training takes over with one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    epoch_losses::EpochLosses,
    evaluation_watch::EvaluationWatch,
    inputs::TaskFault,
    job::Job,
    records::{Counters, JobState},
};
use crate::{
    ids::RunId,
    samples::SampleCursor,
    spec::{EvaluationsBefore, ReducedRate, ResumeSpec, TrainSpec},
};

/// How far training was at a moment of rest: what goes back with the parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub cursor: SampleCursor,
    pub counters: Counters,
    pub counted: BTreeMap<u32, u64>,
    pub epochs_complete: u32,
    pub loss: Option<f32>,
    /// What its evaluations had shown.
    #[serde(default)]
    pub watch: EvaluationWatch,
    /// Of a checkpoint of an earlier release there are none.
    #[serde(default)]
    pub epoch_losses: EpochLosses,
}

impl Progress {
    /// That of a job, which must be at rest: nothing of it is on its way to the parameters.
    pub(super) fn of(state: &JobState) -> Self {
        Self {
            cursor: state.cursor.clone(),
            counters: state.counters.clone(),
            counted: state.counted.clone(),
            epochs_complete: state.epochs_complete,
            loss: state.loss,
            watch: state.evaluations.watch.clone(),
            epoch_losses: state.epoch_losses.clone(),
        }
    }

    /// Where a training begins: at its first sample, or where the one was that it goes on with.
    pub(super) fn at_begin(train: &TrainSpec) -> Self {
        let samples = train.epoch_samples();
        let Some(resume) = &train.resume else {
            return Self {
                cursor: SampleCursor::new(samples, train.epochs),
                counters: Counters::default(),
                counted: BTreeMap::new(),
                epochs_complete: 0,
                loss: None,
                watch: EvaluationWatch::default(),
                epoch_losses: EpochLosses::default(),
            };
        };
        let before = resume.evaluations.as_ref().filter(|before| before.is_of(train));
        let reduced = resume.reduced_rate.filter(|reduced| reduced.goes_on_in(train));
        let mut watch = before.map(EvaluationWatch::going_on).unwrap_or_default();
        watch.multiplier = reduced.map(|reduced| reduced.multiplier);
        let (counted, epochs_complete) = resume.position.handed_out_by_epoch(samples);
        let counters = Counters {
            done: resume.iterations - resume.iterations_torn,
            torn: resume.iterations_torn,
            samples_done: resume.samples() - resume.samples_torn,
            samples_torn: resume.samples_torn,
            ..Counters::default()
        };
        let cursor = SampleCursor::at(samples, train.epochs, resume.position.clone());
        let epoch_losses = EpochLosses::default();
        Self { cursor, counters, counted, epochs_complete, loss: None, watch, epoch_losses }
    }
}

/// What evaluations had left of the learning rate by then.
fn reduced_rate(train: &TrainSpec, watch: &EvaluationWatch) -> Option<ReducedRate> {
    let multiplier = watch.reduced_by(train.evaluate.as_ref()).filter(|multiplier| *multiplier < 1.0)?;
    Some(ReducedRate { learning_rate: train.learning_rate.base, multiplier })
}

/// What another training needs to go on from a checkpoint, beside what the shards hold of it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptCheckpoint {
    /// The job's present one; the nonce in it names the folder of the job's checkpoints on each shard.
    pub run: RunId,
    /// Without the optimizer's steps, which are with the parameters.
    pub resume: ResumeSpec,
    /// On the disks of all shards.
    pub bytes: u64,
}

impl Job {
    /// Numbers of the complete checkpoints, the newest last.
    pub fn checkpoint_numbers(&self) -> Vec<u64> {
        self.state.checkpoints.numbers()
    }

    /// Why the last try to keep one failed, in words; `None` once one is complete since.
    pub fn checkpoint_problem(&self) -> Option<String> {
        self.state.checkpoints.failing.as_ref().map(TaskFault::in_words)
    }

    /// A complete checkpoint: the newest, or the one of this number.
    pub fn kept_checkpoint(&self, number: Option<u64>) -> Option<KeptCheckpoint> {
        let checkpoints = &self.state.checkpoints;
        let checkpoint = match number {
            Some(number) => checkpoints.complete.iter().find(|checkpoint| checkpoint.number == number)?,
            None => checkpoints.newest()?,
        };
        let (train, Progress { cursor, counters, .. }) = (self.train(), &checkpoint.progress);
        let resume = ResumeSpec {
            job: self.id().clone(),
            checkpoint: checkpoint.number,
            epoch_samples: train.epoch_samples(),
            train_samples: train.data.train_samples,
            seed: train.seed,
            shuffle: train.shuffle,
            position: cursor.position(),
            iterations: counters.done + counters.torn,
            iterations_torn: counters.torn,
            samples_torn: counters.samples_torn,
            steps_by_round: train.steps_by_round(),
            steps: Vec::new(),
            evaluated: checkpoint.evaluation.is_some(),
            evaluations: self.evaluations_before(&checkpoint.progress.watch),
            reduced_rate: reduced_rate(train, &checkpoint.progress.watch),
        };
        Some(KeptCheckpoint { run: self.run(), resume, bytes: checkpoint.bytes })
    }

    /// What evaluations had shown by then, and where the parameters of the best are.
    fn evaluations_before(&self, watch: &EvaluationWatch) -> Option<EvaluationsBefore> {
        let before = watch.told_on(self.train())?;
        let kept = self.best_checkpoint().filter(|kept| kept.samples() == before.best_samples);
        Some(EvaluationsBefore { best_checkpoint: kept.map(|kept| kept.number), ..before })
    }
}
