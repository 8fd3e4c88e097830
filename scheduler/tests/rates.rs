//! The schedule of the learning rate, which counts samples: the same under every policy.

use syncline_scheduler::{
    core::{Cancellation, Effect, Input, Iterated, Outcome, Work, significant},
    ids::{Incarnation, JobId, Superstep},
    sim::{training, training_job},
    spec::{Decay, LearningRate, TrainSpec},
};

use crate::world::{World, done};

const BATCH: u32 = 8;
const ITERATIONS: u64 = 8;

/// Each shape of decay, also behind a warmup.
fn schedules() -> [LearningRate; 4] {
    let base = LearningRate::constant(0.2);
    [
        LearningRate { decay: Decay::Cosine, ..base.clone() },
        LearningRate { warmup: 0.3, ..base.clone() },
        LearningRate { warmup: 0.25, decay: Decay::Linear, min: 0.02, ..base.clone() },
        LearningRate { decay: Decay::Steps(vec![(0.5, 0.1), (0.75, 0.1)]), ..base },
    ]
}

/// Rates of all iterations, in the order in which they were granted, and those of the barriers that closed.
fn rates(policy: &str, workers: u64, schedule: &LearningRate) -> (Vec<f32>, Vec<f32>) {
    let mut world = World::new();
    let names: Vec<_> = (1..=workers).map(|n| world.join(n, &format!("w{n}"))).collect();
    let train = training(policy.parse().unwrap(), ITERATIONS * u64::from(BATCH) / 2, BATCH);
    let learning_rate = schedule.clone();
    let train = TrainSpec { epochs: 2, learning_rate, min_workers: workers as u32, ..train };
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

fn scheduled(schedule: &LearningRate, step: u64, batches: u64) -> f32 {
    schedule.at(step * batches * u64::from(BATCH), ITERATIONS * u64::from(BATCH))
}

#[test]
fn an_iteration_has_the_rate_where_its_own_samples_begin_under_every_policy() {
    for schedule in schedules() {
        let expected: Vec<f32> = (0..ITERATIONS).map(|step| scheduled(&schedule, step, 1)).collect();
        for policy in [
            "asp",
            "bsp",
            "ssp:2",
            "dssp:1:4",
            "lb-bsp",
            "elastic-bsp:4",
            "elastic-lb:4",
            "auto",
            "local-sgd:2",
            "diloco:2",
        ] {
            assert_eq!(rates(policy, 1, &schedule).0, expected, "{policy} {schedule:?}");
        }
    }
}

#[test]
fn of_a_round_all_iterations_have_the_rate_of_its_one_step() {
    for schedule in schedules() {
        let (mut iterations, barriers) = rates("bsp", 2, &schedule);
        let expected: Vec<f32> = (0..ITERATIONS / 2).map(|round| scheduled(&schedule, round, 2)).collect();
        assert_eq!(barriers, expected, "{schedule:?}");
        // In whatever order they were granted.
        let mut twice: Vec<f32> = expected.iter().flat_map(|rate| [*rate, *rate]).collect();
        iterations.sort_by(f32::total_cmp);
        twice.sort_by(f32::total_cmp);
        assert_eq!(iterations, twice, "{schedule:?}");
    }
}

#[test]
fn in_a_local_round_all_workers_take_their_steps_side_by_side_at_the_same_rates() {
    for schedule in schedules() {
        for policy in ["local-sgd:2", "diloco:2"] {
            let mut iterations = rates(policy, 2, &schedule).0;
            let side_by_side = (0..ITERATIONS / 2).map(|step| scheduled(&schedule, step, 2));
            let mut twice: Vec<f32> = side_by_side.flat_map(|rate| [rate, rate]).collect();
            iterations.sort_by(f32::total_cmp);
            twice.sort_by(f32::total_cmp);
            assert_eq!(iterations, twice, "{policy} {schedule:?}");
        }
    }
}

#[test]
fn the_loss_of_a_round_is_the_mean_over_all_workers_by_what_their_samples_weigh() {
    let cases = [
        ("bsp", [(1.0, 8.0), (4.0, 8.0)], 2.5),
        ("asp", [(2.0, 8.0), (0.0, 8.0)], 1.0),
        ("bsp", [(1.0, 3.0), (5.0, 1.0)], 2.0),
    ];
    for (policy, losses, want) in cases {
        let mut world = World::new();
        let names = [world.join(1, "a"), world.join(2, "b")];
        let train = training(policy.parse().unwrap(), 1_000, BATCH);
        world.submit(training_job(train), 1);
        for (worker, (loss, loss_weight)) in names.into_iter().zip(losses) {
            world.report(worker, |work| match done(work) {
                Outcome::Iterated(it) => Outcome::Iterated(Iterated { loss, loss_weight, ..it }),
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
                    job: "job".parse::<JobId>().unwrap().into(),
                    reason: String::new(),
                    grace_ms: 0,
                }),
            )
            .unwrap();
        assert_eq!(loss(&mut world), significant(want), "{policy}, also once it is over");
    }
}

const WORKERS: u64 = 4;

/// A job under `policy`, for four workers that are there, and the steps that its barriers are ordered with,
/// in times of the rate.
fn four_workers(policy: &str, samples: u64) -> (World, Vec<Incarnation>, Vec<(Superstep, f32)>) {
    let mut world = World::new();
    let names: Vec<_> = (1..=WORKERS).map(|n| world.join(n, &format!("w{n}"))).collect();
    let train = training(policy.parse().unwrap(), samples, BATCH);
    let ordered = world.submit(training_job(TrainSpec { min_workers: WORKERS as u32, ..train }), 1);
    let steps = ordered_steps(&world, &ordered);
    (world, names, steps)
}

fn ordered_steps(world: &World, effects: &[Effect]) -> Vec<(Superstep, f32)> {
    let base = world.job("job").spec().train().learning_rate.base;
    let step = |effect: &Effect| match effect {
        Effect::OrderBarrier { order, .. } => Some((order.superstep, order.learning_rate / base)),
        _ => None,
    };
    effects.iter().filter_map(step).collect()
}

/// All do what they have in hand, each iteration in `step_us`.
fn do_round(world: &mut World, names: &[Incarnation], step_us: u64) -> Vec<(Superstep, f32)> {
    let mut steps = Vec::new();
    world.now_us += step_us;
    for worker in names.iter().filter(|worker| !world.hands[worker].is_empty()).copied().collect::<Vec<_>>() {
        let effects = world.report(worker, |work| match done(work) {
            Outcome::Iterated(it) => Outcome::Iterated(Iterated { compute_us: step_us, ..it }),
            other => other,
        });
        steps.extend(ordered_steps(world, &effects));
    }
    steps
}

/// Under `auto` the step of a round is as many times the rate as there are workers, so that a sample counts
/// as much as one of a push.
#[test]
fn a_round_of_auto_for_which_few_samples_are_left_makes_a_step_in_proportion() {
    let (mut world, names, _) = four_workers("auto", u64::from(BATCH) * (WORKERS * 20 + 1));
    let mut steps = Vec::new();
    while names.iter().any(|name| world.hands.get(name).is_some_and(|hand| !hand.is_empty())) {
        steps.extend(do_round(&mut world, &names, 100_000).into_iter().map(|(_, step)| step));
    }
    assert!(steps.iter().filter(|step| **step == WORKERS as f32).count() > 10, "{steps:?}");
    assert_eq!(steps.last(), Some(&1.0), "{steps:?}");
}

#[test]
fn a_watched_round_of_auto_for_which_few_samples_are_left_makes_a_step_in_proportion() {
    let (_, _, steps) = four_workers("auto+update=barrier", u64::from(BATCH) * 2);
    assert_eq!(steps, [(Superstep(0), 2.0)]);
}

#[test]
fn rounds_of_auto_that_lose_a_worker_make_a_step_for_those_that_are_left_and_for_its_last_whole_push() {
    for has_pushed in [false, true] {
        let (mut world, names, _) = four_workers("auto", u64::from(BATCH) * 4_000);
        let mut ordered = Vec::new();
        while ordered.len() < 200 {
            ordered.extend(do_round(&mut world, &names, 1_000));
        }
        assert_eq!(ordered.last().unwrap().1, WORKERS as f32);
        let lost = names[3];
        if has_pushed {
            let Work::Iterate { seq, .. } = world.hands[&lost][0].work else { panic!() };
            assert!(world.plane.server.shards[0].finish_push(lost, seq, 1));
        }
        let effects =
            world.give(Input::WorkerGone { worker: lost, reason: "killed".into(), never_told: Vec::new() });
        let mut reordered = ordered_steps(&world, &effects);
        let is_known = |step: &(Superstep, f32)| ordered.iter().any(|(superstep, _)| *superstep == step.0);
        reordered.retain(is_known);
        assert!(reordered.len() > 4, "rounds are ordered ahead: {reordered:?}");
        let mut steps: Vec<f32> = reordered.into_iter().map(|(_, step)| step).collect();
        if has_pushed {
            assert_eq!(steps.remove(0), 4.0, "its push is in this one");
        }
        assert!(steps.iter().all(|step| *step == 3.0), "{steps:?}");
    }
}
