//! A store that has lost what it acknowledged: what proves it, and where the job goes back to.

use syncline_scheduler::{
    core::{BarrierOrder, HeldJob, LastWeights, ProgressFloor, ShardProgress},
    ids::ContentDigest,
};

use super::*;

/// A worker in a job that meets in each step. It has two checkpoints, 0 and 1.
fn world() -> World {
    let mut world = World::new("bsp", 40, true);
    world.rest();
    world.rest();
    assert_eq!(world.plane.server.shards[0].written_checkpoints(), [0, 1]);
    world
}

/// Tells the core how far the shard is, with what it has not been told to do.
fn attach(world: &mut World, change: impl Fn(&mut ShardProgress)) -> Vec<Effect> {
    let mut progress = world.plane.server.shards[0].progress();
    change(&mut progress);
    let (run, shard, floor) = (world.job().run(), ShardIndex(0), ProgressFloor::default());
    let effects = world.give(Input::Attached { run, shard, progress, floor });
    let run = world.job().run();
    world.hand.retain(|assignment| assignment.key.run == run);
    effects
}

/// Orders for every shard to open the job, as generation, checkpoint, and the highest number that one may
/// have.
fn opened(effects: &[Effect]) -> Vec<(u32, Option<u64>, Option<u64>)> {
    let order = |effect: &Effect| match effect {
        Effect::OpenShards { run, with, known_through } => {
            Some((run.generation.number(), with.checkpoint(), *known_through))
        }
        _ => None,
    };
    effects.iter().filter_map(order).collect()
}

/// Another order for the first barrier that the shard has not closed.
fn other_order(progress: &mut ShardProgress, change: impl Fn(&mut BarrierOrder)) {
    change(progress.orders.first_mut().expect("a barrier is ordered"));
}

#[test]
fn what_nobody_ordered_takes_the_job_back_to_its_newest_checkpoint_under_numbers_that_were_never_given() {
    type Change = fn(&mut ShardProgress);
    #[rustfmt::skip]
    let cases: [(&str, Change); 5] = [
        ("a push",                     |p| *p.watermarks.get_mut(&WORKER).unwrap() += 3),
        ("a worker",                   |p| { p.watermarks.insert(Incarnation(9), 1); }),
        ("a closed barrier",           |p| p.closed += 9),
        ("a later order",              |p| other_order(p, |order| order.revision += 1)),
        ("an order of other lengths",  |p| other_order(p, |order| *order.roster.get_mut(&WORKER).unwrap() += 1)),
    ];
    for (what, change) in cases {
        let mut world = world();
        let age_s = world.now_us / 1_000_000 - 1;
        let samples = world.samples();
        world.report();
        assert_eq!(attach(&mut world, |_| {}), [], "{what}: all is known");
        let effects = attach(&mut world, change);
        let generation = u32::try_from(age_s).unwrap() + 1_000;
        assert_eq!(opened(&effects), [(generation, Some(1), Some(2))], "{what}");
        assert_eq!((world.samples(), world.has_told("rolled_back")), (samples, 1), "{what}");
        world.rest();
        let written = world.plane.server.shards[0].written_checkpoints();
        assert_eq!(written.last(), Some(&(age_s + 1_000)), "{what}");
    }
}

/// They would wait for ever for clocks of which no shard is told.
#[test]
fn shards_that_had_a_later_roster_of_clocks_than_is_known_take_the_one_that_counts_once_they_are_open() {
    let mut world = World::new("ssp:1", 40, true);
    world.rest();
    world.plane.shell.opens_nothing = true;
    world.crash();
    let had = 40;
    assert_eq!(attach(&mut world, |progress| progress.clock_revision = had), []);
    let run = world.job().run();
    let effects = world.give(Input::ShardsOpened { run });
    let clocks = effects.iter().find_map(|effect| match effect {
        Effect::Clocks { roster, .. } => Some(roster.revision),
        _ => None,
    });
    assert_eq!(clocks, Some(had + 1));
}

#[test]
fn an_order_that_was_given_and_one_for_what_is_closed_by_now_prove_nothing() {
    let mut world = world();
    let ordered = world.plane.server.shards[0].progress();
    for _ in 0..3 {
        world.report();
    }
    // It answered before these were closed.
    assert_eq!(attach(&mut world, |progress| progress.clone_from(&ordered)), []);
}

