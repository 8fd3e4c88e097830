//! The end of an epoch has fewer samples than a batch: what is learned from it.

use syncline_scheduler::{
    core::{Iterated, Outcome, Work},
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
