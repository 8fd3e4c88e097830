//! Trainings of which iterations are skipped, as `on_nan = "skip"` allows.

use syncline_scheduler::{
    core::{Iterated, Outcome, Phase, Work},
    samples::SamplePosition,
    sim::{training, training_job},
    spec::{ResumeSpec, StepRun, TrainSpec},
};

use crate::world::{POLICIES, World, done, id};

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Good,
    /// Not finite.
    Skipped,
    /// Not finite because of the scale of its loss.
    Overflow,
}
use Step::{Good, Overflow, Skipped};

/// A training that is over, whose iterations are these, by how many were done before.
fn ended(train: TrainSpec, step: impl Fn(u64) -> Step) -> World {
    let mut spec = training_job(train);
    spec.id = id("job");
    let mut world = World::of(spec, 1);
    let worker = *world.hands.keys().next().unwrap();
    while world.code("job") == "running" {
        let step = step(world.job("job").counters().done);
        world.report(worker, |work: &Work| match done(work) {
            Outcome::Iterated(it) => {
                let (skipped, is_overflow) = (step != Good, step == Overflow);
                Outcome::Iterated(Iterated { skipped, is_overflow, ..it })
            }
            other => other,
        });
    }
    world
}

/// Four epochs of so many samples, one by one.
fn four_epochs(policy: &str, samples: u64) -> TrainSpec {
    TrainSpec { epochs: 4, ..training(policy.parse().unwrap(), samples, 1) }
}

#[test]
fn a_training_fails_once_a_whole_epoch_was_skipped_and_is_done_if_it_learned_lately() {
    #[rustfmt::skip]
    let cases: [(&str, u64, fn(u64) -> Step, (&str, u64)); 7] = [
        ("all",                       12, |_| Skipped,                                       ("E596", 12)),
        ("all behind the first one",  12, |n| if n == 0 { Good } else { Skipped },           ("E596", 13)),
        ("all but one of an epoch",   12, |n| if n % 12 == 11 { Good } else { Skipped },     ("done", 48)),
        ("short epochs",               2, |n| if n == 0 { Good } else { Skipped },           ("done", 8)),
        ("a scale that is searched",  12, |n| if n < 24 { Overflow } else { Good },          ("done", 48)),
        ("a scale between",           12, |n| if n == 5 { Overflow } else { Skipped },       ("E596", 13)),
        ("a scale not found in time",  2, |_| Overflow,                                      ("E596", 8)),
    ];
    for policy in POLICIES {
        for (name, samples, step, want) in cases {
            let world = ended(four_epochs(policy, samples), step);
            let iterations = world.job("job").counters().done;
            assert_eq!((world.code("job").as_str(), iterations), want, "{policy}: {name}");
        }
    }
}

/// Where a training is whose first `iterations` are in the parameters.
fn resumed(train: TrainSpec, iterations: u64) -> TrainSpec {
    let (epoch_samples, elements) = (train.epoch_samples(), train.model.layout.trained_elements());
    let (epoch, next) = ((iterations / epoch_samples) as u32, iterations % epoch_samples);
    let resume = ResumeSpec {
        job: id("before"),
        checkpoint: 0,
        epoch_samples,
        train_samples: train.data.train_samples,
        seed: train.seed,
        shuffle: train.shuffle,
        position: SamplePosition { epoch, next, returned: Vec::new() },
        iterations,
        iterations_torn: 1,
        samples_torn: 1,
        steps_by_round: false,
        steps: vec![StepRun { elements, steps: iterations }],
        evaluated: true,
        evaluations: None,
        reduced_rate: None,
    };
    TrainSpec { resume: Some(resume), ..train }
}

#[test]
fn a_training_that_goes_on_and_learns_nothing_fails_however_much_was_learned_before() {
    for policy in POLICIES {
        for (name, step, want) in [
            ("not finite", Skipped, "all 6 iterations were skipped"),
            ("a scale not found in time", Overflow, "in all 6 iterations the loss was scaled by too much"),
        ] {
            let train = resumed(four_epochs(policy, 12), 42);
            let world = ended(train.clone(), |_| step);
            let Phase::Failed { code, reason } = world.job("job").phase() else {
                panic!("{policy}: {name}: it is {}", world.code("job"))
            };
            assert!(*code == "E596" && reason.contains(want), "{policy}: {name}: {reason}");
            // One that counts is enough.
            let world = ended(train, |n| if n == 42 { Good } else { step });
            assert_eq!(world.code("job"), "done", "{policy}: {name}");
        }
    }
}
