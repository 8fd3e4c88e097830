//! Everything is stopped in order in the middle of a job, and goes on at the next start.

use std::{collections::BTreeMap, fs, path::Path};

use syncline_engine::{
    client::Client,
    rpc::{EngineAddresses, Token},
};
use syncline_scheduler::ids::JobId;
use syncline_workers::submit;

use crate::{
    cluster::{number, runtime},
    counting,
    rig::{Up, folder, kill, wait_until},
};

const SAMPLES: u64 = 6_000;
const BATCH: u32 = 10;
const CLUSTER: &[&str] = &["--workers", "2", "--shards", "2", "--step-ms", "4"];

fn client(up: &Up) -> (Client, Token) {
    let token = Token::load(Path::new(up.about["token_file"].as_str().unwrap())).unwrap();
    let engine: EngineAddresses = up.about["engine"].as_str().unwrap().parse().unwrap();
    (Client::new(engine, token.clone()), token)
}

/// Starts a job, stops the cluster `stops` times in its middle, and checks its counts at the end.
fn stopped_in_the_middle(policy: &str, stops: u64, signal: &str) {
    let waiting = tokio::runtime::Runtime::new().unwrap();
    let dir = folder();
    let mut up = Up::start(&dir, CLUSTER);
    let job: JobId = "counting".parse().unwrap();
    let graph = counting::job(job.as_str(), policy.parse().unwrap(), SAMPLES, BATCH, 1, 3);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let (engine, token) = client(&up);
    waiting.block_on(submit::submit(&engine, &token, prepared)).unwrap();
    for stop in 1..=stops {
        let (engine, _) = client(&up);
        let far = SAMPLES * stop / (stops + 1);
        wait_until("the job is in its middle", || {
            let view = waiting.block_on(engine.job(&job)).unwrap().job;
            assert!(!["done", "failed"].contains(&view["state"].as_str()), "{view:?}");
            number(&view, "samples_applied") >= far
        });
        kill(signal, up.pid());
        assert!(up.wait().success(), "{}", up.said());
        for shard in 0..2 {
            let kept = dir.path().join(format!("shard-{shard}/jobs/counting.job"));
            assert!(kept.exists(), "{}", fs::read_to_string(dir.path().join("logs/ps-0.log")).unwrap());
        }
        up = Up::start(&dir, CLUSTER);
    }
    let (engine, _) = client(&up);
    let mut summary = BTreeMap::new();
    wait_until("the job is over", || {
        summary = waiting.block_on(engine.job(&job)).unwrap().job;
        ["done", "failed", "canceled"].contains(&summary["state"].as_str())
    });
    let logs = || fs::read_to_string(dir.path().join("logs/engine.log")).unwrap();
    assert_eq!(summary["state"], "done", "{summary:?} {}", logs());
    assert_eq!(number(&summary, "samples_applied"), SAMPLES);
    let counts = counting::counts(Path::new(&summary["snapshot"]));
    let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let (done, torn) = (number(&summary, "iterations_done"), number(&summary, "iterations_torn"));
    println!("{policy}: {done} done, {torn} torn, weights {low}..{high}");
    if policy == "asp" {
        assert!(done <= low && high <= done + torn, "{done} done, {torn} torn, weights {low}..{high}");
    }
    if policy == "bsp" {
        // A round is one step, whole or torn.
        let barriers = number(&summary, "barriers");
        assert!(high <= barriers && high - low <= torn, "{barriers} barriers, weights {low}..{high}");
    }
}

#[test]
fn a_job_of_steps_goes_on_with_exact_counts_after_sigterm() {
    stopped_in_the_middle("asp", 2, "TERM");
}

#[test]
fn a_job_of_rounds_goes_on_with_exact_counts_after_ctrl_c() {
    stopped_in_the_middle("bsp", 2, "INT");
}

#[test]
fn a_job_of_local_rounds_goes_on_after_a_stop() {
    stopped_in_the_middle("local-sgd:4", 1, "TERM");
}
