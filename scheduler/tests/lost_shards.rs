//! A shard counts as lost: its jobs wait for it, and go on with what it has when it is there again.

use std::collections::VecDeque;

use syncline_scheduler::{
    core::{
        Cancellation, Core, Effect, HeldJob, Input, Job, LastWeights, ShardDirs, SnapshotFile, StoredJob,
        TaskFault, Work,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Incarnation, NodeName, ShardIndex, StateDirId},
    sim::{training, training_job},
    spec::{CheckpointSpec, JobSpec, Node, NodeKind, TrainSpec},
};

use crate::{
    cluster::stored::apply,
    world::{POLICIES, World, done, id},
};

const SAMPLES: u64 = 40;
const MINUTE_US: u64 = 60_000_000;
const SHARD: ShardIndex = ShardIndex(0);

fn spec(name: &str, policy: &str) -> JobSpec {
    let train = training(policy.parse().unwrap(), SAMPLES, 1);
    let train = TrainSpec { checkpoint: Some(CheckpointSpec::every_s(60)), ..train };
    JobSpec { id: id(name), ..training_job(train) }
}

impl World {
    /// Some worker ends what it has in hand; `false` if nobody has anything.
    fn end_one_task(&mut self) -> bool {
        let busy = self.hands.iter().find(|(_, hand)| !hand.is_empty()).map(|(worker, _)| *worker);
        self.now_us += 1_000;
        busy.is_some_and(|worker| !self.report(worker, done).is_empty())
    }

    /// Trains until there is a checkpoint, and then some iterations that are in none.
    fn train_beyond_a_checkpoint(&mut self) {
        for _ in 0..4 {
            assert!(self.end_one_task());
        }
        self.now_us += MINUTE_US;
        self.give(Input::Tick);
        while self.has_told("checkpoint_kept") == 0 {
            assert!(self.end_one_task());
        }
        for _ in 0..4 {
            assert!(self.end_one_task());
        }
    }

    /// The shard counts as lost, and workers that are sent away begin anew as others.
    fn lose_shard(&mut self) {
        self.plane.shell.undelivered = Some(Vec::new());
        self.give(Input::ShardGone { shard: SHARD, reason: "silent for 30000 ms".to_owned() });
        self.hands.clear();
    }

    fn shard_comes(&mut self, has_values: bool) {
        let run = self.job("job").run();
        let held = if has_values { vec![HeldJob { run, closed: false }] } else { Vec::new() };
        if !has_values {
            self.plane.server.shards[0].crash();
        }
        self.now_us += 1_000;
        let undelivered = self.plane.shell.undelivered.take().unwrap();
        self.give(Input::ShardHolds { shard: SHARD, asked_us: self.now_us, held });
        let answers: Vec<Input> =
            undelivered.into_iter().flat_map(|effect| self.plane.server.carry_out(effect)).collect();
        answers.into_iter().for_each(|answer| drop(self.give(answer)));
    }

    fn awaited(&self) -> &str {
        self.job("job").waits_for().unwrap_or_default()
    }
}

/// Trains to the end with a worker that came after the loss.
fn check_ends_with_every_sample_counted_once(world: &mut World, what: &str) {
    while world.end_one_task() {}
    let counters = world.job("job").counters();
    assert_eq!((&*world.code("job"), counters.samples_done), ("done", SAMPLES), "{what}");
    assert_eq!(counters.torn, 0, "{what}");
}

#[test]
fn a_job_with_a_checkpoint_waits_without_workers_and_goes_on_as_the_shard_comes_back() {
    for policy in POLICIES {
        for (has_values, generation) in [(true, 1), (false, 2)] {
            let what = format!("{policy}, values: {has_values}");
            let mut world = World::of(spec("job", policy), 2);
            world.train_beyond_a_checkpoint();
            world.lose_shard();
            assert_eq!(world.plane.shell.dismissed.len(), 2, "{what}");
            world.join(3, "again");
            world.now_us += 10 * MINUTE_US;
            world.give(Input::Tick);
            assert_eq!((&*world.code("job"), world.end_one_task()), ("running", false), "{what}");
            let waits = world.awaited();
            let want =
                "parameter shard s0, which counts as lost since 1970-01-01 00:01 UTC (silent for 30000 ms): ";
            assert!(
                waits.starts_with(want) && waits.ends_with("`syncline cancel job` gives it up"),
                "{waits}"
            );
            assert_eq!(world.plane.shell.summaries[&id("job")]["next_barrier"], "", "{what}");

            world.shard_comes(has_values);
            assert_eq!(world.job("job").generation().number(), generation, "{what}");
            check_ends_with_every_sample_counted_once(&mut world, &what);
        }
    }
}

