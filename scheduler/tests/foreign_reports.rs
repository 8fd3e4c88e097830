//! Reports that a worker may not make: about what others work on, or with an outcome that such a task cannot
//! have.

use syncline_scheduler::{
    core::{Blame, Commit, EvaluationSums, Input, Iterated, Outcome, TaskKey, TaskReport},
    fault_code::FaultCode,
    graph::TaskId,
    ids::{Incarnation, Superstep},
    sim::{training, training_job},
    spec::{Node, NodeKind},
};

use crate::world::{World, done, id};

/// Two workers train, a snapshot and an evaluation come after.
fn world(iterations: u64) -> World {
    let mut world = World::new();
    for n in 1..=2 {
        world.join(n, &n.to_string());
    }
    let mut spec = training_job(training("bsp".parse().unwrap(), iterations, 1));
    spec.id = id("job");
    for (name, kind) in [("snapshot", NodeKind::Snapshot), ("test", NodeKind::Evaluate)] {
        let after = vec![spec.nodes[0].name.clone()];
        spec.nodes.push(Node { name: name.parse().unwrap(), after, retries: 0, kind });
    }
    world.submit(spec, 1);
    world
}

fn outcomes() -> [Outcome; 4] {
    let failed = |blame| Outcome::Failed { code: FaultCode::new("E330"), reason: "[E330] no".into(), blame };
    [
        Outcome::Evaluated(EvaluationSums { samples: 1, weight: 1.0, ..EvaluationSums::default() }),
        Outcome::Prepared,
        failed(Blame::Job),
        failed(Blame::Worker),
    ]
}

fn stored(world: &mut World) -> Commit {
    world.plane.core.full_commit(&id("job"), world.now_us).unwrap()
}

fn report(world: &mut World, worker: u64, task: &TaskId, outcome: Outcome) {
    let key = TaskKey { run: world.job("job").run(), task: task.clone(), attempt: 1 };
    let report = TaskReport { key, ended_ago_us: 0, outcome };
    world.give(Input::Report { worker: Incarnation(worker), report });
}

fn node(name: &str) -> TaskId {
    TaskId::Node(name.parse().unwrap())
}

#[test]
fn no_report_ends_what_its_worker_does_not_hold() {
    let mut world = world(100);
    let [own, other] = [1, 2].map(|n| TaskId::Iteration { worker: Incarnation(n), seq: 1 });
    assert_eq!(world.hands[&Incarnation(1)][0].key.task, own);
    let before = stored(&mut world);
    let barrier = TaskId::Barrier(Superstep(1));
    for task in [node("train"), node("snapshot"), node("test"), barrier, TaskId::Clock(1), other] {
        for outcome in outcomes() {
            report(&mut world, 1, &task, outcome.clone());
            assert!(stored(&mut world) == before, "{task}: {outcome:?}");
        }
    }
    for outcome in &outcomes()[..2] {
        report(&mut world, 1, &own, outcome.clone());
        assert!(stored(&mut world) == before, "{own}: {outcome:?}");
    }
}

#[test]
fn a_snapshot_is_the_shards_and_an_evaluation_is_whose_it_was_given_to() {
    let mut world = world(2);
    for n in [1, 2] {
        world.report(Incarnation(n), done);
    }
    let evaluates = |n| world.hands[&Incarnation(n)].iter().any(|given| given.key.task == node("test"));
    let (holder, other) = if evaluates(1) { (1, 2) } else { (2, 1) };
    assert!(evaluates(holder) && !evaluates(other));
    let before = stored(&mut world);
    for outcome in outcomes() {
        for worker in [holder, other] {
            report(&mut world, worker, &node("snapshot"), outcome.clone());
        }
        report(&mut world, other, &node("test"), outcome);
        assert!(stored(&mut world) == before);
    }
    report(&mut world, holder, &node("test"), Outcome::Iterated(Iterated::default()));
    assert!(stored(&mut world) == before);
    world.report(Incarnation(holder), done);
    assert_eq!(world.plane.shell.events.iter().filter(|event| *event == "evaluated").count(), 1);
}
