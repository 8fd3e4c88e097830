//! Where another training was when its checkpoint was taken: a training that is to go on from there.

use serde::{Deserialize, Serialize};

use super::{Metric, ReducedRate, TrainSpec, train::yes};
use crate::{
    ids::{ContentDigest, JobId},
    samples::SamplePosition,
};

/// Most runs of steps beyond one for each 65,536 parameters: more shards than there can be.
const MAX_SHORT_RUNS: u64 = 65_536;
/// Most ranges that came back and were not handed out again: more than workers have in hand.
const MAX_RETURNED: usize = 10_000;
/// More steps than any training has, and far from where counters end.
const MAX_STEPS: u64 = 1 << 53;

/// A moment of rest of another training, with which this one begins. Its parameters and the optimizer's state
/// are in the blob of the initial parameters, a checkpoint file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResumeSpec {
    /// The job whose checkpoint it is.
    pub job: JobId,
    /// Number of the checkpoint in that job, from 0.
    pub checkpoint: u64,
    /// Samples of one epoch there.
    pub epoch_samples: u64,
    /// Samples that trained there, of which `drop_last` leaves some out of an epoch; 0: of a release that
    /// did not note it.
    #[serde(default)]
    pub train_samples: u64,
    /// Seed of their order there; this training must have the same.
    pub seed: u64,
    /// Whether they were shuffled there; else they came in the order of the files.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// How far the samples were handed out: all of these are in the parameters.
    pub position: SamplePosition,
    /// Iterations that are in the parameters.
    pub iterations: u64,
    /// How many of them are in a part of the parameters only.
    pub iterations_torn: u64,
    /// Samples of these.
    pub samples_torn: u64,
    /// Whether the optimizer's state is that of steps with the changes of whole rounds (DiLoCo), not with
    /// gradients.
    #[serde(default)]
    pub steps_by_round: bool,
    /// Steps that the optimizer has done, run by run of the trained parameters.
    pub steps: Vec<StepRun>,
    /// Whether an evaluation there was of what is in the parameters.
    #[serde(default = "yes")]
    pub evaluated: bool,
    /// What its evaluations had shown by then; `None` if there were none.
    #[serde(default)]
    pub evaluations: Option<EvaluationsBefore>,
    /// What they had left of its learning rate; `None` if they had not reduced it.
    #[serde(default)]
    pub reduced_rate: Option<ReducedRate>,
}

/// What the evaluations of another training had shown when its checkpoint was taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvaluationsBefore {
    /// The figure that said what was better.
    pub monitor: Metric,
    /// Whether it was that of the validation samples, not of the test samples.
    pub on_validation: bool,
    /// The best so far.
    pub best: f64,
    /// After how many samples that was.
    pub best_samples: u64,
    /// The checkpoint that has the parameters of the best, where the other job kept it.
    pub best_checkpoint: Option<u64>,
    /// The figure of the last improvement by more than `min_delta`.
    pub improved: f64,
    /// Evaluations since.
    pub waited: u32,
    /// Evaluations since that or since the learning rate was reduced.
    #[serde(default)]
    pub stalled: u32,
    /// What computed the figures: the loss is in it. `None`: of a release that did not note it.
    #[serde(default)]
    pub graph: Option<ContentDigest>,
    /// BLAKE3 of all files of its data, where it is known.
    #[serde(default)]
    pub data: Option<ContentDigest>,
}

impl EvaluationsBefore {
    /// Whether a training measures the same as these did, so that it can go on from them: a harder set, or a
    /// loss with other weights, would never be better than they were.
    pub fn is_of(&self, train: &TrainSpec) -> bool {
        let may_be = |there: Option<ContentDigest>, here: Option<ContentDigest>| {
            there.zip(here).is_none_or(|(there, here)| there == here)
        };
        let is_same = may_be(self.graph, Some(train.model.evaluation_graph));
        self.is_by_figure_of(train) && is_same && may_be(self.data, train.data.digest)
    }

    /// Whether a training decides by the same figure on the same kind of samples.
    pub fn is_by_figure_of(&self, train: &TrainSpec) -> bool {
        let same = |monitor| monitor == self.monitor && train.data.has_validation() == self.on_validation;
        train.evaluate.is_some_and(|evaluate| same(evaluate.monitor))
    }
}

/// Neighboring parameters for which the optimizer has done as many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRun {
    /// Consecutive numbers of the flat array, at least 1.
    pub elements: u64,
    /// Steps that the optimizer has done with each of them.
    pub steps: u64,
}

impl StepRun {
    /// Elements of all runs together; `None` if that is more than there can be.
    pub fn total_elements(runs: &[Self]) -> Option<u64> {
        runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.elements))
    }
}

