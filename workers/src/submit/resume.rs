//! A training that goes on from the checkpoint of another one.

use std::{
    io::{self, Read},
    path::Path,
};

use syncline_ps::checkpoint_file::{CheckpointAbout, CheckpointSamples};
use syncline_rpc::input;
use syncline_scheduler::{
    ids::JobId,
    spec::{EvaluationsBefore, Layout, Optimizer, Parameter, ResumeSpec, Split, TrainSpec},
};

use super::SubmitError;

/// A checkpoint from which a training can go on.
pub(super) struct Resumed {
    /// Its file, which begins with the parameters.
    pub file: Vec<u8>,
    /// Where it was.
    pub at: ResumeSpec,
    /// What may be another than it was, and what becomes of a learning rate that was reduced, in words.
    pub warnings: Vec<String>,
}

/// Reads a checkpoint file, and checks that this training can go on from it.
pub(super) fn read_resume(path: &Path, train: &TrainSpec) -> Result<Resumed, SubmitError> {
    let file = read(path).map_err(|source| SubmitError::Read { path: path.to_owned(), source })?;
    let fault = |what: String| SubmitError::Resume { path: path.to_owned(), what };
    let about = CheckpointAbout::read(&file).map_err(|e| fault(e.to_string()))?;
    if let Some(what) = difference(&about.layout, &train.model.layout) {
        return Err(fault(format!("the model is another: {what}")));
    }
    let optimizer = train.shard_optimizer();
    if name(&about.optimizer) != name(&optimizer) {
        let (there, here) = (name(&about.optimizer), name(&optimizer));
        return Err(fault(format!("it holds the state of {there}, and this training uses {here}")));
    }
    let here = CheckpointSamples::of(&train.data, train.seed);
    if let Some(what) = about.samples.as_ref().and_then(|there| held_out_otherwise(there, &here)) {
        return Err(fault(what));
    }
    let is_other = about.samples.is_some_and(|there| there.digest != here.digest);
    let other_files = is_other.then(|| other_files(&about.resume.job));
    let resume = about.resume;
    let others = [other_files, other_evaluations(&resume, train), reduced_rate(&resume, train)];
    let warnings = others.into_iter().flatten().collect();
    Ok(Resumed { file, at: resume, warnings })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How other samples would be tested or validated with than were, in words.
fn held_out_otherwise(there: &CheckpointSamples, here: &CheckpointSamples) -> Option<String> {
    let is_same = (there.split, there.validation_percent) == (here.split, here.validation_percent)
        && there.hold_out_seed == here.hold_out_seed;
    (!is_same).then(|| {
        let (there, here) = (held_out(there), held_out(here));
        format!("it was trained with {there}, and this training has {here}: it would be tested or validated with samples that it has learned")
    })
}

/// What is held out, as a job file says it.
fn held_out(samples: &CheckpointSamples) -> String {
    let split = match samples.split {
        Split::All => None,
        Split::TestEvery(every) => Some(format!("test_every = {every}")),
        Split::TestPercent(percent) => Some(format!("test_percent = {percent}")),
        Split::TestLastPercent(percent) => Some(format!("test_last_percent = {percent}")),
    };
    let validation = samples.validation_percent.map(|percent| format!("validation_percent = {percent}"));
    let seed = samples.hold_out_seed.map(|seed| format!("hold_out_seed = {seed}"));
    let all: Vec<String> = [split, validation, seed].into_iter().flatten().collect();
    if all.is_empty() { "nothing held out".to_owned() } else { format!("`{}`", all.join(", ")) }
}

/// The same samples may lie in files of another form.
fn other_files(job: &JobId) -> String {
    format!(
        "the files are not, byte for byte, those that {job} was trained on: it goes on as if their samples were the same in the same order; if \
         they are not, begin anew with what it has learned, `model.forward.weights`"
    )
}

/// What becomes of evaluations that would be compared with those of this training, and measured something
/// else.
fn other_evaluations(resume: &ResumeSpec, train: &TrainSpec) -> Option<String> {
    let measures_otherwise =
        |before: &EvaluationsBefore| before.is_by_figure_of(train) && !before.is_of(train);
    resume.evaluations.as_ref().filter(|before| measures_otherwise(before))?;
    Some(format!(
        "the evaluations of {} were of other files, or of a model or a loss that computes otherwise: which was the best, and how long none \
         was better, counts anew from here",
        resume.job
    ))
}

/// What becomes of a learning rate that evaluations had reduced.
fn reduced_rate(resume: &ResumeSpec, train: &TrainSpec) -> Option<String> {
    let (reduced, job) = (resume.reduced_rate?, &resume.job);
    let before = reduced.learning_rate;
    Some(if reduced.goes_on_in(train) {
        let rate = train.reduced_rate(before, reduced.multiplier);
        format!(
            "the evaluations of {job} have reduced its learning rate from {before}: this training goes on with {rate}; with another \
             `learning_rate` it begins with that"
        )
    } else {
        let reached = (f64::from(before) * reduced.multiplier) as f32;
        format!(
            "the evaluations of {job} have reduced its learning rate from {before} to {reached}: this training has another one, and begins \
             with {}",
            train.learning_rate.base
        )
    })
}

/// What tells apart optimizers that do not keep the same.
fn name(optimizer: &Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd { .. } => "sgd",
        Optimizer::Momentum { .. } => "momentum",
        Optimizer::Adam { .. } => "adam",
        Optimizer::RmsProp { centered: true, .. } => "rmsprop, centered",
        Optimizer::RmsProp { momentum, .. } if *momentum > 0.0 => "rmsprop with momentum",
        Optimizer::RmsProp { .. } => "rmsprop",
    }
}

