//! The simulator against the figures of the papers' digest and against what every policy promises.

use proptest::prelude::*;
use syncline_scheduler::{
    sim::{Burst, Outcome, Scenario, WorkerModel, simulate},
    spec::PolicySpec,
};

fn scenario(policy: &str, intervals_ms: &[u64], jitter: f64, duration_s: u64, seed: u64) -> Scenario {
    let worker = |ms: &u64| WorkerModel { jitter, ..WorkerModel::steady(ms * 1000) };
    Scenario {
        policy: policy.parse::<PolicySpec>().unwrap(),
        workers: intervals_ms.iter().map(worker).collect(),
        batch: 32,
        duration_us: duration_s * 1_000_000,
        seed,
    }
}

fn run(policy: &str, intervals_ms: &[u64], jitter: f64) -> Outcome {
    simulate(&scenario(policy, intervals_ms, jitter, 2_000, 1), 0).unwrap()
}

const STRAGGLER: [u64; 4] = [100, 100, 100, 200];

#[test]
fn bsp_waits_for_the_straggler_in_every_round() {
    let out = run("bsp", &STRAGGLER, 0.0);
    assert!((out.waiting_fraction - 0.375).abs() < 1e-6, "{}", out.waiting_fraction);
    assert!((out.pushes_per_s - 20.0).abs() < 0.01);
    assert_eq!((out.barriers, out.max_lead, out.mean_staleness), (10_000, 1, 0.0));
}

#[test]
fn waiting_table() {
    // (policy, jitter, least and most waiting, least and most pushes per second)
    #[rustfmt::skip]
    type Case<'a> = (&'a str, f64, (f64, f64), (f64, f64));
    let cases: &[Case<'_>] = &[
        ("asp", 0.00, (0.0, 0.0), (34.9, 35.1)),
        ("ssp:3", 0.00, (0.36, 0.376), (19.9, 20.3)),
        ("elastic-bsp:15", 0.00, (0.0, 0.0), (34.9, 35.1)),
        ("elastic-bsp:240", 0.00, (0.0, 0.0), (34.9, 35.1)),
        ("elastic-bsp:15", 0.05, (0.0, 0.06), (32.0, 35.0)),
        ("elastic-bsp:15", 0.15, (0.08, 0.15), (29.5, 33.0)),
        ("elastic-bsp:15+predictor=ema:0.2", 0.15, (0.0, 0.09), (31.5, 35.0)),
        ("elastic-bsp:15+predictor=mean:8", 0.15, (0.0, 0.09), (31.5, 35.0)),
    ];
    for &(policy, jitter, waiting, pushes) in cases {
        let out = run(policy, &STRAGGLER, jitter);
        assert!(
            (waiting.0..=waiting.1).contains(&out.waiting_fraction),
            "{policy} at {jitter}: waiting {}",
            out.waiting_fraction
        );
        assert!(
            (pushes.0..=pushes.1).contains(&out.pushes_per_s),
            "{policy} at {jitter}: {} pushes/s",
            out.pushes_per_s
        );
    }
}

#[test]
fn equal_workers_do_three_iterations_a_superstep_at_any_lookahead() {
    for lookahead in [1, 15, 240] {
        let out = run(&format!("elastic-bsp:{lookahead}"), &[100; 4], 0.0);
        assert_eq!(out.waiting_fraction, 0.0);
        assert_eq!(out.pushes, out.barriers * 12 + out.pushes % 12, "lookahead {lookahead}");
        assert_eq!(out.mean_superstep_ms, 300.0);
    }
}

#[test]
fn a_worker_that_is_alone_steps_all_the_same_where_only_barriers_step() {
    for policy in ["elastic-bsp:15+update=barrier", "elastic-lb:15+update=barrier", "auto+update=barrier"] {
        let out = run(policy, &[100], 0.0);
        assert!(out.barriers * 5 >= out.pushes, "{policy}: {} pushes, {} barriers", out.pushes, out.barriers);
    }
}

#[test]
fn lb_bsp_reaches_the_ideal_speed_up() {
    // Iteration time of BSP over that of LB-BSP: mean(v) / min(v).
    for (intervals, ideal) in [([100, 100, 100, 200], 1.75), ([1000, 1111, 1250, 1428], 1.21)] {
        let (bsp, balanced) = (run("bsp", &intervals, 0.0), run("lb-bsp", &intervals, 0.0));
        let ratio = balanced.samples_per_s / bsp.samples_per_s;
        assert!((ratio / ideal - 1.0).abs() < 0.05, "{ratio} instead of {ideal}");
    }
}

#[test]
fn elastic_lb_wastes_less_than_lb_bsp_where_speeds_jitter() {
    let elastic = run("elastic-lb:15+predictor=ema:0.2", &STRAGGLER, 0.15);
    let balanced = run("lb-bsp+predictor=ema:0.2", &STRAGGLER, 0.15);
    assert!(elastic.samples_per_s > balanced.samples_per_s, "{elastic:?} {balanced:?}");
    assert!(elastic.per_worker[3].batch < elastic.per_worker[0].batch);
}

#[test]
fn only_literal_dssp_escapes_the_slowest_workers_rate() {
    // Long enough for a lead of hundreds. Later the literal controller says "stop" once, and then the fast
    // worker waits until the slow one has done as many hundreds.
    let two = |policy: &str| simulate(&scenario(policy, &[100, 300], 0.02, 200, 1), 0).unwrap();
    let (ssp, strict, literal, asp) =
        (two("ssp:15"), two("dssp:3:15"), two("dssp:3:15+reading=literal"), two("asp"));
    assert!(strict.max_lead <= 16, "{}", strict.max_lead);
    assert!((strict.pushes_per_s / ssp.pushes_per_s - 1.0).abs() < 0.01);
    assert!(literal.max_lead > 16);
    let share = literal.pushes_per_s / asp.pushes_per_s;
    assert!(share > 0.95, "{share}");
}