#[test]
fn a_job_without_a_checkpoint_yet_waits_and_goes_on_where_it_was_or_begins_anew() {
    for policy in POLICIES {
        for (has_values, generation) in [(true, 1), (false, 2)] {
            let what = format!("{policy}, values: {has_values}");
            let mut world = World::of(spec("job", policy), 2);
            assert!(world.end_one_task());
            world.lose_shard();
            assert!(world.awaited().contains("if need be from its beginning"), "{}", world.awaited());
            world.join(3, "again");
            world.now_us += 10 * MINUTE_US;
            world.give(Input::Tick);
            assert_eq!((&*world.code("job"), world.end_one_task()), ("running", false), "{what}");
            world.shard_comes(has_values);
            assert_eq!(world.job("job").generation().number(), generation, "{what}");
            check_ends_with_every_sample_counted_once(&mut world, &what);
        }
    }
}

#[test]
fn a_job_that_keeps_no_checkpoints_fails_only_if_the_shard_comes_back_without_its_parameters() {
    for (has_values, code) in [(true, "done"), (false, "E220")] {
        let mut keeps_none = spec("job", "asp");
        if let NodeKind::Train(train) = &mut keeps_none.nodes[0].kind {
            train.checkpoint = None;
        }
        let mut world = World::of(keeps_none, 1);
        assert!(world.end_one_task());
        world.lose_shard();
        assert!(world.awaited().contains("it keeps no checkpoints"), "{}", world.awaited());
        world.join(2, "again");
        world.shard_comes(has_values);
        while world.end_one_task() {}
        assert_eq!(world.code("job"), code);
    }
}

#[test]
fn a_job_whose_first_opening_meets_a_lost_shard_opens_when_it_is_there() {
    let mut world = World::new();
    world.join(1, "1");
    world.plane.shell.undelivered = Some(Vec::new());
    world.submit(spec("job", "asp"), 1);
    world.give(Input::ShardGone { shard: SHARD, reason: "silent for 30000 ms".to_owned() });
    assert_eq!(world.code("job"), "opening");
    assert!(world.awaited().contains("counts as lost"), "{}", world.awaited());
    let opens = world.job("job").run();
    world.shard_comes(false);
    assert_eq!(world.job("job").run(), opens, "it has opened nothing yet");
    world.join(2, "again");
    check_ends_with_every_sample_counted_once(&mut world, "first opening");
}

#[test]
fn who_has_not_begun_leaves_the_workers_to_the_older_job_that_waits_for_its_shard() {
    let mut world = World::of(spec("job", "bsp"), 1);
    world.train_beyond_a_checkpoint();
    world.submit(spec("next", "bsp"), 2);
    world.lose_shard();
    let again = world.join(2, "again");
    assert_eq!((&*world.code("job"), &*world.code("next")), ("running", "queued"));
    let waits = "a parameter shard that counts as lost, like job `job`, which is before it";
    assert_eq!(world.job("next").waits_for(), Some(waits));
    world.shard_comes(true);
    assert_eq!(world.job("job").active().collect::<Vec<_>>(), [again]);
    while world.end_one_task() {}
    assert_eq!((&*world.code("job"), &*world.code("next")), ("done", "done"));
}

#[test]
fn who_gives_up_a_job_that_waits_for_its_shard_lets_the_next_one_have_the_workers() {
    let mut world = World::of(spec("job", "bsp"), 1);
    world.train_beyond_a_checkpoint();
    world.submit(spec("next", "bsp"), 2);
    world.lose_shard();
    let again = world.join(2, "again");
    world.give(Input::Cancel(Cancellation { job: id("job").into(), reason: String::new(), grace_ms: 0 }));
    world.give(Input::Tick);
    assert_eq!(world.plane.core.job(&id("next")).unwrap().active().collect::<Vec<_>>(), [again]);
}

