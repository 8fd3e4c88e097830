//! When a training is evaluated while it runs, who computes it, and what it costs the others.

use syncline_scheduler::{
    core::{Blame, Cancellation, Core, Effect, EvaluationPart, Input, Job, Outcome, StoredJob, Work},
    fault_code::FaultCode,
    graph::TaskId,
    ids::Incarnation,
    sim::{training, training_job},
    spec::{EvaluateSpec, JobSpec, Node, NodeKind, TrainSpec},
};

use crate::{
    cluster::stored::apply,
    world::{POLICIES, World, done, id},
};

/// Epochs of 12 samples in batches of one, an evaluation after each.
fn spec(policy: &str, epochs: u32) -> JobSpec {
    let evaluate = Some(EvaluateSpec::every_epochs(1));
    let train = TrainSpec { epochs, evaluate, ..training(policy.parse().unwrap(), 12, 1) };
    let mut spec = training_job(train);
    spec.id = id("job");
    spec
}

/// The part that a worker has in hand, and nothing else.
fn part(world: &World, worker: u64) -> Option<EvaluationPart> {
    let hand = world.hands.get(&Incarnation(worker))?;
    match &hand.iter().map(|assignment| &assignment.work).collect::<Vec<_>>()[..] {
        [Work::Evaluate { part, .. }] => Some(*part),
        _ => None,
    }
}

fn failed(_: &Work) -> Outcome {
    Outcome::Failed { code: FaultCode::new("E327"), reason: "as it should".into(), blame: Blame::Worker }
}

fn evaluates(world: &World) -> bool {
    world.hands.values().flatten().any(|assignment| matches!(assignment.work, Work::Evaluate { .. }))
}

/// Workers end what they have, one after the other, until `stop` or until the job is over.
fn go_on(world: &mut World, stop: impl Fn(&World) -> bool) {
    for _ in 0..1_000 {
        if stop(world) || world.code("job") != "running" {
            return;
        }
        let busy: Vec<Incarnation> =
            world.hands.iter().filter(|(_, hand)| !hand.is_empty()).map(|(worker, _)| *worker).collect();
        for worker in busy {
            if stop(world) || world.code("job") != "running" {
                return;
            }
            if !world.hands[&worker].is_empty() {
                world.report(worker, done);
            }
        }
        world.now_us += 1_000;
        world.give(Input::Tick);
    }
    panic!("it does not come to that: {:?}", world.job("job").phase());
}

fn leave(world: &mut World, worker: u64) {
    world.hands.remove(&Incarnation(worker));
    world.give(Input::WorkerGone {
        worker: Incarnation(worker),
        reason: "silent".into(),
        never_told: Vec::new(),
    });
}

#[test]
fn each_worker_computes_a_part_and_trains_on_when_all_are_done() {
    for policy in POLICIES {
        let mut world = World::of(spec(policy, 3), 3);
        go_on(&mut world, evaluates);
        assert_eq!(world.job("job").counters().samples_done, 12, "{policy}: exactly an epoch");
        for worker in 1..=3 {
            assert_eq!(part(&world, worker).unwrap().of, 3, "{policy}");
        }
        world.report(Incarnation(3), done);
        world.report(Incarnation(1), done);
        assert!(world.hands[&Incarnation(1)].is_empty(), "{policy}: it waits for the second");
        assert_eq!(world.has_told("evaluated"), 0);
        world.report(Incarnation(2), done);
        assert_eq!(world.has_told("evaluated"), 1, "{policy}");
        assert!(!world.hands[&Incarnation(1)].is_empty(), "{policy}: it trains on");
        go_on(&mut world, |_| false);
        assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 3), "{policy}");
        assert_eq!(world.job("job").counters().samples_done, 36, "{policy}");
    }
}

#[test]
fn one_is_due_in_its_time_also_where_the_clock_was_set_back_by_days() {
    let mut spec = spec("asp", 400);
    let NodeKind::Train(train) = &mut spec.nodes[0].kind else { panic!("another node") };
    train.evaluate = Some(EvaluateSpec::every_s(1));
    let mut world = World::of(spec, 2);
    world.now_us += 1_000_000;
    go_on(&mut world, |world| world.has_told("evaluated") == 1);
    assert_eq!(world.has_told("evaluated"), 1);
    world.plane.core.discount_downtime(world.now_us, 1);
    world.now_us = 1_000_001;
    go_on(&mut world, |world| world.has_told("evaluated") == 2);
    assert_eq!(world.has_told("evaluated"), 2);
    assert!(world.now_us < 2_000_000, "{}", world.now_us);
}