impl ResumeSpec {
    /// Samples that are in the parameters.
    pub fn samples(&self) -> u64 {
        self.position.handed_out(self.epoch_samples)
    }

    /// Why `train` cannot go on from here, in words.
    pub(super) fn fault(&self, train: &TrainSpec) -> Option<String> {
        if self.epoch_samples != train.epoch_samples() {
            let (there, here) = (self.epoch_samples, train.epoch_samples());
            return Some(format!("an epoch had {there} samples there and has {here} here"));
        }
        if self.train_samples != 0 && self.train_samples != train.data.train_samples {
            let (there, here) = (self.train_samples, train.data.train_samples);
            return Some(format!("the data had {there} samples that train there and has {here} here"));
        }
        if self.shuffle != train.shuffle {
            let (there, here) = (self.shuffle, train.shuffle);
            return Some(format!(
                "the order of the samples is another: shuffle = {there} there, {here} here"
            ));
        }
        if self.seed != train.seed {
            let (there, here) = (self.seed, train.seed);
            return Some(format!("the order of the samples is another: seed {there} there, {here} here"));
        }
        if self.steps_by_round != train.steps_by_round() && train.shard_optimizer().moments() > 0 {
            return Some(match self.steps_by_round {
                true => {
                    "its momentum is that of diloco's rounds, and this policy steps with gradients".to_owned()
                }
                false => "its momentum is that of gradients, and diloco steps with the changes of rounds"
                    .to_owned(),
            });
        }
        if self.position.returned.len() > MAX_RETURNED {
            return Some(format!("more than {MAX_RETURNED} ranges of samples have come back"));
        }
        if let Some(what) = self.position.fault(self.epoch_samples) {
            return Some(what.to_owned());
        }
        let position = (self.position.epoch, self.position.next);
        if self.samples() >= train.total_samples() || position > (train.epochs, 0) {
            let (epoch, epochs) = (self.position.epoch, train.epochs);
            return Some(format!("{epoch} epochs are done there already, and this job has {epochs}"));
        }
        // An iteration has a sample or more.
        let (iterations, torn) = (self.iterations, self.iterations_torn);
        if iterations > self.samples() || torn > iterations || self.samples_torn > self.samples() {
            return Some("its counters contradict each other".to_owned());
        }
        let is_possible = |seen: &EvaluationsBefore| {
            seen.best.is_finite() && seen.improved.is_finite() && seen.best_samples <= self.samples()
        };
        if !self.evaluations.as_ref().is_none_or(is_possible) {
            return Some("its evaluations contradict the rest".to_owned());
        }
        if !self.reduced_rate.is_none_or(|reduced| reduced.is_possible()) {
            return Some("its evaluations cannot have reduced the learning rate like this".to_owned());
        }
        let trained = train.model.layout.trained_elements();
        let most_runs = MAX_SHORT_RUNS + trained / 65_536;
        let is_possible = |run: &StepRun| run.elements > 0 && run.steps <= MAX_STEPS;
        if self.steps.len() as u64 > most_runs || !self.steps.iter().all(is_possible) {
            return Some("no optimizer has done such steps".to_owned());
        }
        (StepRun::total_elements(&self.steps) != Some(trained))
            .then(|| format!("the optimizer's steps do not cover the {trained} trained parameters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        samples::SampleRange,
        sim::training,
        spec::{EvaluateSpec, Optimizer},
    };

    fn second_epoch() -> SampleRange {
        SampleRange { epoch: 1, start: 0, len: 16 }
    }

    /// More than any training has: whether they lie in the epoch is asked later.
    fn many_ranges() -> Vec<SampleRange> {
        vec![SampleRange { epoch: 0, start: 0, len: 1 }; MAX_RETURNED + 1]
    }

    #[test]
    fn a_training_goes_on_from_evaluations_that_measured_the_same_table() {
        let digest = |byte| Some(ContentDigest::from_bytes([byte; 32]));
        let mut train = training("bsp".parse().unwrap(), 64, 8);
        train.evaluate = Some(EvaluateSpec::every_epochs(1));
        (train.model.evaluation_graph, train.data.digest) = (digest(1).unwrap(), digest(2));
        let before = EvaluationsBefore {
            monitor: Metric::Loss,
            on_validation: train.data.has_validation(),
            best: 0.5,
            best_samples: 1,
            best_checkpoint: None,
            improved: 0.5,
            waited: 1,
            stalled: 1,
            graph: digest(1),
            data: digest(2),
        };
        type Change = fn(&mut EvaluationsBefore);
        #[rustfmt::skip]
        let cases: [(&str, Change, [bool; 2]); 6] = [
            ("the same",           |_| {},                                                        [true, true]),
            ("an earlier release", |b| (b.graph, b.data) = (None, None),                          [true, true]),
            ("another loss",       |b| b.graph = Some(ContentDigest::from_bytes([3; 32])),        [false, true]),
            ("other samples",      |b| b.data = Some(ContentDigest::from_bytes([3; 32])),         [false, true]),
            ("another figure",     |b| b.monitor = Metric::Accuracy,                              [false, false]),
            ("another set",        |b| b.on_validation = !b.on_validation,                        [false, false]),
        ];
        for (name, change, want) in cases {
            let mut before = before;
            change(&mut before);
            assert_eq!([before.is_of(&train), before.is_by_figure_of(&train)], want, "{name}");
        }
    }

    #[test]
    fn what_cannot_go_on_from_a_checkpoint_is_refused_with_the_reason_table() {
        let mut train = training("bsp".parse().unwrap(), 64, 8);
        train.epochs = 3;
        let (samples, elements) = (train.epoch_samples(), train.model.layout.trained_elements());
        let resume = ResumeSpec {
            job: "before".parse().unwrap(),
            checkpoint: 4,
            epoch_samples: samples,
            train_samples: train.data.train_samples,
            seed: train.seed,
            shuffle: train.shuffle,
            position: SamplePosition { epoch: 1, next: 8, returned: Vec::new() },
            iterations: 9,
            iterations_torn: 1,
            samples_torn: 8,
            steps_by_round: false,
            evaluated: true,
            steps: vec![StepRun { elements, steps: 9 }],
            evaluations: Some(EvaluationsBefore {
                monitor: Metric::Loss,
                on_validation: false,
                best: 0.5,
                best_samples: samples,
                best_checkpoint: None,
                improved: 0.5,
                waited: 1,
                stalled: 1,
                graph: None,
                data: None,
            }),
            reduced_rate: Some(ReducedRate { learning_rate: 0.1, multiplier: 0.5 }),
        };
        assert_eq!((resume.fault(&train), resume.samples()), (None, samples + 8));
        type Change = fn(&mut ResumeSpec);
        let cases: [(Change, &str); 19] = [
            (|r| r.epoch_samples += 1, "an epoch had"),
            // As with `drop_last`: an epoch has as many.
            (|r| r.train_samples += 1, "samples that train there"),
            (|r| r.seed += 1, "seed"),
            (|r| r.shuffle = false, "shuffle = false there, true here"),
            (|r| r.position.next = u64::MAX, "beyond the epoch"),
            (|r| r.position = SamplePosition { epoch: 3, ..SamplePosition::default() }, "3 epochs are done"),
            (|r| r.samples_torn = u64::MAX, "contradict"),
            (|r| r.iterations_torn = 10, "contradict"),
            (|r| r.iterations = u64::MAX, "contradict"),
            (|r| r.steps[0].steps = u64::MAX, "no optimizer"),
            (|r| r.steps.push(StepRun { elements: 0, steps: 1 }), "no optimizer"),
            (|r| r.steps = vec![StepRun { elements: 1, steps: 1 }; 70_000], "no optimizer"),
            (|r| r.position.returned = many_ranges(), "have come back"),
            (|r| r.steps[0].elements -= 1, "do not cover"),
            (|r| r.evaluations.as_mut().unwrap().best = f64::NAN, "its evaluations contradict"),
            (|r| r.evaluations.as_mut().unwrap().best_samples = u64::MAX, "its evaluations contradict"),
            (|r| r.reduced_rate.as_mut().unwrap().multiplier = 1.0, "cannot have reduced"),
            (|r| r.reduced_rate.as_mut().unwrap().learning_rate = f32::INFINITY, "cannot have reduced"),
            (
                |r| r.position = SamplePosition { epoch: 3, next: 8, returned: vec![second_epoch()] },
                "3 epochs are done",
            ),
        ];
        let unknown = ResumeSpec { train_samples: 0, ..resume.clone() };
        assert_eq!(unknown.fault(&train), None);
        for (policy, steps_by_round, expected) in [
            ("diloco:8", true, None),
            ("diloco:8", false, Some("diloco steps with")),
            ("asp", true, Some("this policy steps with")),
            ("local-sgd:8", false, None),
        ] {
            let (resume, policy) = (ResumeSpec { steps_by_round, ..resume.clone() }, policy.parse().unwrap());
            let train = TrainSpec { policy, optimizer: Optimizer::momentum(), ..train.clone() };
            let fault = resume.fault(&train);
            assert_eq!(fault.is_some(), expected.is_some(), "{fault:?}");
            assert!(fault.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
        for (change, expected) in cases {
            let mut changed = resume.clone();
            change(&mut changed);
            let fault = changed.fault(&train).expect(expected);
            assert!(fault.contains(expected), "{fault}");
        }
    }
}