#[test]
fn the_wait_outlives_the_engine() {
    let mut world = World::of(spec("job", "elastic-bsp:4"), 2);
    world.train_beyond_a_checkpoint();
    world.lose_shard();
    let (waits, job) = (world.awaited().to_owned(), world.job("job").clone());
    let mut next = Core::new(1);
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id("job"), world.now_us).unwrap());
    let mut undelivered = next.restore(Job::load(&stored).unwrap());
    // It is asked how far it is, and answers once it is there.
    undelivered.push(Effect::Attach { run: job.run(), shard: SHARD, floor: job.floor() });
    assert!(*next.job(&id("job")).unwrap() == job);
    world.plane.core = next;
    world.plane.shell.undelivered = Some(undelivered);
    world.join(3, "again");
    assert!(!world.end_one_task());
    assert_eq!(world.awaited(), waits);
    world.shard_comes(true);
    check_ends_with_every_sample_counted_once(&mut world, "another engine");
}

#[test]
fn what_comes_within_the_wait_for_a_shard_counts_as_no_training_once() {
    let trained = |world: &World| world.plane.shell.summaries[&id("job")]["training_seconds"].clone();
    let pause = |paused| Input::Pause { job: id("job"), paused };
    for what in
        ["nothing", "no engine", "a pause", "a pause before and into it", "a pause into it and behind"]
    {
        let mut world = World::of(spec("job", "asp"), 1);
        world.end_one_task();
        world.now_us += MINUTE_US;
        world.end_one_task();
        if what == "a pause before and into it" {
            world.give(pause(true));
            world.now_us += MINUTE_US;
        }
        world.lose_shard();
        let before = trained(&world);
        assert!(before.starts_with("60.0"), "{before}");
        world.now_us += MINUTE_US;
        match what {
            "no engine" => {
                let last_us = world.now_us;
                world.now_us += 60 * MINUTE_US;
                world.plane.core.discount_downtime(last_us, world.now_us);
            }
            "a pause" => {
                world.give(pause(true));
                world.now_us += 60 * MINUTE_US;
                world.give(pause(false));
            }
            "a pause before and into it" => drop(world.give(pause(false))),
            "a pause into it and behind" => drop(world.give(pause(true))),
            _ => {}
        }
        world.now_us += MINUTE_US;
        world.shard_comes(true);
        assert_eq!(trained(&world), before, "{what}");
        if what == "a pause into it and behind" {
            world.now_us += MINUTE_US;
            world.give(pause(false));
            assert_eq!(trained(&world), before, "{what}");
        }
        // It counts on from there.
        world.join(2, "again");
        world.now_us += MINUTE_US;
        world.end_one_task();
        assert!(trained(&world).starts_with("120.0"), "{what}: {}", trained(&world));
    }
}

#[test]
fn what_two_shards_were_waited_for_counts_as_no_training_from_the_first_loss_on() {
    let mut world = World::of(spec("job", "asp"), 1);
    world.end_one_task();
    let trained = |world: &World| world.plane.shell.summaries[&id("job")]["training_seconds"].clone();
    world.lose_shard();
    let before = trained(&world);
    world.now_us += MINUTE_US;
    world.give(Input::ShardGone { shard: ShardIndex(1), reason: "silent".to_owned() });
    for shard in [SHARD, ShardIndex(1)] {
        world.now_us += MINUTE_US;
        let held = vec![HeldJob { run: world.job("job").run(), closed: false }];
        world.give(Input::ShardHolds { shard, asked_us: world.now_us, held });
    }
    assert_eq!(trained(&world), before);
}

#[test]
fn one_that_goes_back_to_its_checkpoint_waits_for_a_shard_that_is_lost_meanwhile() {
    let mut world = World::of(spec("job", "asp"), 1);
    world.train_beyond_a_checkpoint();
    world.plane.shell.undelivered = Some(Vec::new());
    world.now_us += 1_000;
    world.give(Input::ShardHolds { shard: SHARD, asked_us: world.now_us, held: Vec::new() });
    assert_eq!(world.code("job"), "opening");
    world.plane.shell.undelivered = None;
    world.plane.server.shards[0].crash();
    world.lose_shard();
    assert!(world.awaited().contains("counts as lost"), "{}", world.awaited());
    let opens = world.job("job").run();
    world.join(2, "again");
    world.shard_comes(false);
    assert_eq!(world.job("job").run(), opens, "it has opened nothing yet");
    world.give(Input::ShardsOpened { run: opens });
}

