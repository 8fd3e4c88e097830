//! A Redis that loses, is emptied, or holds what nobody wrote.

use std::{collections::BTreeMap, fs, path::PathBuf};

use syncline::JobPhase;
use syncline_engine::store::keys::{self, JobKeys};
use syncline_scheduler::{ids::JobId, spec::CheckpointSpec};

use crate::{
    cluster::{Cluster, eventually, number},
    jobs::{check_exact, check_next_job_runs, counting, submit},
};

const SAMPLES: u64 = 4_000;
const WORKER: &str = "--step-ms 5 --slowdown 1";

/// Kills the Redis server, takes the last third from its append-only file, and starts it again.
pub fn cut_tail(cluster: &mut Cluster) {
    // Killed first: one that is stopped cleanly would write what it still has in mind.
    crate::cluster::send_signal(cluster.redis.pid(), "KILL");
    cluster.restart_redis(|dir| {
        let file = newest_part(&dir.join("appendonlydir"));
        let length = fs::metadata(&file).unwrap().len();
        assert!(length > 30_000, "{length} bytes in the append-only file");
        let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
        open.set_len(length - length / 3).unwrap();
    });
}

fn newest_part(dir: &std::path::Path) -> PathBuf {
    let parts = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    parts.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_its_last_moment_is_written_again_by_the_engine_that_lives() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, counting("tail", "elastic-bsp:15", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 3).await;
    cut_tail(&mut cluster);
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_acknowledged_data_nobody_knows_any_more_goes_back_or_says_so_where_it_keeps_no_checkpoint()
 {
    for (policy, checkpoint) in [
        ("asp", None),
        ("elastic-bsp:15", Some(CheckpointSpec::every_s(1))),
        ("ssp:3", Some(CheckpointSpec::every_s(60))),
    ] {
        let mut cluster = Cluster::start(2, 2, WORKER).await;
        let spec = counting("forgotten", policy, SAMPLES, |train| train.checkpoint = checkpoint);
        let job = submit(&cluster, spec).await;
        cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 3).await;
        cluster.kill_engine();
        cut_tail(&mut cluster);
        cluster.start_engine();
        let summary = cluster.until_over(&job).await;
        match summary["state"].as_str() {
            "done" => check_exact(&summary, SAMPLES),
            // A third of the log may be more than one checkpoint.
            _ if checkpoint.is_some() => assert_eq!(summary["code"], "E646", "{summary:?}"),
            _ => assert_eq!(summary["code"], "E226", "{summary:?}"),
        }
        check_next_job_runs(&cluster, "next").await;
    }
}

/// Remembers all keys as they are now, as a replica that hears nothing more does.
pub async fn lag_from_now(cluster: &Cluster) {
    let script =
        "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 5) end return 1";
    let _: i64 = cluster.store.query("copy", &["EVAL", script, "0"]).await.unwrap();
}

