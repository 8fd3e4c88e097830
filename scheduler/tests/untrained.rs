//! Trainings of which iterations are skipped, as `on_nan = "skip"` allows.

use syncline_scheduler::{
    core::{Iterated, Outcome, Work},
    sim::{training, training_job},
    spec::TrainSpec,
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

/// How a training of 4 epochs ends whose iterations are these, by their number from 0, and after how many.
fn ended(policy: &str, samples: u64, step: fn(u64) -> Step) -> (String, u64) {
    let mut spec = training_job(TrainSpec { epochs: 4, ..training(policy.parse().unwrap(), samples, 1) });
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
    (world.code("job"), world.job("job").counters().done)
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
            let (code, iterations) = ended(policy, samples, step);
            assert_eq!((code.as_str(), iterations), want, "{policy}: {name}");
        }
    }
}
