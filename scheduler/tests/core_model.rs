//! Random interleavings of workers, shards, deaths, joins and engine restarts, against the promises of the
//! core: every sample of every epoch is counted once, barriers close with everybody's pushes in them, nothing
//! hangs, and a job that is loaded from its commits equals the live one.

use crate::cluster::{Cluster, Settings};
use proptest::prelude::*;

fn run(settings: Settings) {
    let mut cluster = Cluster::new(settings);
    cluster.run_to_end();
    cluster.check_everything_counted_once();
}

/// Those that hold workers back by clocks.
const BY_CLOCKS: [&str; 6] = ["asp", "ssp:0", "ssp:3", "dssp:0:2", "dssp:3:15", "dssp:1:4+reading=literal"];
/// Those that plan when to meet.
const BY_PLANS: [&str; 6] = [
    "elastic-bsp:1",
    "elastic-bsp:5",
    "elastic-bsp:40+predictor=ema:0.2+overrun=1.5",
    "elastic-bsp:9+max-lead=3+early=0.5",
    "elastic-bsp:6+update=barrier+predictor=narx",
    "elastic-lb:7+predictor=mean:4",
];
/// Those whose rounds have their length from the start.
const BY_ROUNDS: [&str; 8] = [
    "bsp",
    "lb-bsp",
    "lb-bsp+rule=curve+min=2+max=6",
    "lb-bsp+rule=step+predictor=median:3",
    "local-sgd:1",
    "local-sgd:5",
    "diloco:3",
    "auto:8",
];

/// Small jobs in clusters where anything may die.
fn misfortunes(policies: &'static [&'static str]) -> impl Strategy<Value = Settings> {
    let cluster = (any::<u64>(), prop::sample::select(policies), 1u32..6, 1u32..4);
    let job = (10u64..200, 1u32..4, 1u32..10, any::<bool>(), prop::option::of(1u32..4));
    let faults = (0u32..6, 0u32..3, 0u32..4, any::<bool>());
    (cluster, job, faults).prop_map(|((seed, policy, workers, shards), job, faults)| {
        let (deaths, joins, restarts, evaluations) = faults;
        let (samples, epochs, batch, drop_last, ahead) = job;
        Settings {
            seed,
            policy,
            workers,
            training_slots: 1,
            shards,
            samples,
            epochs,
            batch,
            drop_last,
            deaths,
            joins,
            restarts,
            pauses: 0,
            crashes: 0,
            losses: 0,
            evaluations,
            keep_best: false,
            patience: 0,
            validates: false,
            ahead,
            trainings: 0,
        }
    })
}

/// Graphs of tasks that train, several at a time on one process, in clusters where anything may die.
fn trainings() -> impl Strategy<Value = Settings> {
    let policies = &["asp", "bsp", "elastic-bsp:5", "ssp:3", "local-sgd:5"];
    let drawn = (misfortunes(policies), 1u32..4, 0u32..8, 1u32..4);
    drawn.prop_map(|(settings, trainings, restarts, training_slots)| Settings {
        samples: settings.samples % 60 + 10,
        trainings,
        training_slots,
        restarts,
        ..settings
    })
}

/// Tests of their own, so that they run beside each other.
macro_rules! every_sample_is_counted_once {
    ($name:ident, $policies:expr, $cases:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: $cases, ..ProptestConfig::default() })]

            #[test]
            fn $name(settings in misfortunes(&$policies)) {
                run(settings);
            }
        }
    };
}

every_sample_is_counted_once!(by_clocks_every_sample_is_counted_once_whatever_dies, BY_CLOCKS, 75);
every_sample_is_counted_once!(by_plans_every_sample_is_counted_once_whatever_dies, BY_PLANS, 75);
every_sample_is_counted_once!(by_rounds_every_sample_is_counted_once_whatever_dies, BY_ROUNDS, 100);

