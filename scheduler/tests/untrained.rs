//! Trainings of which iterations were skipped, as `on_nan = "skip"` allows.

use syncline_scheduler::{
    core::{Iterated, Outcome, Work},
    sim::{training, training_job},
    spec::TrainSpec,
};

use crate::world::{POLICIES, World, done, id};

/// How a training of 4 epochs ends of which all iterations are skipped but the one with this number, and after how many.
fn ended(policy: &str, samples: u64, good: Option<u64>) -> (String, u64) {
    let mut spec = training_job(TrainSpec { epochs: 4, ..training(policy.parse().unwrap(), samples, 1) });
    spec.id = id("job");
    let mut world = World::of(spec, 1);
    let worker = *world.hands.keys().next().unwrap();
    while world.code("job") == "running" {
        let number = world.job("job").counters().done;
        world.report(worker, |work: &Work| match done(work) {
            Outcome::Iterated(it) => Outcome::Iterated(Iterated { skipped: Some(number) != good, ..it }),
            other => other,
        });
    }
    (world.code("job"), world.job("job").counters().done)
}

#[test]
fn a_training_that_skipped_everything_has_failed_and_one_that_learned_once_is_done() {
    #[rustfmt::skip]
    let cases = [
        ("all of few iterations",  12,    None,     ("E596", 48)),
        ("all of a whole epoch",   1_000, None,     ("E596", 1_000)),
        ("all but the last",       12,    Some(47), ("done", 48)),
        ("all but the first",      1_000, Some(0),  ("done", 4_000)),
    ];
    for policy in POLICIES {
        for (name, samples, good, want) in cases {
            let (code, iterations) = ended(policy, samples, good);
            assert_eq!((code.as_str(), iterations), want, "{policy}: {name}");
        }
    }
}
