//! A training that runs and has no worker left says what a person needs to give it one.

use syncline_scheduler::{
    core::{Blame, Cancellation, Input, Outcome, WorkerInfo},
    fault_code::FaultCode,
    ids::{Incarnation, JobId},
    sim::{training, training_job},
    spec::JobSpec,
};

use crate::world::{World, done};

/// 2026-11-29 00:44 UTC.
const LOST_US: u64 = 1_795_913_052_000_000;
const ADVICE: &str = "; `syncline worker --engine HOST:PORT` starts another, `syncline workers` shows all";

fn job(name: &str, [min_workers, max_workers]: [u32; 2]) -> JobSpec {
    let mut settings = training("bsp".parse().unwrap(), 1_000, 1);
    (settings.min_workers, settings.max_workers) = (min_workers, max_workers);
    JobSpec { id: name.parse().unwrap(), ..training_job(settings) }
}

/// A job that has trained with as many workers as it takes, all of which are lost.
fn lost(workers: u32, min_workers: u32) -> World {
    let mut world = World::new();
    let numbers = || 1..=u64::from(workers);
    for n in numbers() {
        world.join(n, &format!("w{n}"));
    }
    world.submit(job("job", [min_workers, workers]), 1);
    for n in numbers() {
        world.report(Incarnation(n), done);
    }
    world.now_us = LOST_US;
    numbers().for_each(|n| leave(&mut world, n));
    world
}

fn leave(world: &mut World, n: u64) {
    let reason = "it was silent".to_owned();
    world.give(Input::WorkerGone { worker: Incarnation(n), reason, never_told: Vec::new() });
}

fn waits(world: &World) -> String {
    world.job("job").waits_for().unwrap_or_default().to_owned()
}

#[test]
fn it_is_said_since_when_it_has_none_and_how_many_it_had_and_what_gives_it_one() {
    let mut world = lost(3, 1);
    let none = format!(
        "a worker: it has had none since 2026-11-29 00:44 UTC, and had 3 at most; none is there{ADVICE}"
    );
    assert_eq!(waits(&world), none);
    world.now_us += 600_000_000;
    world.give(Input::Tick);
    assert_eq!(waits(&world), none, "the same words: nothing is written again");
    world.join(4, "w4");
    assert_eq!(waits(&world).find("it has had none"), None, "{}", waits(&world));
    world.now_us += 60_000_000;
    leave(&mut world, 4);
    assert!(
        waits(&world).starts_with("a worker: it has had none since 2026-11-29 00:55 UTC, and had 3 at most")
    );
}

#[test]
fn workers_that_are_there_and_take_no_part_are_told_with_the_reason() {
    let mut serves_another = lost(1, 1);
    let paused = |paused| Input::Pause { job: "job".parse().unwrap(), paused };
    serves_another.give(paused(true));
    serves_another.submit(job("other", [1, 1]), 2);
    serves_another.join(2, "w2");
    serves_another.give(paused(false));
    let said = waits(&serves_another);
    assert!(said.ends_with(&format!("; of 1 that are there 0 are idle, 1 serve `other`{ADVICE}")), "{said}");

    let mut does_not_train = lost(1, 1);
    let about = WorkerInfo { trains: false, ..WorkerInfo::default() };
    does_not_train.give(Input::WorkerJoined { worker: Incarnation(2), about });
    does_not_train.give(Input::Tick);
    assert!(
        waits(&does_not_train).contains("; none of the 1 that are there trains"),
        "{}",
        waits(&does_not_train)
    );

    let mut too_few = lost(2, 2);
    too_few.join(3, "w3");
    let said = waits(&too_few);
    assert!(said.starts_with("2 workers, its `min_workers`, at once: it has had none since"), "{said}");
    assert!(
        said.contains("; of 1 that are there 1 are idle; 1 of them could take part, which are too few"),
        "{said}"
    );
}

#[test]
fn one_that_is_not_offered_the_job_is_named_with_what_it_lacked() {
    let mut world = lost(1, 1);
    let worker = world.join(2, "w2");
    world.report(worker, |_| Outcome::Failed {
        code: FaultCode::SHARD_UNREACHED,
        reason: "shard s0 is not reached".into(),
        blame: Blame::Worker,
    });
    let said = waits(&world);
    assert!(said.starts_with("a worker that can run it: it has had none since "), "{said}");
    assert!(
        said.contains("; not offered to w2 on host: ") && said.contains("shard s0 is not reached"),
        "{said}"
    );
}

#[test]
fn one_that_goes_on_waits_for_nobody() {
    let mut world = lost(1, 1);
    world.join(2, "w2");
    world.report(Incarnation(2), done);
    assert_eq!(waits(&world), "");
    let job: JobId = "job".parse().unwrap();
    let cancellation = Cancellation { job: job.into(), reason: String::new(), grace_ms: 0 };
    world.give(Input::Cancel(cancellation));
    assert!(world.job("job").phase().is_over());
}
