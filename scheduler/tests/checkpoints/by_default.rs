//! What a training keeps that says nothing of checkpoints.

use super::*;
use syncline_scheduler::ids::ContentDigest;

/// Trains as [`World::new`], with what a training keeps by default.
fn world(policy: &str, keeps_files: bool) -> World {
    let mut train = training(policy.parse().unwrap(), 10, 1);
    (train.epochs, train.ahead) = (40, Some(2));
    train.checkpoint = Some(CheckpointSpec::default());
    World::of(train, keeps_files)
}

impl World {
    /// Something is done, and so many seconds go by; then the worker ends what it has in hand, up to a rest.
    fn train_for(&mut self, seconds: u64) -> Vec<Effect> {
        self.report();
        self.now_us += seconds * 1_000_000;
        let mut effects = self.give(Input::Tick);
        // Those that were granted before the rest.
        for _ in 0..self.hand.len() {
            effects.extend(self.report());
        }
        effects
    }

    fn kept(&self) -> Vec<u64> {
        self.job().checkpoint_numbers()
    }
}

fn pins(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::PinCheckpoint { .. })).count()
}

fn weights_written() -> Input {
    last_weights(Ok(SnapshotFile {
        path: "/last".into(),
        bytes: 1,
        digest: ContentDigest::from_bytes([0xd; 32]),
    }))
}

#[test]
fn the_newest_is_kept_every_five_minutes_and_gone_once_the_job_is_done() {
    for policy in ["asp", "bsp", "elastic-bsp:5", "dssp:1:4", "local-sgd:4"] {
        let mut world = world(policy, true);
        assert_eq!(pins(&world.train_for(299)), 0, "{policy}");
        world.train_for(1);
        assert_eq!(world.kept(), [0], "{policy}");
        world.train_for(299);
        assert_eq!(world.kept(), [0], "{policy}");
        world.train_for(1);
        assert_eq!(world.kept(), [0, 1], "{policy}: until Redis has the new one on its disk, too");
        world.train_for(6);
        assert_eq!(world.kept(), [1], "{policy}");
        let effects = finish(&mut world);
        assert_eq!((world.job().phase(), pins(&effects)), (&Phase::Done, 0), "{policy}: its end is none");
        assert_eq!(world.kept(), [1], "{policy}: until the weights are written");
        assert_eq!(kept_at_the_end(&world.give(weights_written())), [Vec::<u64>::new()], "{policy}");
    }
}

#[test]
fn a_job_that_is_over_within_five_minutes_has_had_none() {
    let mut world = world("bsp", true);
    let mut effects = world.train_for(298);
    effects.extend(finish(&mut world));
    effects.extend(world.give(weights_written()));
    assert_eq!(world.job().phase(), &Phase::Done);
    assert_eq!((pins(&effects), kept_at_the_end(&effects)), (0, vec![]));
}

#[test]
fn a_lost_shard_costs_what_was_done_since() {
    let mut world = world("bsp", true);
    world.report();
    world.crash();
    assert_eq!((world.job().phase(), world.samples()), (&Phase::Running, 0), "there is none yet");
    world.train_for(300);
    let kept = world.samples();
    world.report();
    world.crash();
    assert_eq!((world.job().phase(), world.samples()), (&Phase::Running, kept));
}

#[test]
fn where_a_job_wants_none_there_is_none_and_a_lost_shard_ends_it() {
    let mut train = training("bsp".parse().unwrap(), 10, 1);
    (train.epochs, train.checkpoint) = (40, None);
    let mut world = World::of(train, true);
    assert_eq!(pins(&world.train_for(3_600)), 0);
    world.crash();
    let is_lost =
        matches!(world.job().phase(), Phase::Failed { code, .. } if *code == FaultCode::PARAMETERS_LOST);
    assert!(is_lost, "{:?}", world.job().phase());
}