#[test]
fn local_rounds_save_the_transfers() {
    let mut slow_link = scenario("bsp", &[100; 4], 0.0, 500, 1);
    for w in &mut slow_link.workers {
        (w.pull_us, w.push_us) = (100_000, 100_000);
    }
    let bsp = simulate(&slow_link, 0).unwrap();
    slow_link.policy = "local-sgd:8".parse().unwrap();
    let local = simulate(&slow_link, 0).unwrap();
    assert!((bsp.pushes_per_s - 4.0 / 0.3).abs() < 0.1, "{}", bsp.pushes_per_s);
    assert!((local.pushes_per_s - 32.0).abs() < 0.2, "{}", local.pushes_per_s);
    slow_link.policy = "auto".parse().unwrap();
    let auto = simulate(&slow_link, 0).unwrap();
    assert!(auto.rules["local-sgd"] * 10 > auto.rules.values().sum::<u64>() * 9, "{:?}", auto.rules);
}

#[test]
fn a_worker_that_stalls_makes_the_superstep_be_planned_again() {
    let mut stalls = scenario("elastic-bsp:30", &[100, 100, 100, 130], 0.02, 500, 3);
    stalls.workers[3].burst = Some(Burst { probability: 0.02, factor: 20.0, iterations: 3 });
    let out = simulate(&stalls, 0).unwrap();
    stalls.policy = "elastic-bsp:30+overrun=1000000".parse().unwrap();
    let patient = simulate(&stalls, 0).unwrap();
    assert!(out.replanned > 0 && patient.replanned == 0);
    assert!(
        out.waiting_fraction < patient.waiting_fraction,
        "{} {}",
        out.waiting_fraction,
        patient.waiting_fraction
    );
}

const POLICIES: &[&str] = &[
    "bsp",
    "asp",
    "ssp:0",
    "ssp:3",
    "dssp:1:4",
    "dssp:3:15+reading=literal",
    "elastic-bsp:1",
    "elastic-bsp:15+predictor=median:5+overrun=1.5",
    "elastic-bsp:40+max-lead=4+early=0.3",
    "elastic-bsp:7+update=barrier+predictor=narx",
    "lb-bsp+predictor=ema:0.3",
    "lb-bsp+rule=step",
    "elastic-lb:9+rule=curve",
    "local-sgd:4",
    "diloco:2",
    "auto",
];

fn any_worker() -> impl Strategy<Value = WorkerModel> {
    let times = (1_000u64..200_000, 0u64..5_000, 0u64..3_000_000, prop::option::of(0u64..8_000_000));
    let weather = (0.0f64..0.6, prop::option::of((0.0f64..0.2, 0.3f64..8.0, 1u32..5)), -0.004f64..0.01);
    (times, weather).prop_map(
        |((interval_us, pull_us, joins_at_us, leaves), (jitter, burst, drift_per_s))| WorkerModel {
            jitter,
            burst: burst.map(|(probability, factor, iterations)| Burst { probability, factor, iterations }),
            drift_per_s,
            pull_us,
            push_us: pull_us / 2,
            joins_at_us,
            leaves_at_us: leaves.filter(|at| *at > joins_at_us),
            ..WorkerModel::steady(interval_us)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nobody_is_stuck_and_every_promise_holds_whoever_comes_and_goes(
        policy in prop::sample::select(POLICIES),
        mut workers in prop::collection::vec(any_worker(), 1..7),
        seed in any::<u64>(),
    ) {
        // Somebody is there from the beginning to the end.
        (workers[0].joins_at_us, workers[0].leaves_at_us) = (0, None);
        let scenario = Scenario {
            policy: policy.parse().unwrap(), workers, batch: 16, duration_us: 60_000_000, seed,
        };
        let out = simulate(&scenario, 0).unwrap();
        prop_assert_eq!(&out, &simulate(&scenario, 0).unwrap());
        // No deadlock: in a minute everybody who stays pushes, and goes on pushing in the last part of it.
        let longer = simulate(&Scenario { duration_us: 240_000_000, ..scenario.clone() }, 0).unwrap();
        for ((model, early), late) in scenario.workers.iter().zip(&out.per_worker).zip(&longer.per_worker) {
            // A worker that literal DSSP let run far ahead may wait for longer than this.
            if model.leaves_at_us.is_none() && !policy.ends_with("literal") {
                prop_assert!(late.pushes > early.pushes, "worker {} is stuck under {policy}", early.worker);
            }
        }
        let bound = match policy {
            "bsp" | "lb-bsp+predictor=ema:0.3" | "lb-bsp+rule=step" => 1,
            "ssp:0" => 1,
            "ssp:3" => 4,
            "dssp:1:4" => 5,
            "local-sgd:4" => 4,
            "diloco:2" => 2,
            // Who joins in the middle begins at 0; iterations that run by then may end further ahead.
            "elastic-bsp:40+max-lead=4+early=0.3"
                if scenario.workers.iter().all(|w| w.joins_at_us == 0) => 4,
            _ => u64::MAX,
        };
        prop_assert!(out.max_lead <= bound, "{policy}: lead {}", out.max_lead);
        prop_assert_eq!(out.pushes, out.staleness_histogram.iter().sum::<u64>());
        prop_assert!((0.0..=1.0).contains(&out.waiting_fraction));
    }
}
