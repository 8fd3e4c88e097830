//! How much work a worker has in hand: enough that many short steps are reported at once, and little when the
//! job ends.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{
        Assignment, Core, Effect, IfTaken, Input, Iterated, Outcome, Submission, TaskReport, Work, WorkerInfo,
    },
    ids::Incarnation,
    sim::{ControlPlane, Shell, training, training_job},
    spec::{JobSpec, TrainSpec},
};

use crate::world::{World, done};

struct Plain;

impl Shell for Plain {
    fn handle(&mut self, core: &mut Core, now_us: u64, input: Input) -> Vec<Effect> {
        let effects = core.handle(now_us, input).unwrap();
        core.take_commits(now_us);
        effects
    }
}

/// A worker whose steps all take as long.
struct Worker {
    id: Incarnation,
    interval_us: u64,
    hand: VecDeque<Assignment>,
    ends_us: u64,
    most_in_hand: usize,
}

/// Runs a job to its end, every step reported at once; returns the workers with the time of their last step.
fn run(policy: &str, iterations: u64, intervals_us: &[u64]) -> Vec<Worker> {
    let mut plane = ControlPlane::new(1, Plain);
    let mut workers: Vec<Worker> = (1..)
        .zip(intervals_us)
        .map(|(id, &interval_us)| Worker {
            id: Incarnation(id),
            interval_us,
            hand: VecDeque::new(),
            ends_us: 0,
            most_in_hand: 0,
        })
        .collect();
    let mut give = |workers: &mut [Worker], now_us: u64, input: Input| {
        for (id, assignment) in plane.settle(now_us, [input]) {
            let worker = workers.iter_mut().find(|worker| worker.id == id).unwrap();
            worker.hand.extend(matches!(assignment.work, Work::Iterate { .. }).then_some(assignment));
            worker.most_in_hand = worker.most_in_hand.max(worker.hand.len());
        }
    };
    for id in (1..).map(Incarnation).take(intervals_us.len()) {
        give(&mut workers, 1, Input::WorkerJoined { worker: id, about: WorkerInfo::default() });
    }
    let spec: JobSpec = training_job(training(policy.parse().unwrap(), iterations, 1));
    let submission = Submission { spec: Box::new(spec), nonce: 1, if_taken: IfTaken::Refuse };
    give(&mut workers, 1, Input::Submit(submission));
    while let Some(next) = (0..workers.len())
        .filter(|&index| !workers[index].hand.is_empty())
        .min_by_key(|&index| workers[index].ends_us + workers[index].interval_us)
    {
        let Worker { id, interval_us, hand, ends_us, .. } = &mut workers[next];
        let Assignment { key, work, .. } = hand.pop_front().unwrap();
        let Work::Iterate { range, .. } = work else { panic!("{work:?}") };
        *ends_us += *interval_us;
        let iterated = Iterated { range, loss: 1.0, compute_us: *interval_us, ..Iterated::default() };
        let report = TaskReport { key, ended_ago_us: 0, outcome: Outcome::Iterated(iterated) };
        let (worker, now_us) = (*id, 1 + *ends_us);
        give(&mut workers, now_us, Input::Report { worker, report });
    }
    workers
}

/// An iteration took so long. Nothing else takes any time.
fn iterated(work: &Work, compute_us: u64) -> Outcome {
    let Work::Iterate { range, .. } = work else { return done(work) };
    Outcome::Iterated(Iterated { range: *range, loss: 1.0, compute_us, ..Iterated::default() })
}

#[test]
fn a_worker_has_a_quarter_of_a_second_in_hand_and_not_more_than_256_steps() {
    for (interval_us, most) in [(500, 256), (1_000, 250), (10_000, 25), (100_000, 2), (1_000_000, 2)] {
        let workers = run("asp", 10_000, &[interval_us, interval_us]);
        assert_eq!(workers[0].most_in_hand, most, "{interval_us} us");
    }
}

#[test]
fn of_rounds_that_follow_from_no_measurement_160_ms_of_short_ones_are_in_hand_at_most_32_and_fewer_for_many_workers()
 {
    let cases = [
        ("bsp", 500, 2, 32),
        ("bsp", 5_000, 2, 32),
        ("bsp", 10_000, 2, 16),
        ("bsp", 39_000, 2, 4),
        ("bsp", 40_000, 2, 1),
        ("bsp", 500, 64, 16),
        ("lb-bsp", 500, 2, 32),
        ("lb-bsp", 40_000, 2, 1),
        ("lb-bsp+rule=step", 500, 2, 2),
    ];
    for (policy, interval_us, workers, most) in cases {
        let intervals_us = vec![interval_us; workers];
        let workers = run(policy, 300 * workers as u64, &intervals_us);
        assert_eq!(
            workers[0].most_in_hand,
            most,
            "{policy}, {interval_us} us, {} workers",
            intervals_us.len()
        );
    }
}