/// A job with a checkpoint, as it is stored, with other fields of its state.
fn stored_with(world: &mut World, change: impl FnOnce(&mut serde_json::Value)) -> Core {
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    let mut state = serde_json::from_str(&stored.job_state).unwrap();
    change(&mut state);
    stored.job_state = state.to_string();
    let mut core = Core::new(1);
    core.restore(Job::load(&stored).unwrap());
    core
}

#[test]
fn one_that_fails_or_is_canceled_keeps_it_for_a_job_that_goes_on_but_for_a_trial_of_a_graph() {
    let cancel = || Input::Cancel(Cancellation { job: id().into(), reason: String::new(), grace_ms: 0 });
    let mut world = world("bsp", true);
    world.train_for(300);
    let run = world.job().run();
    let fail = || {
        let (code, reason) = (FaultCode::new("E404"), "refused".to_owned());
        Input::ShardFailed { run: run.clone(), code, reason }
    };
    for end in [cancel(), fail()] {
        let mut core = stored_with(&mut world, |_| ());
        let mut effects = core.handle(world.now_us, end).unwrap();
        effects.extend(core.handle(world.now_us, weights_written()).unwrap());
        let job = core.job(&id()).unwrap();
        assert!(job.phase().is_over(), "{:?}", job.phase());
        assert_eq!((kept_at_the_end(&effects), job.checkpoint_numbers()), (vec![], vec![0]));
        assert!(job.kept_checkpoint(None).is_some());
    }
    for end in [cancel(), fail()] {
        let trial = serde_json::json!({ "job": "sweep", "nonce": 1, "task": 0, "attempt": 1 });
        let mut core = stored_with(&mut world, |state| state["trains_for"] = trial);
        let mut effects = core.handle(world.now_us, end).unwrap();
        effects.extend(core.handle(world.now_us, weights_written()).unwrap());
        assert_eq!(kept_at_the_end(&effects), [Vec::<u64>::new()]);
    }
}

#[test]
fn a_pause_does_not_count() {
    let mut world = world("bsp", true);
    world.train_for(200);
    let pause = |paused| Input::Pause { job: id(), paused };
    world.give(pause(true));
    finish(&mut world);
    world.now_us += 60 * MINUTE_US;
    assert_eq!(pins(&world.give(Input::Tick)), 0);
    world.give(pause(false));
    // Nobody is there who would have to come to rest.
    world.now_us += 99_000_000;
    world.give(Input::Tick);
    assert_eq!(world.kept(), Vec::<u64>::new());
    world.now_us += 1_000_000;
    world.give(Input::Tick);
    assert_eq!(world.kept(), [0]);
}

#[test]
fn a_disk_or_memory_without_room_is_told_once_until_there_is_room() {
    let mut world = world("bsp", false);
    for number in 0..3 {
        world.train_for(300);
        world.give(pinned(number, full_disk()));
    }
    assert_eq!(world.has_told("checkpoint_failed"), 1);
    assert_eq!(world.plane.shell.summary["checkpoint_problem"], "[E406] no space left");
    world.train_for(300);
    world.give(pinned(3, Ok(())));
    world.give(written(3, Ok(7)));
    world.train_for(300);
    world.give(pinned(4, full_disk()));
    assert_eq!((world.has_told("checkpoint_failed"), world.kept()), (2, vec![3]));
    assert_eq!(world.job().phase(), &Phase::Running);
}

#[test]
fn a_checkpoint_that_no_disk_took_is_no_problem_of_a_job_that_is_done_and_would_keep_none() {
    let mut world = world("bsp", false);
    world.train_for(300);
    world.give(pinned(0, full_disk()));
    finish(&mut world);
    let problem = |world: &World| world.plane.shell.summary["checkpoint_problem"].clone();
    assert_eq!(problem(&world), "[E406] no space left", "its weights are not written yet");
    world.give(weights_written());
    assert_eq!((world.job().phase(), problem(&world).as_str()), (&Phase::Done, ""));
}
