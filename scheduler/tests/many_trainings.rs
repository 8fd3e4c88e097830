//! Many trainings beside each other: what is heard of one costs nothing for the others.

use std::collections::BTreeMap;

use syncline_scheduler::{
    core::{Assignment, Cancellation, Core, Effect, IfTaken, Input, Submission, TaskReport, WorkerInfo},
    ids::Incarnation,
    sim::{training, training_job},
    spec::CheckpointSpec,
};

use crate::world::{done, id};

/// A job for one worker, which keeps a checkpoint every minute.
fn submission(name: &str) -> Input {
    let mut train = training("asp".parse().unwrap(), 1_000, 1);
    train.max_workers = 1;
    train.checkpoint = Some(CheckpointSpec::every_s(60).keep(1));
    let mut spec = training_job(train);
    spec.id = id(name);
    Input::Submit(Submission { spec: Box::new(spec), nonce: 1, if_taken: IfTaken::Refuse })
}

struct World {
    core: Core,
    hands: BTreeMap<Incarnation, Vec<Assignment>>,
}

impl World {
    fn give(&mut self, now_us: u64, input: Input) {
        for effect in self.core.handle(now_us, input).unwrap() {
            match effect {
                Effect::Assign { worker, assignment } => {
                    self.hands.entry(worker).or_default().insert(0, assignment);
                }
                Effect::OpenShards { run, .. } => self.give(now_us, Input::ShardsOpened { run }),
                _ => {}
            }
        }
    }

    fn report(&mut self, now_us: u64, worker: u64) {
        let worker = Incarnation(worker);
        let Assignment { key, work, .. } = self.hands.get_mut(&worker).unwrap().pop().unwrap();
        let report = TaskReport { key, ended_ago_us: 0, outcome: done(&work) };
        self.give(now_us, Input::Report { worker, report });
    }
}

#[test]
fn a_report_about_one_training_looks_at_no_other_and_a_tick_looks_at_all() {
    let mut world = World { core: Core::new(1), hands: BTreeMap::new() };
    for (n, name) in [(1, "a"), (2, "b")] {
        world.give(1, Input::WorkerJoined { worker: Incarnation(n), about: WorkerInfo::default() });
        world.give(2, submission(name));
        // It prepares itself, and does an iteration.
        world.report(3, n);
        world.report(4, n);
    }
    let later_us = 3_600_000_000;
    let before = world.core.job(&id("b")).unwrap().clone();
    world.report(later_us, 1);
    assert!(world.core.job(&id("b")).unwrap() == &before);
    world.give(later_us, Input::Tick);
    assert!(world.core.job(&id("b")).unwrap() != &before, "its checkpoint is due");
}

#[test]
fn a_training_that_begins_or_ends_is_told_to_the_first_of_a_long_queue_and_not_to_all() {
    const ALL: u64 = 300;
    let mut world = World { core: Core::new(1), hands: BTreeMap::new() };
    let name = |n: u64| format!("job-{n:03}");
    for n in 0..ALL {
        world.give(n + 1, submission(&name(n)));
    }
    let waits_for = |world: &World, n| world.core.job(&id(&name(n))).unwrap().waits_for().map(str::to_owned);
    assert_eq!(waits_for(&world, 15).unwrap(), "1 worker: none is there");
    assert_eq!(waits_for(&world, 16).unwrap(), "1 worker: none that trains is there");
    let first = Input::WorkerJoined { worker: Incarnation(1), about: WorkerInfo::default() };
    world.give(ALL, first);
    world.core.take_commits(ALL);
    for ended in 0..3 {
        let job = id(&name(ended)).into();
        world.give(ALL + 1, Input::Cancel(Cancellation { job, reason: String::new(), grace_ms: 0 }));
        let commits = world.core.take_commits(ALL + 1).len();
        assert_eq!(commits, 18, "the one that ended, the one that begins, and sixteen that wait");
        let begun = waits_for(&world, ended + 1).unwrap_or_default();
        assert!(!begun.starts_with("1 worker:"), "{begun}");
        let told = format!("1 worker: of 1 that are there 0 are idle, 1 serve `{}`", name(ended + 1));
        assert_eq!(waits_for(&world, ended + 2), Some(told.clone()));
        assert_eq!(waits_for(&world, ended + 17), Some(told));
        let behind = "1 worker: 16 or more trainings that came before it wait as well".to_owned();
        assert_eq!(waits_for(&world, ended + 18), Some(behind.clone()));
        assert_eq!(waits_for(&world, ALL - 1), Some(behind));
    }
    world.give(ALL + 2, Input::WorkerJoined { worker: Incarnation(2), about: WorkerInfo::default() });
    assert_eq!(world.core.take_commits(ALL + 2).len(), 17);
}