/// Redis and the engine die together, and what lagged takes their place.
pub async fn go_back(cluster: &mut Cluster) {
    cluster.kill_engine();
    let _: String = cluster.store.query("go back", &["SWAPDB", "0", "5"]).await.unwrap();
    cluster.start_engine();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_redis_does_not_know_to_have_begun_is_not_begun_on_top_of_what_it_has_done() {
    let minute = CheckpointSpec::every_s(60);
    for (checkpoint, samples) in [(None, 1_000_000), (Some(minute), SAMPLES)] {
        let mut cluster = Cluster::start(2, 0, WORKER).await;
        let spec = counting("begun", "bsp", samples, |train| train.checkpoint = checkpoint);
        let job = submit(&cluster, spec).await;
        lag_from_now(&cluster).await;
        let worker = cluster.spawn_worker(WORKER);
        cluster.workers.push(worker);
        cluster.until(&job, |s| number(s, "samples_applied") > 200).await;
        go_back(&mut cluster).await;
        let summary = cluster.until_over(&job).await;
        match checkpoint {
            None => assert_eq!(summary["code"], "E226", "{summary:?}"),
            // It begins anew.
            Some(_) => check_exact(&summary, samples),
        }
        check_next_job_runs(&cluster, "next").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_redis_does_not_know_to_have_ended_is_said_to_have_ended() {
    let mut cluster = Cluster::start(2, 1, WORKER).await;
    let job = submit(&cluster, counting("ended", "bsp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 50).await;
    lag_from_now(&cluster).await;
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    go_back(&mut cluster).await;
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["code"], "E226", "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_redis_is_written_again_and_a_later_job_of_that_name_starts_from_its_own_weights() {
    let cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, counting("emptied", "bsp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > SAMPLES / 3).await;
    let _: String = cluster.store.query("lose", &["FLUSHALL"]).await.unwrap();
    check_exact(&cluster.until_over(&job).await, SAMPLES);

    // The day after: engine and Redis know nothing, only the shards have not been told.
    let mut cluster = cluster;
    let job = submit(&cluster, counting("again", "asp", 1_000_000, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 500).await;
    cluster.kill_engine();
    let _: String = cluster.store.query("lose", &["FLUSHALL"]).await.unwrap();
    cluster.start_engine();
    let job = submit(&cluster, counting("again", "asp", 500, |_| {})).await;
    check_exact(&cluster.until_over(&job).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_number_that_redis_forgot_and_gave_to_another_is_not_his_any_more() {
    let mut cluster = Cluster::start(1, 1, WORKER).await;
    let lose_everything = async |cluster: &mut Cluster| {
        cluster.kill_engine();
        let _: String = cluster.store.query("lose", &["FLUSHALL"]).await.unwrap();
        cluster.start_engine();
    };
    // The first loss gives a number behind the gap, the second one the same number again, to whoever comes
    // first.
    lose_everything(&mut cluster).await;
    let first = cluster.until_there(|ids| !ids.is_empty()).await;
    cluster.workers[0].signal("STOP");
    lose_everything(&mut cluster).await;
    let second = cluster.spawn_worker(WORKER);
    cluster.workers.push(second);
    assert_eq!(cluster.until_there(|ids| !ids.is_empty()).await, first);
    let job = submit(&cluster, counting("numbers", "bsp", SAMPLES, |_| {})).await;
    cluster.workers[0].signal("CONT");
    let both = cluster.until_there(|ids| ids.len() == 2).await;
    assert!(both.contains(&first[0]), "{first:?}, {both:?}");
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, SAMPLES);
    assert_eq!(number(&summary, "iterations_lost") + number(&summary, "iterations_torn"), 0, "{summary:?}");
    // The one that was awake all the time is still there under its number when the other one leaves.
    cluster.workers[0].signal("TERM");
    assert_eq!(cluster.until_there(|ids| ids.len() == 1).await, first);
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_jobs_are_parked_and_the_others_go_on() {
    let mut cluster = Cluster::start(1, 2, WORKER).await;
    let damaged =
        ["no-seq", "bad-seq", "far-epoch", "no-job-state", "no-workers", "wrong-type", "no-state", "garbage"];
    // The first one runs, with one of the workers; "no-workers" runs with the other; the rest waits.
    let running = submit(&cluster, counting("running", "asp", SAMPLES, |s| s.max_workers = 1)).await;
    let other = submit(&cluster, counting("no-workers", "bsp", 1_000_000, |s| s.max_workers = 1)).await;
    cluster.until(&other, |s| number(s, "samples_applied") > 50).await;
    for name in damaged.iter().filter(|name| **name != "no-workers") {
        submit(&cluster, counting(name, "bsp", 100_000, |s| s.min_workers = 9)).await;
    }
    cluster.until(&running, |s| number(s, "samples_applied") > SAMPLES / 4).await;
    cluster.kill_engine();
    let spoil = async |name: &str, words: &[&str]| {
        let keys = JobKeys::new(&name.parse().unwrap());
        let name = |word: &&str| match *word {
            "STATE" => keys.state.clone(),
            "TASKS" => keys.tasks.clone(),
            "WORKERS" => keys.workers.clone(),
            other => other.to_owned(),
        };
        let words: Vec<String> = words.iter().map(name).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _: i64 = cluster.store.query("spoil", &words).await.unwrap();
    };
    spoil("no-seq", &["HDEL", "STATE", "seq"]).await;
    spoil("bad-seq", &["HSET", "STATE", "seq", "abc"]).await;
    spoil("far-epoch", &["HSET", "STATE", "epoch", "9000000000000000"]).await;
    spoil("no-job-state", &["HDEL", "STATE", "job_state"]).await;
    spoil("wrong-type", &["DEL", "TASKS"]).await;
    spoil("wrong-type", &["RPUSH", "TASKS", "text"]).await;
    spoil("no-workers", &["DEL", "WORKERS"]).await;
    spoil("no-state", &["DEL", "STATE"]).await;
    spoil("garbage", &["HSET", "STATE", "spec", "{"]).await;
    cluster.start_engine();

    check_exact(&cluster.until_over(&running).await, SAMPLES);
    let client = cluster.client();
    let states: BTreeMap<String, JobPhase> =
        client.jobs().await.unwrap().into_iter().map(|j| (j.id.to_string(), j.state)).collect();
    for name in damaged {
        assert_eq!(states[name], JobPhase::Damaged, "{states:?}");
        let view = client.status(&name.parse().unwrap()).await.unwrap();
        assert!(view.job.reason.is_some(), "{name}");
    }
    for (n, name) in damaged.iter().enumerate() {
        let job = name.parse().unwrap();
        if n % 2 == 0 { client.cancel(&job).await.unwrap() } else { client.delete(&job).await.unwrap() }
    }
    let left: Vec<String> = client.jobs().await.unwrap().into_iter().map(|j| j.id.to_string()).collect();
    assert!(damaged.iter().all(|name| !left.iter().any(|l| l == name)), "{left:?}");
    check_next_job_runs(&cluster, "next").await;
    check_next_job_runs(&cluster, "garbage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_jobs_that_was_removed_or_overwritten_is_made_whole_by_the_engine_that_lives() {
    let mut cluster = Cluster::start(1, 1, WORKER).await;
    let job = submit(&cluster, counting("listed", "asp", SAMPLES, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 0).await;
    let _: i64 = cluster.store.query("spoil", &["DEL", keys::JOBS]).await.unwrap();
    until_listed(&cluster, &job).await;
    let _: String = cluster.store.query("spoil", &["SET", keys::JOBS, "text"]).await.unwrap();
    until_listed(&cluster, &job).await;
    cluster.kill_engine();
    cluster.start_engine();
    check_exact(&cluster.until_over(&job).await, SAMPLES);
    until_listed(&cluster, &job).await;
    check_next_job_runs(&cluster, "next").await;
}

async fn until_listed(cluster: &Cluster, job: &JobId) {
    eventually("the job is listed again", async || {
        cluster.client().jobs().await.is_ok_and(|jobs| jobs.iter().any(|j| j.id == *job))
    })
    .await;
}
