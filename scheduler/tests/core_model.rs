//! Random interleavings of workers, shards, deaths, joins and engine restarts, against the promises of the core:
//! every sample of every epoch is counted once, barriers close with everybody's pushes in them, nothing hangs, and a
//! job that is loaded from its commits equals the live one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cluster;

use cluster::{Cluster, Settings};
use proptest::prelude::*;

fn run(settings: Settings) {
    let mut cluster = Cluster::new(settings);
    cluster.run_to_end();
    cluster.check_everything_counted_once();
}

const POLICIES: &[&str] = &[
    "bsp",
    "asp",
    "ssp:0",
    "ssp:3",
    "dssp:0:2",
    "dssp:3:15",
    "dssp:1:4+reading=literal",
    "elastic-bsp:1",
    "elastic-bsp:5",
    "elastic-bsp:40+predictor=ema:0.2+overrun=1.5",
    "elastic-bsp:9+max-lead=3+early=0.5",
    "elastic-bsp:6+update=barrier+predictor=narx",
    "lb-bsp",
    "lb-bsp+rule=curve+min=2+max=6",
    "lb-bsp+rule=step+predictor=median:3",
    "elastic-lb:7+predictor=mean:4",
    "local-sgd:1",
    "local-sgd:5",
    "diloco:3",
    "auto:8",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_counts_every_sample_once_whatever_dies(
        seed in any::<u64>(),
        policy in prop::sample::select(POLICIES),
        workers in 1u32..6,
        shards in 1u32..4,
        samples in 10u64..200,
        epochs in 1u32..4,
        batch in 1u32..10,
        drop_last in any::<bool>(),
        deaths in 0u32..6,
        joins in 0u32..3,
        restarts in 0u32..4,
        ahead in prop::option::of(1u32..4),
    ) {
        run(Settings { seed, policy, workers, shards, samples, epochs, batch, drop_last, deaths, joins, restarts, ahead });
    }
}

#[test]
fn a_quiet_bsp_job_loses_and_tears_nothing() {
    let mut cluster = Cluster::new(Settings::quiet("bsp"));
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    let summary = cluster.summary();
    assert_eq!(summary["state"], "done");
    assert_eq!(summary["iterations_lost"], "0");
    assert_eq!(summary["iterations_torn"], "0");
    // 100 samples in batches of 5 on 4 workers: 5 rounds an epoch, 2 epochs.
    assert_eq!(summary["barriers"], "10");
    assert_eq!(summary["samples_applied"], "200");
}

#[test]
fn asp_meets_only_once_at_the_end() {
    let mut cluster = Cluster::new(Settings::quiet("asp"));
    cluster.run_to_end();
    assert_eq!(cluster.summary()["barriers"], "1");
}

#[test]
fn elastic_bsp_leaves_no_worker_more_than_the_lookahead_and_its_monitoring_behind() {
    let mut cluster = Cluster::new(Settings { samples: 2000, ..Settings::quiet("elastic-bsp:5") });
    cluster.run_to_end();
    cluster.check_everything_counted_once();
    let barriers: u64 = cluster.summary()["barriers"].parse().unwrap();
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

#[test]
fn the_promised_bound_on_the_lead_holds_whoever_dies() {
    for seed in 0..40 {
        for (policy, most) in [("ssp:0", 0), ("ssp:3", 3), ("dssp:1:4", 4), ("dssp:3:15", 15)] {
            let lead = highest_lead(policy, seed);
            assert!(lead <= most, "{policy}, seed {seed}: {lead} ahead");
        }
    }
}

#[test]
fn dssp_lets_the_fast_run_further_than_its_lower_threshold() {
    let highest = (0..10).map(|seed| highest_lead("dssp:1:9", seed)).max();
    assert!(highest > Some(1), "{highest:?}");
}

#[test]
fn the_same_inputs_give_the_same_decisions() {
    for policy in POLICIES {
        let settings = Settings { seed: 7, deaths: 2, joins: 1, restarts: 1, ..Settings::quiet(policy) };
        let stored = [(); 2].map(|()| {
            let mut cluster = Cluster::new(settings);
            cluster.run_to_end();
            cluster.stored().clone()
        });
        assert_eq!(stored[0], stored[1], "{policy}");
    }
}
