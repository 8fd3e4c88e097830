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

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_counts_every_sample_once_whatever_dies(
        seed in any::<u64>(),
        policy in prop::sample::select(vec!["bsp", "asp", "elastic-bsp:1", "elastic-bsp:5", "elastic-bsp:40"]),
        workers in 1u32..6,
        shards in 1u32..4,
        samples in 10u64..200,
        epochs in 1u32..4,
        batch in 1u32..10,
        deaths in 0u32..6,
        joins in 0u32..3,
        restarts in 0u32..4,
        ahead in prop::option::of(1u32..4),
    ) {
        run(Settings { seed, policy, workers, shards, samples, epochs, batch, deaths, joins, restarts, ahead });
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