#[test]
fn its_parts_add_up_to_what_people_see() {
    let mut world = World::of(spec("bsp", 2), 3);
    go_on(&mut world, |world| world.has_told("evaluated") == 1);
    let summary = world.plane.core.full_commit(&id("job"), world.now_us).unwrap().summary;
    let field =
        |wanted: &str| summary.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
    assert_eq!((field("test_loss"), field("test_samples")), (Some("1.000000"), Some("30")), "0, 1 and 2");
}

#[test]
fn what_a_node_evaluates_at_the_end_is_evaluated_once() {
    let mut spec = spec("bsp", 3);
    let train = spec.nodes[0].name.clone();
    let (after, kind) = (vec![train], NodeKind::Evaluate);
    spec.nodes.push(Node { name: "test".parse().unwrap(), after, retries: 0, kind });
    let mut world = World::of(spec, 2);
    go_on(&mut world, |_| false);
    assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 3));
}

#[test]
fn a_part_whose_worker_leaves_is_computed_by_another() {
    for policy in POLICIES {
        let mut world = World::of(spec(policy, 2), 2);
        go_on(&mut world, evaluates);
        let lost = part(&world, 2).unwrap();
        leave(&mut world, 2);
        world.report(Incarnation(1), done);
        assert_eq!(part(&world, 1), Some(lost), "{policy}");
        world.report(Incarnation(1), done);
        assert_eq!(world.has_told("evaluated"), 1, "{policy}");
        // The last one goes, too, in the middle of the next one.
        go_on(&mut world, evaluates);
        leave(&mut world, 1);
        assert!(!evaluates(&world));
        world.join(3, "another");
        assert!(part(&world, 3).is_some(), "{policy}");
        go_on(&mut world, |_| false);
        assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 2), "{policy}");
    }
}

#[test]
fn where_only_an_evaluation_is_left_one_worker_is_enough() {
    let mut spec = spec("bsp", 1);
    let NodeKind::Train(train) = &mut spec.nodes[0].kind else { panic!("another node") };
    train.min_workers = 2;
    let mut world = World::of(spec, 2);
    go_on(&mut world, evaluates);
    leave(&mut world, 1);
    leave(&mut world, 2);
    world.join(3, "3");
    go_on(&mut world, |_| false);
    assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 1));
}

#[test]
fn a_part_that_fails_goes_to_another_worker() {
    let mut world = World::of(spec("bsp", 2), 3);
    go_on(&mut world, evaluates);
    world.report(Incarnation(2), failed);
    assert_eq!((world.has_told("attempt_failed"), world.hands[&Incarnation(2)].len()), (1, 0));
    for worker in [1, 3] {
        world.report(Incarnation(worker), done);
    }
    let has_it = |worker: &u64| part(&world, *worker).is_some();
    let other: Vec<u64> = [1, 2, 3].into_iter().filter(has_it).collect();
    assert!(matches!(other[..], [1 | 3]), "{other:?}");
    world.report(Incarnation(other[0]), done);
    assert_eq!((world.has_told("evaluated"), world.has_told("evaluation_failed")), (1, 0));
    // What counts of an evaluation is over with it.
    go_on(&mut world, |_| false);
    assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 2));
}

#[test]
fn a_part_with_which_one_worker_after_the_other_is_lost_is_left_out_and_the_training_goes_on() {
    let mut world = World::of(spec("bsp", 3), 1);
    for n in 1..=3 {
        go_on(&mut world, evaluates);
        assert_eq!(world.has_told("evaluation_failed"), 0, "{n}");
        let reason = "killed by signal 9".to_owned();
        world.give(Input::WorkerGone { worker: Incarnation(n), reason, never_told: Vec::new() });
        world.hands.remove(&Incarnation(n));
        world.join(n + 1, "again");
    }
    assert_eq!((world.has_told("evaluation_failed"), world.code("job")), (1, "running".into()));
    go_on(&mut world, |_| false);
    assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 2), "the others");
}