#[test]
fn it_goes_on_with_all_of_its_min_workers_or_waits_for_them() {
    for has_values in [true, false] {
        let mut two = spec("job", "bsp");
        if let NodeKind::Train(train) = &mut two.nodes[0].kind {
            train.min_workers = 2;
        }
        let mut world = World::of(two, 2);
        world.train_beyond_a_checkpoint();
        world.lose_shard();
        world.join(3, "first");
        world.shard_comes(has_values);
        assert!(!world.end_one_task(), "alone");
        world.join(4, "second");
        check_ends_with_every_sample_counted_once(&mut world, "two workers");
    }
}

#[test]
fn an_evaluation_that_is_cut_short_by_the_loss_has_not_failed() {
    let mut with_test = spec("job", "asp");
    let (train, kind) = (with_test.nodes[0].name.clone(), NodeKind::Evaluate);
    let test = Node { name: "test".parse().unwrap(), after: vec![train], retries: 0, kind };
    with_test.nodes.push(test);
    let mut world = World::of(with_test, 1);
    let evaluates = |world: &World| {
        let hand = world.hands.get(&Incarnation(1)).and_then(VecDeque::front);
        matches!(hand.map(|given| &given.work), Some(Work::Evaluate { .. }))
    };
    while !evaluates(&world) {
        assert!(world.end_one_task());
    }
    world.lose_shard();
    assert_eq!(world.code("job"), "running");
    world.join(2, "again");
    world.shard_comes(true);
    let given = &world.hands[&Incarnation(2)][0].work;
    assert!(matches!(given, Work::Evaluate { .. }), "{given:?}");
}

#[test]
fn what_nodes_brought_is_shown_no_more_once_it_is_undone() {
    let mut with_nodes = spec("job", "asp");
    let mut after = with_nodes.nodes[0].name.clone();
    for (name, kind) in
        [("test", NodeKind::Evaluate), ("save", NodeKind::Snapshot), ("late", NodeKind::Evaluate)]
    {
        let name: NodeName = name.parse().unwrap();
        with_nodes.nodes.push(Node { name: name.clone(), after: vec![after], retries: 0, kind });
        after = name;
    }
    let mut world = World::of(with_nodes, 1);
    let mut saves = None;
    while saves.is_none() {
        world.now_us += 1_000;
        let effects = world.report(Incarnation(1), done);
        saves = effects.into_iter().find_map(|effect| match effect {
            Effect::Snapshot { key, .. } => Some(key),
            _ => None,
        });
    }
    let file = SnapshotFile { path: "/save".into(), bytes: 1, digest: ContentDigest::from_bytes([0xd; 32]) };
    world.give(Input::SnapshotWritten { key: saves.unwrap(), outcome: Ok(file) });
    let shown = |world: &World| {
        let summary = &world.plane.shell.summaries[&id("job")];
        ["test_loss", "test_samples", "snapshot", "snapshot_digest"].map(|field| summary[field].clone())
    };
    assert_eq!(shown(&world), ["0.000000", "10", "/save", &"0d".repeat(32)]);
    world.lose_shard();
    world.shard_comes(false);
    assert_eq!(world.job("job").generation().number(), 2);
    assert_eq!(shown(&world), [""; 4]);
}

fn served_from(state_dir: u64) -> Input {
    served_by_two(state_dir, None)
}

/// By one process from this directory, and followed by another one on that.
fn served_by_two(serving: u64, following: Option<u64>) -> Input {
    let dirs = ShardDirs { serving: StateDirId(serving), following: following.map(StateDirId) };
    Input::ShardServed { shard: SHARD, dirs }
}

impl World {
    /// The shard is served from this directory, without what it held, and says so.
    fn shard_comes_on(&mut self, state_dir: u64) {
        self.shard_comes_without(served_from(state_dir));
    }

    fn shard_comes_without(&mut self, served: Input) {
        self.plane.shell.undelivered.get_or_insert_default();
        self.give(served);
        let (run, reason) = (self.job("job").run(), "a parameter shard has lost its part".to_owned());
        self.give(Input::ShardFailed { run, code: FaultCode::PARAMETERS_LOST, reason });
        self.give(Input::ShardHolds { shard: SHARD, asked_us: self.now_us, held: Vec::new() });
        self.hands.clear();
    }

