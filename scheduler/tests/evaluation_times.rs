//! When an evaluation is due that comes every so many seconds: what is waited is no time between two of them,
//! or one that finds nothing new would count against their patience.

use syncline_scheduler::{
    core::{HeldJob, Input},
    ids::{Incarnation, ShardIndex},
    sim::{training, training_job},
    spec::{EvaluateSpec, JobSpec, TrainSpec},
};

use crate::world::{World, done, id};

const HOUR_US: u64 = 3_600_000_000;
const SHARD: ShardIndex = ShardIndex(0);
/// More than are handed out ahead.
const SAMPLES: u64 = 100;

/// One sample a time, and an evaluation a minute.
fn spec() -> JobSpec {
    let evaluate = Some(EvaluateSpec::every_s(60));
    let train = TrainSpec { epochs: 90, evaluate, ..training("bsp".parse().unwrap(), 10, 1) };
    JobSpec { id: id("job"), ..training_job(train) }
}

impl World {
    /// Whoever has something ends it, until so many samples more are counted.
    fn train(&mut self, samples: u64) {
        let wanted = self.job("job").counters().samples_done + samples;
        for _ in 0..1_000 {
            if self.job("job").counters().samples_done >= wanted {
                return;
            }
            self.end_what_is_in_hand();
        }
        panic!("it waits for {:?} at {} µs", self.job("job").waits_for(), self.now_us);
    }

    fn end_what_is_in_hand(&mut self) {
        self.now_us += 1_000;
        let busy: Vec<Incarnation> =
            self.hands.iter().filter(|(_, hand)| !hand.is_empty()).map(|(worker, _)| *worker).collect();
        for worker in busy {
            self.report(worker, done);
        }
        self.give(Input::Tick);
    }

    /// An hour in which nothing is trained.
    fn wait_an_hour(&mut self) {
        for _ in 0..4 {
            self.now_us += HOUR_US / 4;
            self.give(Input::Tick);
        }
    }
}

fn paused(world: &mut World) {
    world.give(Input::Pause { job: id("job"), paused: true });
    while world.hands.values().any(|hand| !hand.is_empty()) {
        world.end_what_is_in_hand();
    }
    world.hands.clear();
    world.wait_an_hour();
    world.give(Input::Pause { job: id("job"), paused: false });
    world.join(2, "again");
}

fn without_an_engine(world: &mut World) {
    let last_us = world.now_us;
    world.now_us += HOUR_US;
    world.plane.core.discount_downtime(last_us, world.now_us);
}

fn without_a_shard(world: &mut World) {
    world.plane.shell.undelivered = Some(Vec::new());
    world.give(Input::ShardGone { shard: SHARD, reason: "silent for 30000 ms".to_owned() });
    world.hands.clear();
    world.wait_an_hour();
    let held = vec![HeldJob { run: world.job("job").run(), closed: false }];
    let undelivered = world.plane.shell.undelivered.take().unwrap();
    world.give(Input::ShardHolds { shard: SHARD, asked_us: world.now_us, held });
    let answers: Vec<Input> =
        undelivered.into_iter().flat_map(|effect| world.plane.server.carry_out(effect)).collect();
    for answer in answers {
        world.give(answer);
    }
    world.join(2, "again");
}

fn without_workers(world: &mut World) {
    let reason = "dead".to_owned();
    world.give(Input::WorkerGone { worker: Incarnation(1), reason, never_told: Vec::new() });
    world.hands.clear();
    world.wait_an_hour();
    world.join(2, "again");
}

#[test]
fn what_is_waited_is_no_time_between_two_evaluations() {
    let cases: [(&str, fn(&mut World)); 4] = [
        ("a pause", paused),
        ("no engine", without_an_engine),
        ("no shard", without_a_shard),
        ("nobody", without_workers),
    ];
    for (name, wait) in cases {
        let mut world = World::of(spec(), 1);
        world.train(SAMPLES);
        world.now_us += 30_000_000;
        world.train(SAMPLES);
        wait(&mut world);
        world.train(SAMPLES);
        assert_eq!(world.has_told("evaluated"), 0, "{name}: half a minute was trained");
        world.now_us += 30_000_000;
        world.train(SAMPLES);
        assert_eq!(world.has_told("evaluated"), 1, "{name}: a minute was trained");
        world.train(SAMPLES);
        assert_eq!(world.has_told("evaluated"), 1, "{name}");
    }
}