#[test]
fn a_job_without_a_checkpoint_begins_anew_and_one_that_is_to_keep_none_fails() {
    let mut train = training("asp".parse().unwrap(), 10, 1);
    for (checkpoint, expected) in [(Some(CheckpointSpec::every_s(60)), "opening"), (None, "E226")] {
        train.checkpoint = checkpoint;
        let mut world = World::of(train.clone(), true);
        world.plane.shell.opens_nothing = true;
        let effects = attach(&mut world, |progress| {
            progress.watermarks.insert(WORKER, 9);
        });
        let found = match world.job().phase() {
            Phase::Failed { code, .. } => code.to_string(),
            phase => phase.shown().to_string(),
        };
        assert_eq!(found, expected);
        let anew = checkpoint.map(|_| (1_001, None, Some(0)));
        assert_eq!(opened(&effects), anew.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn shards_with_more_checkpoints_than_one_that_was_made_just_then_end_the_job_which_keeps_all() {
    for (unknown, code) in [(1, None), (2, Some("E646"))] {
        let mut world = world();
        let stored = stored(&mut world);
        for _ in 0..unknown {
            world.rest();
        }
        world.plane.core = Core::new(1);
        world.plane.core.restore(Job::load(&stored).unwrap());
        attach(&mut world, |_| {});
        let failed = match world.job().phase() {
            Phase::Failed { code, .. } => Some(code.to_string()),
            _ => None,
        };
        assert_eq!(failed.as_deref(), code, "{unknown} more");
        assert!(
            world.plane.server.shards[0].written_checkpoints().ends_with(&[1 + unknown]),
            "{unknown} more"
        );
    }
}

/// What a shard that holds this run of the job is to do with it.
fn becomes_of(world: &mut World, run: &RunId) -> Option<LastWeights> {
    world.now_us += 1;
    let held = vec![HeldJob { run: run.clone(), closed: false }];
    let effects = world.give(Input::ShardHolds { shard: ShardIndex(0), asked_us: world.now_us, held });
    effects.into_iter().find_map(|effect| match effect {
        Effect::CloseShards { run: of, weights } if of == *run => Some(weights),
        _ => None,
    })
}

#[test]
fn what_shards_hold_beyond_a_store_that_went_back_is_let_alone_while_the_job_opens_and_set_aside_once_it_has_failed()
 {
    let mut world = world();
    let before = world.job().run();
    world.plane.shell.opens_nothing = true;
    attach(&mut world, |progress| progress.closed += 9);
    assert_eq!(world.job().phase(), &Phase::Opening);
    assert_eq!(becomes_of(&mut world, &before), None);
    let run = world.job().run();
    let reason = "this shard has number 9".to_owned();
    world.give(Input::ShardFailed { run, code: FaultCode::new("E646"), reason });
    assert!(matches!(world.job().phase(), Phase::Failed { .. }));
    assert_eq!(becomes_of(&mut world, &before), Some(LastWeights::SetAside));
}

#[test]
fn a_later_generation_than_the_store_knows_is_dropped_by_nobody_and_an_earlier_one_of_a_job_that_goes_on_is()
{
    let mut world = world();
    world.plane.shell.opens_nothing = true;
    let run = |world: &World, generation| RunId { generation, ..world.job().run() };
    let later = run(&world, world.job().generation().next());
    assert_eq!(becomes_of(&mut world, &later), None);
    let mut world = self::world();
    let reason = "a parameter shard has lost its part".to_owned();
    let first = world.job().run();
    world.give(Input::ShardFailed { run: first.clone(), code: FaultCode::PARAMETERS_LOST, reason });
    assert_eq!(becomes_of(&mut world, &first), Some(LastWeights::Drop));
    let other = run(&world, Generation::first(world.job().generation().nonce() + 1));
    assert_eq!(becomes_of(&mut world, &other), Some(LastWeights::SetAside), "of another job of that name");
}

#[test]
fn the_parameters_of_a_job_without_checkpoints_are_set_aside_behind_its_last_weights() {
    let mut world = World::of(training("asp".parse().unwrap(), 10, 1), true);
    let run = world.job().run();
    let ended = attach(&mut world, |progress| {
        progress.watermarks.insert(WORKER, 9);
    });
    let close = |weights| Effect::CloseShards { run: run.clone(), weights };
    assert!(ended.contains(&close(LastWeights::Keep)), "{ended:?}");
    let outcome =
        Ok(SnapshotFile { path: "p".into(), bytes: 8, digest: ContentDigest::from_bytes([0xd; 32]) });
    let kept = world.give(Input::WeightsKept { run: run.clone(), outcome });
    assert!(kept.contains(&close(LastWeights::SetAside)), "{kept:?}");
    assert_eq!(becomes_of(&mut world, &run), Some(LastWeights::SetAside));
}

/// What the store has of the job.
fn stored(world: &mut World) -> StoredJob {
    let mut stored = StoredJob::default();
    apply(&mut stored, world.plane.core.full_commit(&id(), world.now_us).unwrap());
    stored
}

#[test]
fn a_job_that_was_loaded_does_nothing_before_every_shard_has_told_how_far_it_is() {
    let mut world = world();
    let stored = stored(&mut world);
    world.plane.core = Core::new(1);
    world.plane.core.restore(Job::load(&stored).unwrap());
    world.now_us += MINUTE_US;
    let asked = |effects: &[Effect]| {
        effects.iter().any(|e| matches!(e, Effect::Assign { .. } | Effect::PinCheckpoint { .. }))
    };
    while !world.hand.is_empty() {
        assert!(!asked(&world.report()), "a report brings nothing new");
    }
    assert!(!asked(&world.give(Input::Tick)), "nor does a checkpoint that is due");
    assert!(asked(&attach(&mut world, |_| {})));
}
