//! A training that is paused leaves its workers to others, and goes on exactly where it was.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{Input, Phase, Refused, Work},
    ids::Incarnation,
    sim::{training, training_job},
    spec::{JobSpec, NodeKind, TrainSpec},
};

use crate::world::{World, done, id};

const FIRST: Incarnation = Incarnation(1);
const AGAIN: Incarnation = Incarnation(2);

fn spec(name: &str, policy: &str) -> JobSpec {
    JobSpec { id: id(name), ..training_job(training(policy.parse().unwrap(), 20, 1)) }
}

impl World {
    fn pause(&mut self, name: &str, paused: bool) {
        self.give(Input::Pause { job: id(name), paused });
    }

    /// A worker does all that it is given, one iteration after the other; returns how many.
    fn work(&mut self, worker: Incarnation, at_most: usize) -> usize {
        for n in 0..at_most {
            if self.hands.get(&worker).is_none_or(VecDeque::is_empty) {
                return n;
            }
            self.now_us += 1_000;
            self.report(worker, done);
        }
        at_most
    }

    fn phase(&self, name: &str) -> &'static str {
        self.job(name).phase().shown().word()
    }

    fn shown(&mut self, name: &str, field: &str) -> String {
        let commit = self.plane.core.full_commit(&id(name), self.now_us).unwrap();
        commit.summary.iter().find(|(other, _)| *other == field).unwrap().1.clone()
    }

    fn waits_for(&mut self, name: &str) -> String {
        self.shown(name, "waiting_for")
    }
}

#[test]
fn a_paused_training_ends_what_is_handed_out_and_goes_on_where_it_was() {
    for policy in ["asp", "bsp", "ssp:3", "elastic-bsp:5", "local-sgd:4"] {
        let mut world = World::new();
        world.submit(spec("job", policy), 1);
        world.join(1, "first");
        assert_eq!(world.work(FIRST, 5), 5, "{policy}");
        world.pause("job", true);
        world.pause("job", true);
        assert!(world.waits_for("job").contains("`syncline resume job`"), "{policy}");
        let rest = world.work(FIRST, 20);
        assert!(rest < 15, "{policy}: {rest} more after five");
        assert_eq!(world.plane.shell.dismissed, [FIRST], "{policy}");

        world.join(2, "first");
        assert_eq!((world.work(AGAIN, 1), world.phase("job")), (0, "running"), "{policy}");
        world.pause("job", false);
        assert_eq!(world.work(AGAIN, 30), 15 - rest, "{policy}: the samples that were left");
        assert_eq!(world.phase("job"), "done", "{policy}");
        let told = &world.plane.shell.events;
        assert_eq!(
            told.iter().filter(|event| *event == "paused" || *event == "resumed").count(),
            2,
            "{policy}"
        );
    }
}

#[test]
fn queue_and_pauses_are_no_part_of_the_time_for_which_it_has_trained() {
    const MINUTE_US: u64 = 60_000_000;
    let mut world = World::new();
    world.submit(spec("job", "asp"), 1);
    assert_eq!(world.shown("job", "training_seconds"), "", "it is queued");
    world.now_us += MINUTE_US;
    world.join(1, "first");
    assert_eq!(world.shown("job", "training_seconds"), "0.000");
    world.work(FIRST, 5);
    assert_eq!(world.shown("job", "training_seconds"), "0.005");
    world.pause("job", true);
    let rest = world.work(FIRST, 20) as u64;
    let per_s = world.shown("job", "samples_per_s");
    world.now_us += MINUTE_US;
    assert_eq!(world.shown("job", "training_seconds"), "0.005", "it is paused");
    assert_eq!((world.shown("job", "samples_per_s"), per_s.parse::<f64>().unwrap() > 0.0), (per_s, true));
    world.join(2, "first");
    world.pause("job", false);
    world.work(AGAIN, 30);
    let trained = format!("0.{:03}", 20 - rest);
    world.now_us += MINUTE_US;
    assert_eq!((world.phase("job"), world.shown("job", "training_seconds")), ("done", trained));
}