    /// Trains on state directory 1, beyond a checkpoint; then the shard comes back on directory 2.
    fn on_another_state_dir(policy: &str) -> Self {
        let mut world = Self::new();
        world.give(served_from(1));
        world.join(1, "1");
        world.join(2, "2");
        world.submit(spec("job", policy), 1);
        world.train_beyond_a_checkpoint();
        world.shard_comes_on(2);
        world
    }
}

#[test]
fn a_job_waits_for_the_state_directory_of_its_shard_and_goes_on_with_what_lies_there() {
    for policy in POLICIES {
        for (has_values, generation) in [(true, 1), (false, 2)] {
            let what = format!("{policy}, values: {has_values}");
            let mut world = World::on_another_state_dir(policy);
            assert_eq!(
                (&*world.code("job"), world.job("job").generation().number()),
                ("running", 1),
                "{what}"
            );
            let waits = world.awaited();
            assert!(
                waits.contains("is its disk mounted?") && waits.contains("its old state directory"),
                "{waits}"
            );
            // It is started again, and the disk is still not there.
            world.shard_comes_on(2);
            assert_eq!(world.has_told("shard_lost"), 1, "{what}");
            world.join(3, "again");
            assert!(!world.end_one_task(), "{what}");
            world.give(served_from(1));
            world.shard_comes(has_values);
            assert_eq!(world.job("job").generation().number(), generation, "{what}");
            check_ends_with_every_sample_counted_once(&mut world, &what);
        }
    }
}

#[test]
fn a_job_waits_where_both_processes_of_its_shard_come_back_on_other_directories_until_one_of_its_own_is_there()
 {
    // Directories from which the shard is served and followed in turn, none with the parameters, and whether
    // the job still waits. It trained on 1, and the process on 2 followed.
    let cases: [&[(u64, Option<u64>, bool)]; 4] = [
        &[(3, None, true), (3, Some(4), true), (1, None, false)],
        &[(3, None, true), (3, Some(2), false)],
        &[(3, Some(1), false)],
        &[(2, None, false)],
    ];
    for steps in cases {
        let mut world = World::new();
        world.give(served_by_two(1, Some(2)));
        world.join(1, "1");
        world.submit(spec("job", "bsp"), 1);
        world.train_beyond_a_checkpoint();
        for &(serving, following, waits) in steps {
            let what = format!("{steps:?}: {serving} {following:?}");
            world.shard_comes_without(served_by_two(serving, following));
            assert_eq!(world.awaited().contains("is its disk mounted?"), waits, "{what}");
            assert_eq!(world.job("job").generation().number(), if waits { 1 } else { 2 }, "{what}");
            if !waits {
                break;
            }
        }
    }
}

#[test]
fn a_job_is_in_the_directory_of_whichever_process_followed_last() {
    for (comes_back, waits) in [(5, false), (2, true)] {
        let mut world = World::new();
        world.give(served_by_two(1, Some(2)));
        world.join(1, "1");
        world.submit(spec("job", "bsp"), 1);
        world.train_beyond_a_checkpoint();
        world.give(served_by_two(1, Some(5)));
        let held = vec![HeldJob { run: world.job("job").run(), closed: false }];
        world.give(Input::ShardHolds { shard: SHARD, asked_us: world.now_us, held });
        world.shard_comes_without(served_from(comes_back));
        assert_eq!(world.awaited().contains("is its disk mounted?"), waits, "{comes_back}");
    }
}

#[test]
fn a_job_whose_shard_stays_on_another_state_directory_goes_back_after_a_quarter_of_an_hour() {
    let mut world = World::on_another_state_dir("bsp");
    world.now_us += 14 * MINUTE_US;
    world.give(Input::Tick);
    assert_eq!(world.code("job"), "running");
    world.now_us += MINUTE_US;
    world.plane.shell.undelivered = None;
    world.plane.server.shards[0].crash();
    world.give(Input::Tick);
    assert_eq!(world.job("job").generation().number(), 2);
    world.join(3, "again");
    check_ends_with_every_sample_counted_once(&mut world, "given up");
}