/// All kinds of them, with shards that die as well.
const OF_EACH_KIND: [&str; 9] = [
    "asp",
    "ssp:3",
    "dssp:1:4",
    "bsp",
    "elastic-bsp:5",
    "elastic-bsp:6+update=barrier+predictor=narx",
    "lb-bsp",
    "local-sgd:5",
    "auto:8",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_counted_once_whatever_is_rolled_back(
        settings in misfortunes(&OF_EACH_KIND), crashes in 1u32..6, epochs in 2u32..6
    ) {
        run(Settings { crashes, epochs, ..settings });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_counted_once_whatever_the_store_has_lost(
        settings in misfortunes(&OF_EACH_KIND), losses in 1u32..6, crashes in 0u32..2, epochs in 2u32..6
    ) {
        let mut cluster = Cluster::new(Settings { losses, crashes, epochs, ..settings });
        cluster.run_to_end();
        // What the shards have kept since may be all that there is to go back to.
        let unknown = ["E439", "E646"].iter().any(|code| cluster.summary("state") == "failed" && cluster.summary("code") == *code);
        if !unknown {
            cluster.check_everything_counted_once();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_counted_once_however_often_the_job_is_paused(
        settings in misfortunes(&OF_EACH_KIND), pauses in 1u32..6, crashes in 0u32..2
    ) {
        run(Settings { pauses, crashes, ..settings });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_best_parameters_are_handed_on_whatever_dies_and_however_often(
        settings in misfortunes(&OF_EACH_KIND),
        faults in (0u32..4, 0u32..3),
        epochs in 2u32..9,
        patience in 0u32..4,
        validates: bool,
        keep_best in prop::bool::weighted(0.8),
    ) {
        let (crashes, pauses) = faults;
        let settings = Settings { crashes: if keep_best { crashes } else { 0 }, pauses, ..settings };
        run(Settings { evaluations: true, keep_best, epochs, patience, validates, ..settings });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn tasks_that_train_train_once_whatever_dies_between_two_writes(settings in trainings()) {
        run(settings);
    }
}

#[test]
fn trainings_share_every_process_and_each_has_one_slot_of_it() {
    let quiet = Settings { training_slots: 2, trainings: 3, ..Settings::quiet("bsp") };
    let mut cluster = Cluster::new(quiet);
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    assert_eq!(cluster.most_jobs_of_a_process(), 2);
}

#[test]
fn a_quiet_bsp_job_loses_and_tears_nothing() {
    let mut cluster = Cluster::new(Settings::quiet("bsp"));
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    assert_eq!(cluster.summary("state"), "done");
    assert_eq!(cluster.summary("iterations_lost"), "0");
    assert_eq!(cluster.summary("iterations_torn"), "0");
    // 100 samples in batches of 5 on 4 workers: 5 rounds an epoch, 2 epochs.
    assert_eq!(cluster.summary("barriers"), "10");
    assert_eq!(cluster.summary("samples_applied"), "200");
}

#[test]
fn the_last_evaluation_is_of_all_samples_also_where_a_new_plan_brings_some_back() {
    let quiet = Settings::quiet("elastic-bsp:6+update=barrier+predictor=narx");
    run(Settings {
        seed: 7402468415956888868,
        epochs: 7,
        batch: 9,
        drop_last: true,
        evaluations: true,
        keep_best: true,
        patience: 2,
        validates: true,
        ..quiet
    });
}

#[test]
fn a_shard_that_crashes_when_all_is_trained_brings_back_what_its_snapshot_needs() {
    let quiet = Settings::quiet("lb-bsp");
    run(Settings {
        seed: 1394295724630059485,
        workers: 1,
        shards: 3,
        samples: 15,
        epochs: 3,
        batch: 4,
        drop_last: true,
        deaths: 2,
        joins: 2,
        restarts: 1,
        crashes: 2,
        ..quiet
    });
}

#[test]
fn shards_that_crash_cost_what_was_done_since_the_checkpoint_and_nothing_else() {
    for policy in OF_EACH_KIND {
        let costs = |seed| {
            let settings = Settings { crashes: 3, epochs: 8, seed, ..Settings::quiet(policy) };
            let mut cluster = Cluster::new(settings);
            cluster.run_to_end();
            cluster.check_everything_counted_once();
            assert_eq!(cluster.summary("iterations_lost"), "0", "{policy}");
            assert_eq!(cluster.summary("iterations_torn"), "0", "{policy}");
            cluster.summary("iterations_rolled_back") != "0"
        };
        // A shard may crash when nothing has been done since.
        assert!((0..5).map(costs).filter(|costs| *costs).count() > 1, "{policy}");
    }
}

#[test]
fn asp_meets_only_once_at_the_end() {
    let mut cluster = Cluster::new(Settings::quiet("asp"));
    cluster.run_to_end();
    assert_eq!(cluster.summary("barriers"), "1");
}

#[test]
fn elastic_bsp_leaves_no_worker_more_than_the_lookahead_and_its_monitoring_behind() {
    let mut cluster = Cluster::new(Settings { samples: 2000, ..Settings::quiet("elastic-bsp:5") });
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    let barriers: u64 = cluster.summary("barriers").parse().unwrap();
    assert!(barriers > 3, "{barriers} barriers");
}

#[test]
fn one_who_joins_during_planning_opens_no_superstep_before_the_plan_is_there() {
    let quiet = Settings::quiet("elastic-bsp:5");
    run(Settings {
        seed: 12683919325409043286,
        workers: 3,
        shards: 1,
        samples: 67,
        epochs: 1,
        batch: 1,
        joins: 1,
        restarts: 1,
        ..quiet
    });
}

/// Deaths and restarts, but no joins: a joiner starts at the clock that the engine knows, which lags.
fn highest_lead(policy: &'static str, seed: u64) -> u64 {
    let mut cluster =
        Cluster::new(Settings { seed, samples: 400, deaths: 2, restarts: 2, ..Settings::quiet(policy) });
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    cluster.max_lead()
}

fn never_leads_by_more_than(most: u64, policy: &'static str) {
    for seed in 0..40 {
        let lead = highest_lead(policy, seed);
        assert!(lead <= most, "{policy}, seed {seed}: {lead} ahead");
    }
}

#[test]
fn nobody_leads_under_ssp_0_whoever_dies() {
    never_leads_by_more_than(0, "ssp:0");
}

#[test]
fn the_lead_under_ssp_3_is_bounded_whoever_dies() {
    never_leads_by_more_than(3, "ssp:3");
}

#[test]
fn the_lead_under_dssp_is_bounded_whoever_dies() {
    never_leads_by_more_than(4, "dssp:1:4");
    never_leads_by_more_than(15, "dssp:3:15");
}

#[test]
fn dssp_lets_the_fast_run_further_than_its_lower_threshold() {
    let highest = (0..10).map(|seed| highest_lead("dssp:1:9", seed)).max();
    assert!(highest > Some(1), "{highest:?}");
}

#[test]
fn the_same_inputs_give_the_same_decisions() {
    for policy in [&BY_CLOCKS[..], &BY_PLANS, &BY_ROUNDS].concat() {
        let settings = Settings { seed: 7, deaths: 2, joins: 1, restarts: 1, ..Settings::quiet(policy) };
        let stored = [(); 2].map(|()| {
            let mut cluster = Cluster::new(settings);
            cluster.run_to_end();
            cluster.stored().clone()
        });
        assert_eq!(stored[0], stored[1], "{policy}");
    }
}
