//! How long workers waited at a barrier, whoever is heard of first: they or the shards.

use syncline_scheduler::{
    core::{Assignment, BarrierExplanation, Input, Iterated, Outcome, TaskReport, Work, WorkerExplanation},
    graph::TaskId,
    ids::{Incarnation, Superstep},
    sim::{training, training_job},
};

use crate::world::{World, done};

const STEP_US: u64 = 1_000;

/// Two workers under `policy` that have done their first iterations together, and one of them its next two.
fn world(policy: &str) -> (World, [Incarnation; 2]) {
    let mut world = World::new();
    let workers = [world.join(1, "a"), world.join(2, "b")];
    world.submit(training_job(training(policy.parse().unwrap(), 1_000, 1)), 1);
    for _ in 0..4 {
        world.now_us += STEP_US;
        for worker in workers {
            world.report(worker, done);
        }
    }
    (world, workers)
}

/// The next iteration in a worker's hand is pushed; it is reported later.
fn push(world: &mut World, worker: Incarnation, nth: usize) {
    let Work::Iterate { seq, .. } = world.hands[&worker][nth].work else { panic!() };
    assert!(world.plane.server.shards[0].finish_push(worker, seq, 1));
}

fn report(world: &mut World, worker: Incarnation, ended_ago_us: u64) {
    let Assignment { key, work, .. } = world.hands.get_mut(&worker).unwrap().pop_front().unwrap();
    let Work::Iterate { range, .. } = work else { panic!() };
    let outcome = Outcome::Iterated(Iterated { range, compute_us: STEP_US, ..Iterated::default() });
    world.give(Input::Report { worker, report: TaskReport { key, ended_ago_us, outcome } });
}

fn barrier(world: &World, number: u64) -> BarrierExplanation {
    world.job("job").explain_barrier(Superstep(number)).unwrap()
}

#[test]
fn rounds_that_close_before_anybody_reports_them_tell_how_long_everybody_waited() {
    let (mut world, [a, b]) = world("bsp");
    // Three rounds of which nobody hears; in each the second worker comes 300 us after the first.
    for nth in 0..3 {
        push(&mut world, a, nth);
        push(&mut world, b, nth);
    }
    world.now_us += 10_000;
    world.give(Input::Tick);
    assert_eq!(barrier(&world, 6).state, "closed");
    for round in 0..3 {
        report(&mut world, a, 1_300 * (3 - round));
        assert_eq!(barrier(&world, 4 + round).actual_wait_us, Some(0), "nobody knows yet");
        report(&mut world, b, 1_300 * (3 - round) - 300);
    }
    // The shards told of all three long after they had closed: that was nobody's waiting.
    let waits: Vec<_> = (4..7).map(|n| barrier(&world, n).actual_wait_us.unwrap()).collect();
    assert_eq!(waits, [300; 3]);
}

#[test]
fn a_worker_that_is_rounds_further_when_a_barrier_is_told_of_has_waited_there_too() {
    let (mut world, [a, b]) = world("bsp");
    for nth in 0..2 {
        world.now_us += STEP_US;
        push(&mut world, a, 0);
        report(&mut world, a, 0);
        assert_eq!(barrier(&world, 4 + nth).state, "ordered", "it waits for the other");
    }
    world.now_us += 500;
    push(&mut world, b, 0);
    report(&mut world, b, 0);
    let closed = barrier(&world, 4);
    assert_eq!((closed.state.as_str(), closed.actual_wait_us), ("closed", Some(1_500)));
    let arrived_by = |w: &WorkerExplanation| w.arrived_us.unwrap() <= closed.closed_us.unwrap();
    assert!(closed.workers.iter().all(arrived_by), "{closed:?}: nobody comes behind the end");
}

#[test]
fn nobody_waits_for_the_report_of_a_worker_that_has_left() {
    let (mut world, [a, b]) = world("bsp");
    push(&mut world, a, 0);
    push(&mut world, b, 0);
    world.now_us += 2_000;
    world.give(Input::Tick);
    report(&mut world, a, 500);
    assert_eq!(barrier(&world, 4).actual_wait_us, Some(0));
    world.give(Input::WorkerGone { worker: b, reason: "it was killed".into(), never_told: Vec::new() });
    assert_eq!(barrier(&world, 4).actual_wait_us, Some(500));
}

#[test]
fn a_job_that_stands_says_for_whom_until_it_goes_on() {
    let (mut world, [a, b]) = world("bsp");
    push(&mut world, a, 0);
    report(&mut world, a, 0);
    let waits_for = |world: &World| world.job("job").waits_for().map(str::to_owned);
    world.now_us += 9_000_000;
    world.give(Input::Tick);
    assert_eq!(waits_for(&world), None, "a pause of some seconds may be anything");
    world.now_us += 2_000_000;
    world.give(Input::Tick);
    let said = waits_for(&world).unwrap();
    assert!(said.starts_with("b (w2): nothing was heard of an iteration for 10 s"), "{said}");
    world.now_us += 60_000_000;
    world.give(Input::Tick);
    assert_eq!(waits_for(&world), Some(said), "the same words: nothing is written again");
    push(&mut world, b, 0);
    report(&mut world, b, 0);
    world.give(Input::Tick);
    assert_eq!(waits_for(&world), None);
}