/// The first difference of two layouts, in words.
fn difference(there: &Layout, here: &Layout) -> Option<String> {
    let say = |p: &Parameter| {
        let kind = if p.is_trained() { "" } else { ", not trained" };
        format!("`{}` {:?}{kind}", p.name, p.shape)
    };
    // Whether rows of it travel is nothing to its numbers, nor are settings that it has for itself.
    let differ = |a: &Parameter, b: &Parameter| {
        (&a.name, &a.shape, a.is_trained()) != (&b.name, &b.shape, b.is_trained())
    };
    if let Some((there, here)) = there.0.iter().zip(&here.0).find(|(there, here)| differ(there, here)) {
        return Some(format!("{} there, {} here", say(there), say(here)));
    }
    let (there, here) = (there.0.len(), here.0.len());
    (there != here).then(|| format!("{there} parameters there, {here} here"))
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        ids::ContentDigest,
        samples::SamplePosition,
        sim::training,
        spec::{
            DataSpec, EvaluateSpec, LearningRate, Metric, ReduceOnPlateau, ReducedRate, Source, StepSettings,
        },
    };

    use super::*;

    #[test]
    fn a_training_goes_on_with_what_was_held_out_from_it_and_with_nothing_else_table() {
        let samples = |split, validation_percent, hold_out_seed| {
            let data = DataSpec::new(Source::csv("a.csv"));
            CheckpointSamples::of(&DataSpec { split, validation_percent, hold_out_seed, ..data }, 7)
        };
        let percent = Split::TestPercent(20);
        #[rustfmt::skip]
        let cases = [
            (samples(Split::All, None, None),     samples(Split::All, None, Some(3)),      None),
            (samples(percent, None, None),        samples(percent, None, Some(0)),         None),
            (samples(Split::All, Some(5), None),  samples(Split::All, Some(5), Some(7)),   None),
            (samples(percent, None, None),        samples(percent, None, Some(3)),
             Some("with `test_percent = 20, hold_out_seed = 0`, and this training has `test_percent = 20, hold_out_seed = 3`")),
            (samples(Split::All, None, None),     samples(Split::TestEvery(5), None, None),
             Some("with nothing held out, and this training has `test_every = 5`")),
            (samples(Split::All, Some(5), None),  samples(Split::All, Some(9), None),
             Some("`validation_percent = 5, hold_out_seed = 7`")),
        ];
        for (there, here, want) in cases {
            let found = held_out_otherwise(&there, &here);
            assert_eq!(found.is_some(), want.is_some(), "{found:?}");
            assert!(want.is_none_or(|want| found.as_ref().unwrap().contains(want)), "{found:?}");
        }
    }

    /// A checkpoint of a job whose evaluations have shown something, and reduced its rate from 0.1.
    fn evaluated(train: &TrainSpec, multiplier: Option<f64>) -> ResumeSpec {
        ResumeSpec {
            job: "before".parse().unwrap(),
            checkpoint: 1,
            epoch_samples: train.epoch_samples(),
            train_samples: train.data.train_samples,
            seed: train.seed,
            shuffle: train.shuffle,
            position: SamplePosition::default(),
            iterations: 0,
            iterations_torn: 0,
            samples_torn: 0,
            steps_by_round: false,
            steps: Vec::new(),
            evaluated: true,
            evaluations: Some(EvaluationsBefore {
                monitor: Metric::Loss,
                on_validation: train.data.has_validation(),
                best: 0.5,
                best_samples: 0,
                best_checkpoint: None,
                improved: 0.5,
                waited: 0,
                stalled: 0,
                graph: Some(train.model.evaluation_graph),
                data: train.data.digest,
            }),
            reduced_rate: multiplier.map(|multiplier| ReducedRate { learning_rate: 0.1, multiplier }),
        }
    }

    #[test]
    fn it_is_said_what_becomes_of_a_reduced_rate_table() {
        let train = |rate, least| TrainSpec {
            learning_rate: LearningRate::constant(rate),
            evaluate: Some(
                EvaluateSpec::every_epochs(1)
                    .reduce_on_plateau(ReduceOnPlateau::patience(3).min_learning_rate(least)),
            ),
            ..training("bsp".parse().unwrap(), 10, 1)
        };
        #[rustfmt::skip]
        let cases = [
            // The rate here, its bound, what was left of 0.1 there.
            (0.1,  0.0,  None,       None),
            (0.1,  0.0,  Some(0.25), Some("from 0.1: this training goes on with 0.025;")),
            (0.1,  0.05, Some(0.25), Some("from 0.1: this training goes on with 0.05;")),
            (0.02, 0.0,  Some(0.25), Some("from 0.1 to 0.025: this training has another one, and begins with 0.02")),
        ];
        for (rate, least, multiplier, want) in cases {
            let train = train(rate, least);
            let said = reduced_rate(&evaluated(&train, multiplier), &train);
            assert_eq!(said.is_some(), want.is_some(), "{said:?}");
            assert!(want.is_none_or(|want| said.as_ref().unwrap().contains(want)), "{said:?}");
        }
    }

    #[test]
    fn it_is_said_where_the_best_before_measured_something_else() {
        let evaluate = Some(EvaluateSpec::every_epochs(1));
        let train = TrainSpec { evaluate, ..training("bsp".parse().unwrap(), 10, 1) };
        let resume = evaluated(&train, None);
        assert_eq!(other_evaluations(&resume, &train), None);
        let mut other = train.clone();
        other.model.evaluation_graph = ContentDigest::from_bytes([7; 32]);
        let said = other_evaluations(&resume, &other).unwrap();
        assert!(
            said.starts_with("the evaluations of before were of other files, or of a model or a loss"),
            "{said}"
        );
        // By another figure, or by none, nothing is compared.
        other.evaluate = None;
        assert_eq!(other_evaluations(&resume, &other), None);
    }

    #[test]
    fn a_training_may_go_on_with_other_groups_and_with_no_other_parameters() {
        let w = || Parameter::trained("w", vec![2]);
        let slow = StepSettings { learning_rate_factor: 0.1, ..StepSettings::default() };
        #[rustfmt::skip]
        let cases = [
            (vec![w()], vec![Parameter { settings: slow, ..w() }],    None),
            (vec![w()], vec![Parameter::rows("w", vec![2], 0)],       None),
            (vec![w()], vec![Parameter::buffer("w", vec![2])],        Some("`w` [2] there, `w` [2], not trained here")),
            (vec![w()], vec![Parameter::trained("w", vec![3])],       Some("`w` [2] there, `w` [3] here")),
            (vec![w()], vec![],                                       Some("1 parameters there, 0 here")),
        ];
        for (there, here, want) in cases {
            let [there, here] = [there, here].map(Layout);
            assert_eq!(difference(&there, &here).as_deref(), want);
            assert_eq!(difference(&here, &there).is_some(), want.is_some());
        }
    }
}