#[test]
fn one_that_fails_everywhere_is_told_and_left_out() {
    let mut world = World::of(spec("bsp", 2), 4);
    go_on(&mut world, evaluates);
    world.report(Incarnation(2), failed);
    // Whoever has failed at none has the part next; all but the last have done their own by then.
    world.report(Incarnation(1), done);
    world.report(Incarnation(1), failed);
    world.report(Incarnation(3), done);
    let effects = world.report(Incarnation(3), failed);
    let revoked: Vec<Incarnation> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Revoke { worker, key } if matches!(key.task, TaskId::Evaluation { .. }) => Some(*worker),
            _ => None,
        })
        .collect();
    assert_eq!(revoked, [Incarnation(4)]);
    assert_eq!((world.has_told("evaluation_failed"), world.code("job")), (1, "running".into()));
    // What the others had is over, and comes too late.
    world.report(Incarnation(4), done);
    go_on(&mut world, |_| false);
    assert_eq!((world.code("job"), world.has_told("evaluated")), ("done".into(), 1), "that of the end");
}

#[test]
fn a_pause_lets_parts_end_and_begins_none() {
    let mut world = World::of(spec("bsp", 2), 2);
    go_on(&mut world, evaluates);
    world.give(Input::Pause { job: id("job"), paused: true });
    world.report(Incarnation(1), done);
    assert_eq!(world.has_told("evaluated"), 0);
    world.report(Incarnation(2), done);
    assert_eq!(world.has_told("evaluated"), 1);
    assert!(world.hands.values().all(|hand| hand.is_empty()), "nothing more is granted");
}

#[test]
fn a_job_that_is_canceled_during_one_can_be_read_and_knows_of_it() {
    let mut world = World::of(spec("bsp", 2), 2);
    go_on(&mut world, evaluates);
    world.report(Incarnation(1), done);
    world.give(Input::Cancel(Cancellation { job: id("job").into(), reason: String::new(), grace_ms: 0 }));
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    assert!(Job::load(&stored).unwrap() == *world.job("job"));
    let part =
        |number, part| world.job("job").explain_task(&TaskId::Evaluation { number, part }, world.now_us);
    assert_eq!(part(0, 1).unwrap().state, "canceled");
    assert_eq!(part(0, 9).unwrap().reasons, ["it is over; only the newest finished tasks are kept"]);
    assert_eq!(part(1, 0), None);
}

#[test]
fn nobody_evaluates_twice_what_is_the_same() {
    let mut spec = spec("bsp", 1);
    if let NodeKind::Train(train) = &mut spec.nodes[0].kind {
        train.evaluate = Some(EvaluateSpec::every_s(1));
    }
    let mut world = World::of(spec, 1);
    world.report(Incarnation(1), done);
    world.now_us += 2_000_000;
    world.give(Input::Tick);
    go_on(&mut world, |world| world.has_told("evaluated") == 1);
    let hand = world.hands[&Incarnation(1)].len();
    assert!(hand > 0, "it trains on");
    for _ in 0..5 {
        world.now_us += 2_000_000;
        world.give(Input::Tick);
    }
    go_on(&mut world, |world| world.has_told("evaluated") == 2);
    assert!(world.job("job").counters().samples_done > 1);
}

#[test]
fn another_engine_knows_what_is_computed_and_what_came_of_the_rest() {
    let mut world = World::of(spec("elastic-bsp:4", 2), 3);
    go_on(&mut world, evaluates);
    world.report(Incarnation(2), done);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    let loaded = Job::load(&stored).unwrap();
    assert!(loaded == *world.job("job"));
    let assigned = |effect: &Effect| match effect {
        Effect::Assign { worker, assignment } if matches!(assignment.work, Work::Evaluate { .. }) => {
            Some(*worker)
        }
        _ => None,
    };
    let effects = Core::new(1).restore(loaded);
    assert_eq!(effects.iter().filter_map(assigned).collect::<Vec<_>>(), [Incarnation(1), Incarnation(3)]);
    // Parts that its state counts and that are not there.
    stored.tasks.retain(|task, _| !task.starts_with("evaluation/"));
    assert!(Job::load(&stored).unwrap_err().to_string().contains("evaluation"));
}