#[test]
fn of_one_that_joined_a_moment_ago_it_is_not_said_that_nothing_was_heard() {
    let (mut world, [a, b]) = world("asp");
    world.now_us += 30_000_000;
    for worker in [a, b] {
        world.give(Input::WorkerGone { worker, reason: "silent".into(), never_told: Vec::new() });
    }
    world.join(3, "c");
    let waits_for = |world: &World| world.job("job").waits_for().map(str::to_owned);
    world.now_us += 1_000_000;
    world.give(Input::Tick);
    let said = waits_for(&world).unwrap_or_default();
    assert!(!said.contains("nothing was heard"), "{said}");
    world.now_us += 10_000_000;
    world.give(Input::Tick);
    let said = waits_for(&world).unwrap_or_default();
    assert!(said.starts_with("c (w3): nothing was heard of an iteration for 10 s"), "{said}");
}

#[test]
fn where_a_worker_has_left_the_shards_are_waited_for_and_not_the_worker() {
    let (mut world, [a, b]) = world("bsp");
    push(&mut world, a, 0);
    report(&mut world, a, 0);
    // As if no shard answered.
    world
        .plane
        .core
        .handle(
            world.now_us,
            Input::WorkerGone { worker: b, reason: "it was killed".into(), never_told: Vec::new() },
        )
        .unwrap();
    let job = world.job("job");
    let (waiting, _) = job.barriers_kept().unwrap();
    let tasks = (waiting.0..waiting.0 + 9).map(|n| TaskId::Barrier(Superstep(n)));
    let iterations = (1..99).map(|seq| TaskId::Iteration { worker: b, seq });
    let said = |tasks: &mut dyn Iterator<Item = TaskId>| {
        let explained = tasks.filter_map(|task| job.explain_task(&task, world.now_us));
        explained.flat_map(|task| task.reasons).collect::<Vec<_>>().join("; ")
    };
    let wanted = "b (w2) has left, and shard s0 has not said yet how far it came";
    let (barriers, iterations) = (said(&mut { tasks }), said(&mut { iterations }));
    assert!(barriers.contains(&format!("it waits for {wanted}")), "{barriers}");
    assert!(iterations.contains(wanted) && !iterations.contains("in hand"), "{iterations}");
}

#[test]
fn a_barrier_says_who_is_late_and_by_how_much() {
    let (mut world, [a, b]) = world("elastic-bsp:4");
    let ordered = |world: &World| {
        let all = (0..100).filter_map(|n| world.job("job").explain_barrier(Superstep(n)));
        all.into_iter().find(|barrier| barrier.state == "ordered" && barrier.expected_us.is_some())
    };
    for _ in 0..50 {
        if ordered(&world).is_some() {
            break;
        }
        world.now_us += STEP_US;
        [a, b].iter().for_each(|worker| drop(world.report(*worker, done)));
    }
    let task = TaskId::Barrier(ordered(&world).unwrap().barrier);
    let said =
        |world: &World, now_us| world.job("job").explain_task(&task, now_us).unwrap().reasons.join("; ");
    let early = said(&world, world.now_us);
    assert!(early.contains("iterations done, expected in "), "{early}");
    let late = said(&world, world.now_us + 5_000_000);
    assert!(late.contains("b (w2): ") && late.contains("iterations done, late by 49"), "{late}");
}

/// Where the engine decides how far a worker may get, the wait is not one of a pull: nothing is in its hand.
#[test]
fn what_a_policy_holds_back_is_a_wait_of_the_worker_until_it_is_granted_more() {
    for policy in ["dssp:1:3", "dssp:1:3+reading=literal"] {
        let (mut world, [quick, slow]) = world(policy);
        while !world.hands[&quick].is_empty() {
            world.now_us += STEP_US;
            world.report(quick, done);
        }
        let waited_us = |world: &World| world.job("job").member(quick).unwrap().spent.wait_us;
        let (since_us, before_us) = (world.now_us, waited_us(&world));
        while world.hands[&quick].is_empty() {
            world.now_us += 50 * STEP_US;
            world.report(slow, done);
        }
        assert_eq!(waited_us(&world) - before_us, world.now_us - since_us, "{policy}");
        // What all have waited together is a figure of the job.
        let of_all_us = waited_us(&world) + world.job("job").member(slow).unwrap().spent.wait_us;
        let shown = &world.plane.shell.summaries[&"job".parse().unwrap()]["waited_ms"];
        assert_eq!(*shown, (of_all_us / 1000).to_string(), "{policy}");
    }
}

#[test]
fn nobody_is_waited_for_to_begin_who_came_when_all_samples_were_given_out() {
    let mut world = World::new();
    let first = world.join(1, "a");
    world.submit(training_job(training("asp".parse().unwrap(), 1, 1)), 1);
    assert_eq!(world.hands[&first].len(), 1, "the only batch");
    let begins = "a (w1) to fetch the model, read the data and compute a first batch";
    world.give(Input::Tick);
    assert_eq!(world.job("job").waits_for(), Some(begins));
    let second = world.join(2, "b");
    world.report(second, done);
    world.give(Input::Tick);
    assert_eq!(world.job("job").waits_for(), Some(begins));
}

#[test]
fn there_are_clocks_only_where_a_policy_has_workers_wait_for_them() {
    for (policy, state) in [("ssp:1", Some("planned")), ("dssp:1:3", None), ("bsp", None), ("asp", None)] {
        let (world, _) = world(policy);
        let clock = world.job("job").explain_task(&TaskId::Clock(1_000), world.now_us);
        assert_eq!(clock.map(|clock| clock.state).as_deref(), state, "{policy}");
    }
}
