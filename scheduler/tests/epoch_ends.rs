//! The end of an epoch has fewer samples than a batch: what is learned from it.

use syncline_scheduler::{
    core::{Input, Iterated, Outcome, Work},
    sim::{training, training_job},
    spec::TrainSpec,
};

use crate::world::{World, done, id};

/// An iteration of 50 µs a sample and 1,700 µs for pull and push.
fn timed(work: &Work) -> Outcome {
    match done(work) {
        Outcome::Iterated(it) => {
            let compute_us = 50 * u64::from(it.range.len);
            Outcome::Iterated(Iterated { compute_us, pull_us: 700, push_us: 1_000, ..it })
        }
        other => other,
    }
}

#[test]
fn the_few_samples_that_are_left_of_an_epoch_say_nothing_about_the_speed_of_a_worker() {
    for policy in ["asp", "bsp", "ssp:2", "elastic-bsp:4", "elastic-lb:4", "lb-bsp"] {
        let mut world = World::new();
        let alone = world.join(1, "1");
        let spec = TrainSpec { epochs: 3, ..training(policy.parse().unwrap(), 3 * 128 + 1, 128) };
        let mut job = training_job(spec);
        job.id = id("job");
        world.submit(job, 1);
        while world.code("job") == "running" {
            world.report(alone, timed);
        }
        let speed = &world.job("job").member(alone).unwrap().speed;
        assert_eq!(speed.interval_us(128), Some(50 * 128 + 1_700), "{policy}");
        assert!(speed.errors().rmse_us < 1.0, "{policy}: {:?}", speed.errors());
    }
}

#[test]
fn the_mean_loss_of_an_epoch_is_told_once_all_of_its_samples_are_counted() {
    let mut job = training_job(TrainSpec { epochs: 2, ..training("asp".parse().unwrap(), 4, 1) });
    job.id = id("job");
    let mut world = World::of(job, 1);
    let worker = *world.hands.keys().next().unwrap();
    #[rustfmt::skip]
    let reports = [
        (1.0, ""), (2.0, ""), (3.0, ""), (6.0, "3.000000"),
        (1.0, "3.000000"), (1.0, "3.000000"), (1.0, "3.000000"), (2.0, "1.250000"),
    ];
    for (loss, want) in reports {
        world.report(worker, |work: &Work| match done(work) {
            Outcome::Iterated(it) => Outcome::Iterated(Iterated { loss, ..it }),
            other => other,
        });
        world.give(Input::Tick);
        assert_eq!(world.plane.shell.summaries[&id("job")]["epoch_loss"], want);
    }
}
