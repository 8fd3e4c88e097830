//! Batch sizes where a part of each iteration's time does not depend on the batch.

use syncline_scheduler::{
    core::{Iterated, Outcome, Work},
    ids::Incarnation,
    sim::{training, training_job},
};

use crate::{lb_bsp::unit, world::World};

const ROUNDS: u64 = 2_000;
const BATCH: u32 = 20;

/// Uniform between 0.7 and 1.3.
fn noise(state: &mut u64) -> f64 {
    0.7 + 0.6 * unit(state)
}

/// The mean batches of two workers over the last quarter of the rounds, of which each iteration takes
/// `fixed_us + per_sample_us · x`, times noise; the first five of the second worker take `first_factor` times
/// as long.
fn mean_batches(fixed_us: f64, per_sample_us: [f64; 2], first_factor: f64, seed: u64) -> [f64; 2] {
    let mut world = World::new();
    let workers = [world.join(1, "a"), world.join(2, "b")];
    let mut train = training("lb-bsp".parse().unwrap(), 2 * ROUNDS * u64::from(BATCH), 1);
    train.batch = BATCH;
    world.submit(training_job(train), 1);
    let (mut state, mut sums, mut rounds) = (seed, [0.0; 2], 0);
    for round in 0..ROUNDS - 10 {
        world.now_us += 1_000;
        for (which, worker) in workers.into_iter().enumerate() {
            let begins = which == 1 && round < 5;
            let factor = noise(&mut state) * if begins { first_factor } else { 1.0 };
            let outcome = |work: &Work| {
                let Work::Iterate { range, .. } = work else { panic!("{work:?}") };
                let us = (fixed_us + per_sample_us[which] * f64::from(range.len)) * factor;
                let (loss, loss_weight) = (1.0, range.len as f32);
                Outcome::Iterated(Iterated {
                    range: *range,
                    loss,
                    loss_weight,
                    compute_us: us as u64,
                    ..Iterated::default()
                })
            };
            let Work::Iterate { range, .. } = &world.hands[&worker][0].work else { panic!() };
            if round >= ROUNDS / 4 * 3 {
                sums[which] += f64::from(range.len);
            }
            world.report(Incarnation(which as u64 + 1), outcome);
        }
        rounds += u64::from(round >= ROUNDS / 4 * 3);
    }
    sums.map(|sum| sum / rounds as f64)
}

/// The first five iterations of one of two equal workers take `first_factor` times as long.
fn check_shares_evenly(first_factor: f64) {
    for (fixed_us, per_sample_us) in [(0.0, 100.0), (300.0, 10.0), (3_000.0, 5.0)] {
        for seed in 0..3 {
            let means = mean_batches(fixed_us, [per_sample_us; 2], first_factor, seed);
            let what = format!("{fixed_us} us, seed {seed}: {means:?}");
            assert!(means.iter().all(|mean| (13.0..=27.0).contains(mean)), "{what}");
        }
    }
}

#[test]
fn two_equal_workers_share_evenly_however_much_of_an_iteration_is_the_same_for_any_batch() {
    check_shares_evenly(1.0);
}

#[test]
fn a_worker_whose_first_iterations_are_slow_gets_its_share_again() {
    check_shares_evenly(50.0);
}

#[test]
fn a_worker_of_half_the_speed_gets_what_it_ends_at_the_same_time() {
    // 1,000 + 100 x on one, 1,000 + 200 x on the other: 3,666 us with 26.7 and 13.3 samples.
    for (fixed_us, want) in [(0.0, 26.7), (1_000.0, 26.7), (200.0, 26.7)] {
        for seed in 0..3 {
            let means = mean_batches(fixed_us, [100.0, 200.0], 1.0, seed);
            assert!((means[0] - want).abs() < 2.5, "{fixed_us} us, seed {seed}: {means:?}");
        }
    }
}