#[test]
fn the_quarter_of_an_hour_for_a_state_directory_does_not_pass_while_no_engine_leads() {
    let mut world = World::on_another_state_dir("bsp");
    let before_us = world.now_us;
    world.now_us += 16 * MINUTE_US;
    world.plane.core.discount_downtime(before_us, world.now_us);
    // The first thing that an engine does: no shard has announced itself to it.
    world.give(Input::Tick);
    world.now_us += 14 * MINUTE_US;
    world.give(Input::Tick);
    assert_eq!(world.job("job").generation().number(), 1);
    world.join(3, "again");
    world.give(served_from(1));
    world.shard_comes(true);
    assert_eq!(world.job("job").generation().number(), 1);
    check_ends_with_every_sample_counted_once(&mut world, "without an engine");
}

#[test]
fn a_shard_with_another_state_directory_that_holds_the_job_is_not_waited_for() {
    let mut world = World::new();
    world.give(served_from(1));
    world.join(1, "1");
    world.submit(spec("job", "bsp"), 1);
    world.train_beyond_a_checkpoint();
    world.give(served_from(2));
    let held = vec![HeldJob { run: world.job("job").run(), closed: false }];
    world.give(Input::ShardHolds { shard: SHARD, asked_us: world.now_us, held });
    assert_eq!((world.has_told("shard_lost"), world.awaited()), (0, ""));
    check_ends_with_every_sample_counted_once(&mut world, "a copy");
}

#[test]
fn a_job_that_goes_back_to_its_checkpoint_waits_for_the_state_directory_in_which_that_lies() {
    let mut world = World::new();
    world.give(served_from(1));
    world.join(1, "1");
    world.submit(spec("job", "bsp"), 1);
    world.train_beyond_a_checkpoint();
    world.plane.shell.undelivered = Some(Vec::new());
    world.now_us += 1_000;
    world.give(Input::ShardHolds { shard: SHARD, asked_us: world.now_us, held: Vec::new() });
    assert_eq!(world.code("job"), "opening");
    world.shard_comes_on(2);
    let (run, code) = (world.job("job").run(), FaultCode::CHECKPOINT_UNUSABLE);
    world.give(Input::ShardFailed { run, code, reason: "no such file".to_owned() });
    assert_eq!((&*world.code("job"), world.job("job").generation().number()), ("opening", 2));
    assert!(world.awaited().contains("is its disk mounted?"), "{}", world.awaited());
    world.plane.shell.undelivered = Some(Vec::new());
    world.join(3, "again");
    world.give(served_from(1));
    world.shard_comes(false);
    assert_eq!((&*world.code("job"), world.job("job").generation().number()), ("running", 2));
    check_ends_with_every_sample_counted_once(&mut world, "opened again");
}

#[test]
fn last_weights_are_waited_for_while_they_may_lie_in_another_state_directory() {
    // The directory from which the shard is served now, for how long nothing of the job was found, and
    // whether it is asked on.
    let cases = [(2, 0, true), (2, 15 * MINUTE_US - 1, true), (2, 15 * MINUTE_US, false), (1, 0, false)];
    for (state_dir, missing_us, is_asked_on) in cases {
        let mut world = World::new();
        world.give(served_from(1));
        world.join(1, "1");
        world.submit(spec("job", "bsp"), 1);
        assert!(world.end_one_task());
        world.give(Input::Cancel(Cancellation { job: id("job").into(), reason: String::new(), grace_ms: 0 }));
        world.give(served_from(state_dir));
        let (run, reason) = (world.job("job").run(), "job job is not open on this shard".to_owned());
        let fault = TaskFault { code: FaultCode::new("E402"), reason };
        let effects = world.give(Input::WeightsMissing { run: run.clone(), fault, missing_us });
        let is_closed = effects.contains(&Effect::CloseShards { run, weights: LastWeights::Drop });
        let summary = &world.plane.shell.summaries[&id("job")];
        let what = format!("directory {state_dir}, {missing_us} us: {summary:?}");
        assert_eq!(
            (is_closed, world.has_told("weights_lost")),
            (!is_asked_on, usize::from(!is_asked_on)),
            "{what}"
        );
        assert_eq!(summary["weights_problem"].contains("is its disk mounted?"), is_asked_on, "{what}");
        assert_eq!(summary["weights_lost"].starts_with("[E402] "), !is_asked_on, "{what}");
    }
}