#[test]
fn the_next_job_in_the_queue_has_the_workers_of_a_paused_one() {
    let mut world = World::new();
    world.submit(spec("first", "bsp"), 1);
    world.submit(spec("next", "bsp"), 2);
    world.join(1, "first");
    world.pause("first", true);
    world.work(FIRST, 20);
    assert_eq!((world.phase("first"), world.phase("next")), ("running", "queued"));
    world.join(2, "first");
    assert_eq!((world.phase("first"), world.phase("next")), ("running", "running"));
    assert_eq!(world.plane.core.job(&id("next")).unwrap().active().collect::<Vec<_>>(), [AGAIN]);
}

#[test]
fn a_training_that_is_paused_in_the_queue_begins_when_it_is_resumed() {
    let mut world = World::new();
    let mut limited = spec("job", "bsp");
    for node in &mut limited.nodes {
        if let NodeKind::Train(train) = &mut node.kind {
            train.queue_limit_ms = Some(1_000);
        }
    }
    world.submit(limited, 1);
    world.pause("job", true);
    world.now_us += 2_000_000;
    world.give(Input::Tick);
    assert_eq!(world.phase("job"), "queued", "the time in the queue does not count while it is paused");
    world.pause("job", false);
    world.now_us += 999_000;
    world.give(Input::Tick);
    assert_eq!(world.phase("job"), "queued", "and begins anew");

    world.pause("job", true);
    world.join(1, "first");
    assert_eq!((world.phase("job"), world.work(FIRST, 1)), ("queued", 0));
    assert!(world.waits_for("job").contains("`syncline resume job`"));
    world.pause("job", false);
    assert_eq!((world.phase("job"), world.work(FIRST, 30)), ("running", 20));
}

#[test]
fn what_is_over_or_unknown_is_not_paused() {
    let mut world = World::new();
    world.submit(spec("job", "bsp"), 1);
    world.join(1, "first");
    world.work(FIRST, 20);
    assert_eq!(world.plane.core.job(&id("job")).unwrap().phase(), &Phase::Done);
    for (job, code) in [("job", "[E137]"), ("nobody", "[E131]")] {
        let pause = Input::Pause { job: id(job), paused: true };
        let refused: Refused = world.plane.core.handle(world.now_us, pause).unwrap_err();
        assert!(refused.to_string().starts_with(code), "{refused}");
    }
}

#[test]
fn a_training_that_was_paused_goes_on_with_all_of_its_min_workers_or_waits() {
    for policy in ["bsp", "elastic-bsp:5", "asp"] {
        let mut world = World::new();
        let train = TrainSpec { min_workers: 2, ..training(policy.parse().unwrap(), 20, 1) };
        world.submit(JobSpec { id: id("job"), ..training_job(train) }, 1);
        world.join(1, "first");
        assert_eq!(world.work(FIRST, 1), 0, "{policy}: alone");
        world.join(2, "second");
        for worker in [FIRST, AGAIN] {
            assert_eq!(world.work(worker, 1), 1, "{policy}");
        }
        world.pause("job", true);
        while world.work(FIRST, 1) + world.work(AGAIN, 1) > 0 {}
        assert_eq!(world.plane.shell.dismissed.len(), 2, "{policy}");

        let (third, fourth) = (world.join(3, "first"), Incarnation(4));
        world.pause("job", false);
        assert_eq!(world.work(third, 1), 0, "{policy}: alone after the pause");
        let waits = world.waits_for("job");
        assert!(waits.starts_with("2 workers, its `min_workers`"), "{policy}: {waits}");
        world.join(4, "second");
        // Both at once, neither of which prepares itself while the other trains.
        for worker in [third, fourth] {
            let given = world.hands[&worker].front().unwrap();
            assert!(matches!(given.work, Work::Iterate { .. }), "{policy}: {given:?}");
        }
        while world.work(third, 1) + world.work(fourth, 1) > 0 {}
        assert_eq!(world.phase("job"), "done", "{policy}");
    }
}
