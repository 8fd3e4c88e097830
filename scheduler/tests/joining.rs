//! A worker that joins a training at work shows first that it can run it; nobody waits for it before that.

use syncline_scheduler::{
    core::{Blame, Cancellation, Core, Effect, Input, Job, Membership, Outcome, StoredJob, Work},
    fault_code::FaultCode,
    graph::{TaskId, TrainingTaskState},
    ids::Incarnation,
    sim::{training, training_job},
    spec::{JobSpec, TrainSpec},
};

use crate::{
    cluster::stored::apply,
    world::{World, done, id},
};

const POLICIES: [&str; 6] = ["asp", "bsp", "ssp:1", "dssp:1:4", "elastic-bsp:4", "lb-bsp"];

fn spec(policy: &str, iterations: u64) -> JobSpec {
    let mut spec = training_job(training(policy.parse().unwrap(), iterations, 1));
    spec.id = id("job");
    spec
}

/// A job in which one worker has done an iteration, and another one has come.
fn joined(policy: &str, iterations: u64) -> (World, Incarnation, Incarnation) {
    let mut world = World::new();
    let first = world.join(1, "first");
    world.submit(spec(policy, iterations), 1);
    world.report(first, done);
    let second = world.join(2, "second");
    (world, first, second)
}

fn membership(world: &World, worker: Incarnation) -> &Membership {
    &world.job("job").member(worker).unwrap().membership
}

fn prepares(world: &World, worker: Incarnation) -> bool {
    matches!(world.hands[&worker][0].work, Work::Prepare { .. }) && world.hands[&worker].len() == 1
}

#[test]
fn nobody_waits_for_a_worker_that_prepares_itself_under_any_policy() {
    for policy in POLICIES {
        let (mut world, first, second) = joined(policy, 40);
        assert!(prepares(&world, second), "{policy}");
        for n in 0..20 {
            assert!(!world.hands[&first].is_empty(), "{policy}: {n} iterations without the second");
            world.report(first, done);
        }
        assert_eq!(*membership(&world, second), Membership::Preparing, "{policy}");
        world.report(second, done);
        assert_eq!(*membership(&world, second), Membership::Active, "{policy}");
        for _ in 0..8 {
            if !world.hands[&first].is_empty() {
                world.report(first, done);
            }
        }
        assert!(!world.hands[&second].is_empty(), "{policy}: it is given iterations from then on");
    }
}

#[test]
fn a_training_ends_without_a_worker_that_still_prepares_itself() {
    let (mut world, first, second) = joined("bsp", 10);
    let mut effects = Vec::new();
    while world.code("job") == "running" {
        effects = world.report(first, done);
    }
    assert_eq!(world.code("job"), "done");
    let dismissed = |e: &Effect| matches!(e, Effect::DismissWorker { worker, .. } if *worker == second);
    assert!(effects.iter().any(dismissed), "{effects:?}");
    let gives_up = |e: &Effect| matches!(e, Effect::Revoke { worker, key } if *worker == second && key.task == TaskId::Prepare(second));
    assert!(effects.iter().any(gives_up), "{effects:?}");
}

#[test]
fn whatever_fails_while_a_worker_prepares_itself_excludes_it_alone() {
    for blame in [Blame::Worker, Blame::Job] {
        let (mut world, first, second) = joined("bsp", 40);
        let fault = Outcome::Failed { code: FaultCode::new("E361"), reason: "no memory".into(), blame };
        let effects = world.report(second, |_| fault.clone());
        assert_eq!((world.code("job"), membership(&world, second)), ("running".into(), &Membership::Gone));
        assert!(
            !effects.iter().any(|e| matches!(e, Effect::Seal { .. })),
            "it has pushed nothing: {effects:?}"
        );
        let state = world.job("job").task_state(&TaskId::Prepare(second));
        assert_eq!(state, Some(&TrainingTaskState::Lost), "{blame:?}");
        world.report(first, done);
    }
}

#[test]
fn one_that_is_left_alone_while_it_prepares_itself_goes_on_with_the_job() {
    let (mut world, first, second) = joined("bsp", 40);
    world.give(Input::WorkerGone { worker: first, reason: "killed".into(), never_told: Vec::new() });
    let waits = |job: &Job| job.waits_for().unwrap_or_default().to_owned();
    let said = waits(world.job("job"));
    assert!(said.contains("second (w2)") && said.contains("first batch"), "{said}");
    world.report(second, done);
    world.report(second, done);
    assert_eq!((world.code("job"), waits(world.job("job"))), ("running".into(), String::new()));
}

#[test]
fn a_worker_that_prepares_itself_counts_as_one_of_max_workers() {
    let mut world = World::new();
    let first = world.join(1, "first");
    let train = TrainSpec { max_workers: 2, ..training("asp".parse().unwrap(), 40, 1) };
    let spec = JobSpec { id: id("job"), ..training_job(train) };
    world.submit(spec, 1);
    world.report(first, done);
    let (second, third) = (world.join(2, "second"), world.join(3, "third"));
    assert!(prepares(&world, second) && !world.hands.contains_key(&third));
}

#[test]
fn an_engine_that_comes_back_asks_again_for_what_a_worker_prepares() {
    let (mut world, _, second) = joined("bsp", 40);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    let effects = Core::new(1).restore(Job::load(&stored).unwrap());
    let again = |e: &Effect| matches!(e, Effect::Assign { worker, assignment } if *worker == second && matches!(assignment.work, Work::Prepare { .. }));
    assert!(effects.iter().any(again), "{effects:?}");
}

#[test]
fn the_next_job_gets_a_worker_that_prepares_itself_for_an_ended_one_only_when_that_is_over() {
    for pauses in [false, true] {
        let (mut world, first, second) = joined("bsp", 40);
        if pauses {
            world.give(Input::Pause { job: id("job"), paused: true });
            world.report(first, done);
        } else {
            let cancellation = Cancellation { job: id("job").into(), reason: String::new(), grace_ms: 0 };
            world.give(Input::Cancel(cancellation));
        }
        let first = if pauses { world.join(11, "first") } else { first };
        world.hands.clear();
        world.submit(JobSpec { id: id("next"), ..spec("bsp", 40) }, 2);
        assert!(world.hands.contains_key(&first) && !world.hands.contains_key(&second), "{pauses}");
        // It has come to an end with the other job, or gave up.
        let again = world.join(12, "second");
        assert!(prepares(&world, again), "{pauses}");
    }
}