#[test]
fn elastic_supersteps_of_short_steps_are_in_hand_for_160_ms_and_long_ones_are_watched() {
    let cases: [(&str, &[u64], &[usize]); 6] = [
        ("elastic-bsp:15", &[3_000, 3_000], &[32, 32]),
        ("elastic-bsp:15", &[4_000, 16_000], &[32, 10]),
        ("elastic-lb:15", &[3_000, 3_000], &[32, 32]),
        ("elastic-bsp:15", &[40_000, 40_000], &[1, 1]),
        ("elastic-bsp:15+max-lead=6", &[3_000, 3_000], &[2, 2]),
        ("elastic-lb:15+rule=step", &[3_000, 3_000], &[2, 2]),
    ];
    for (policy, intervals_us, most) in cases {
        let workers = run(policy, 2_000, intervals_us);
        let in_hand: Vec<usize> = workers.iter().map(|worker| worker.most_in_hand).collect();
        assert_eq!(in_hand, most, "{policy}, {intervals_us:?} us");
    }
}

#[test]
fn a_worker_that_has_nobody_to_meet_is_not_watched() {
    for policy in ["elastic-bsp:15", "elastic-lb:15", "auto"] {
        for (interval_us, most) in [(500, 256), (10_000, 25), (100_000, 2)] {
            let workers = run(policy, 10_000, &[interval_us]);
            assert_eq!(workers[0].most_in_hand, most, "{policy}, {interval_us} us");
        }
    }
}

#[test]
fn workers_that_left_do_not_count_among_those_who_share_what_is_left() {
    let mut world = World::new();
    world.submit(training_job(training("asp".parse().unwrap(), 10_000, 1)), 1);
    let mut in_hand = Vec::new();
    for n in 1..=40 {
        let worker = world.join(n, &format!("w{n}"));
        (0..3).for_each(|_| drop(world.report(worker, |work| iterated(work, 1_000))));
        in_hand.push(world.hands[&worker].len());
        world.give(Input::WorkerGone {
            worker,
            reason: "its machine is gone".into(),
            never_told: Vec::new(),
        });
    }
    assert_eq!(in_hand, [250; 40]);
}

#[test]
fn the_few_samples_that_were_left_of_an_epoch_say_nothing_about_how_much_is_in_hand() {
    let mut world = World::new();
    let train = TrainSpec { epochs: 50, ..training("asp".parse().unwrap(), 4 * 64 + 2, 64) };
    world.submit(training_job(train), 1);
    let worker = world.join(1, "only");
    for _ in 0..20 {
        world.report(worker, |work| {
            let Work::Iterate { range, .. } = work else { return done(work) };
            iterated(work, if range.len == 2 { 10_000 } else { 1_000_000 })
        });
        assert!(world.hands[&worker].len() <= 2, "{}", world.hands[&worker].len());
    }
}

#[test]
fn few_rounds_are_in_hand_while_one_worker_needs_long_for_each() {
    let workers = run("bsp", 600, &[500, 500, 50_000]);
    let most: Vec<usize> = workers.iter().map(|worker| worker.most_in_hand).collect();
    assert_eq!(most, [2, 2, 1]);
}

#[test]
fn workers_of_different_speeds_end_at_about_the_same_time() {
    for intervals_us in [vec![1_000, 1_000], vec![1_000, 2_500], vec![1_000, 1_000, 1_000, 10_000]] {
        let workers = run("asp", 4_000, &intervals_us);
        let ends = || workers.iter().map(|worker| worker.ends_us);
        let (first, last) = (ends().min().unwrap(), ends().max().unwrap());
        assert!(last - first <= 30_000, "{intervals_us:?}: {first} to {last} us");
    }
}

/// The round before is merged when the last worker has pushed, and the engine hears of it some time after
/// that. Whoever had only a part of its next round would stand still until then, because a round is reported
/// at its end.
#[test]
fn a_local_round_is_in_hand_as_a_whole_before_the_one_before_it_is_merged() {
    let mut world = World::new();
    let (quick, slow) = (world.join(1, "quick"), world.join(2, "slow"));
    let spec = training_job(training("local-sgd:4".parse().unwrap(), 1_000, 1));
    world.submit(spec, 1);
    let in_hand = |world: &World| [quick, slow].map(|worker| world.hands[&worker].len());
    assert_eq!(in_hand(&world), [4, 4]);
    for _ in 0..4 {
        world.report(quick, |work| iterated(work, 10_000));
    }
    assert_eq!(in_hand(&world), [4, 8]);
}
