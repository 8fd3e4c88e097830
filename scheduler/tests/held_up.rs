//! Iterations that an outage held up: nothing is predicted from what they took.

use syncline_scheduler::{
    core::{Iterated, Outcome, Work},
    ids::Superstep,
    sim::{training, training_job},
};

use crate::world::{World, done};

const SAMPLES: u64 = 4_000;
const ROUNDS_BEFORE: u64 = 300;

fn pushed_in(push_us: u64) -> impl Fn(&Work) -> Outcome {
    move |work| match done(work) {
        Outcome::Iterated(it) => Outcome::Iterated(Iterated { compute_us: 50_000, push_us, ..it }),
        other => other,
    }
}

#[test]
fn a_push_that_waited_for_a_shard_that_was_away_is_not_predicted_again() {
    for policy in ["bsp", "lb-bsp", "local-sgd:100", "elastic-bsp:4"] {
        let mut world = World::new();
        let workers = [world.join(1, "a"), world.join(2, "b")];
        world.submit(training_job(training(policy.parse().unwrap(), SAMPLES, 1)), 1);
        for round in 0..SAMPLES {
            world.now_us += 51_000;
            for (nth, worker) in workers.iter().enumerate() {
                if world.hands[worker].is_empty() {
                    continue;
                }
                let is_held_up = nth == 0 && round == ROUNDS_BEFORE;
                world.report(*worker, pushed_in(if is_held_up { 30_000_000 } else { 1_000 }));
            }
        }
        assert_eq!(world.code("job"), "done", "{policy}");
        let summary = &world.plane.shell.summaries[&"job".parse().unwrap()];
        assert!(summary["barriers"].parse::<u64>().unwrap() > 10, "{policy}: {summary:?}");
        let predicted_wait_ms: u64 = summary["predicted_wait_ms"].parse().unwrap();
        assert!(predicted_wait_ms < 10_000, "{policy}: {summary:?}");
        let member = world.job("job").member(workers[0]).unwrap();
        assert_eq!(member.speed.interval_us(1), Some(51_000), "{policy}");
        assert!(member.spent.push_us > 30_000_000, "{policy}: what it took is told all the same");
    }
}

#[test]
fn rounds_of_equal_length_tell_what_each_worker_is_predicted_to_take_and_to_wait() {
    let mut world = World::new();
    let workers = [world.join(1, "quick"), world.join(2, "slow")];
    world.submit(training_job(training("lb-bsp".parse().unwrap(), 32_000, 32)), 1);
    for _ in 0..20 {
        world.now_us += 64_000;
        for (nth, worker) in workers.iter().enumerate() {
            let us_per_sample = 1_000 * (nth as u64 + 1);
            world.report(*worker, |work: &Work| match done(work) {
                Outcome::Iterated(it) => {
                    let compute_us = us_per_sample * u64::from(it.range.len);
                    Outcome::Iterated(Iterated { compute_us, ..it })
                }
                other => other,
            });
        }
    }
    let explained = world.job("job").explain_barrier(Superstep(15)).unwrap();
    let told: Vec<_> = explained.workers.iter().map(|w| (w.batch, w.predicted_interval_us)).collect();
    assert_eq!(told, [(43, Some(43_000)), (21, Some(42_000))]);
    let waits_us: Vec<_> = explained.workers.iter().map(|w| w.predicted_wait_us).collect();
    assert_eq!((&waits_us[..], explained.predicted_wait_us), (&[Some(0), Some(1_000)][..], Some(1_000)));
}
