//! The schedule of the learning rate, which counts samples: the same under every policy.

use syncline_scheduler::{
    core::{Cancellation, Effect, Input, Iterated, Outcome, Work},
    sim::{training, training_job},
    spec::{Decay, LearningRate, TrainSpec},
};

use crate::world::{World, done};

const BATCH: u32 = 8;
const ITERATIONS: u64 = 8;
const SCHEDULE: LearningRate = LearningRate { base: 0.2, decay: Decay::Cosine };

/// Rates of all iterations, in the order in which they were granted, and those of the barriers that closed.
fn rates(policy: &str, workers: u64) -> (Vec<f32>, Vec<f32>) {
    let mut world = World::new();
    let names: Vec<_> = (1..=workers).map(|n| world.join(n, &format!("w{n}"))).collect();
    let train = training(policy.parse().unwrap(), ITERATIONS * u64::from(BATCH) / 2, BATCH);
    let train = TrainSpec { epochs: 2, learning_rate: SCHEDULE, min_workers: workers as u32, ..train };
    let mut spec = training_job(train);
    spec.id = "job".parse().unwrap();
    let (mut iterations, mut barriers) = (Vec::new(), Vec::new());
    let mut note = |effects: Vec<Effect>| {
        for effect in effects {
            match effect {
                Effect::Assign { assignment, .. } => match assignment.work {
                    Work::Iterate { learning_rate, .. } => iterations.push(learning_rate),
                    Work::Prepare { .. } | Work::Evaluate { .. } => {}
                },
                Effect::OrderBarrier { order, .. } => barriers.push((order.superstep, order.learning_rate)),
                _ => {}
            }
        }
    };
    note(world.submit(spec, 1));
    while let Some(worker) = names.iter().find(|name| world.hands.get(name).is_some_and(|h| !h.is_empty())) {
        note(world.report(*worker, done));
    }
    barriers.dedup_by_key(|(superstep, _)| *superstep);
    (iterations, barriers.into_iter().map(|(_, rate)| rate).collect())
}

fn scheduled(step: u64, batches: u64) -> f32 {
    SCHEDULE.at(step * batches * u64::from(BATCH), ITERATIONS * u64::from(BATCH))
}

#[test]
fn an_iteration_has_the_rate_where_its_own_samples_begin_under_every_policy() {
    let expected: Vec<f32> = (0..ITERATIONS).map(|step| scheduled(step, 1)).collect();
    for policy in ["asp", "bsp", "ssp:2", "dssp:1:4", "lb-bsp", "elastic-bsp:4", "elastic-lb:4", "auto"] {
        assert_eq!(rates(policy, 1).0, expected, "{policy}");
    }
}

#[test]
fn of_a_round_all_iterations_have_the_rate_of_its_one_step() {
    let (mut iterations, barriers) = rates("bsp", 2);
    iterations.sort_by(|one, other| other.total_cmp(one));
    let expected: Vec<f32> = (0..ITERATIONS / 2).map(|round| scheduled(round, 2)).collect();
    assert_eq!(barriers, expected);
    let twice: Vec<f32> = expected.iter().flat_map(|rate| [*rate, *rate]).collect();
    assert_eq!(iterations, twice);
}

#[test]
fn the_loss_of_a_round_is_the_mean_over_all_workers_by_their_samples() {
    for (policy, losses, want) in [("bsp", [1.0, 4.0], 2.5), ("asp", [2.0, 0.0], 1.0)] {
        let mut world = World::new();
        let names = [world.join(1, "a"), world.join(2, "b")];
        let train = training(policy.parse().unwrap(), 1_000, BATCH);
        world.submit(training_job(train), 1);
        for (worker, loss) in names.into_iter().zip(losses) {
            world.report(worker, |work| match done(work) {
                Outcome::Iterated(it) => Outcome::Iterated(Iterated { loss, ..it }),
                other => other,
            });
        }
        let loss = |world: &mut World| {
            let summary = world.plane.core.take_commits(9).into_values().next().unwrap().summary;
            summary.into_iter().find(|(field, _)| *field == "loss").unwrap().1
        };
        world
            .plane
            .core
            .handle(
                9,
                Input::Cancel(Cancellation {
                    job: "job".parse().unwrap(),
                    reason: String::new(),
                    grace_ms: 0,
                }),
            )
            .unwrap();
        assert_eq!(loss(&mut world), format!("{want:.6}"), "{policy}, also once it is over");
    }
}
