//! Shards that are killed with -9 in the middle of a job that keeps checkpoints: it goes back and counts
//! every sample once.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use syncline::JobPhase;
use syncline_scheduler::{
    ids::JobId,
    samples::splitmix64,
    spec::{CheckpointSpec, TrainSpec},
};

use tokio::runtime::Runtime;

use crate::{
    cluster::{Cluster, eventually, number, number_if_any},
    counting::counts,
    jobs::{check_exact, check_next_job_runs, counting, submit},
    rig::{Up, folder, kill, wait_until},
    stop::{client, until_over},
};

const EPOCH: u64 = 2_003; // prime: the last batch of each epoch is a short one
const EPOCHS: u32 = 7;
const WORKER: &str = "--step-ms 2 --slowdown 1";

/// A checkpoint behind every epoch, so that no test depends on how fast the machine is.
pub fn every_epoch(train: &mut TrainSpec) {
    train.epochs = EPOCHS;
    train.checkpoint = Some(CheckpointSpec::every_epochs(1).keep(2));
}

/// The job is at least `epochs` epochs far, and has done something that is in no checkpoint.
pub async fn until_beyond(cluster: &Cluster, job: &JobId, epochs: u64) -> BTreeMap<String, String> {
    let beyond = |s: &BTreeMap<String, String>| {
        number_if_any(s, "checkpoint_samples")
            .is_some_and(|kept| kept >= epochs * EPOCH && number(s, "samples_applied") > kept)
    };
    cluster.until(job, |s| s["state"] != "opening" && beyond(s)).await
}

/// Stops the workers where no checkpoint is on its way: the newest is kept, and what they have sent does not
/// reach to the end of their epoch. The summary says where.
async fn stop_workers_beyond(cluster: &Cluster, job: &JobId, epochs: u64) -> BTreeMap<String, String> {
    loop {
        until_beyond(cluster, job, epochs).await;
        cluster.workers.iter().for_each(|worker| worker.signal("STOP"));
        let summary = cluster.summary(job).await;
        let beyond =
            number(&summary, "samples_applied").saturating_sub(number(&summary, "checkpoint_samples"));
        if (1..EPOCH * 3 / 4).contains(&beyond) {
            return summary;
        }
        cluster.workers.iter().for_each(|worker| worker.signal("CONT"));
    }
}

fn kill_shard(cluster: &mut Cluster, index: u32) {
    cluster.shards[index as usize].kill();
    cluster.start_shard(index);
}

/// Kills shards, one of them with the engine, and checks the counts of the end.
async fn survives(policy: &str, seed: u64) -> Survived {
    println!("seed {seed}");
    let mut random = seed;
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("checkpointed", policy, EPOCH, every_epoch)).await;
    for kill in 1..=4 {
        until_beyond(&cluster, &job, kill).await;
        if kill % 2 == 0 {
            cluster.kill_engine();
        }
        let shard = (splitmix64(&mut random) % 2) as u32;
        kill_shard(&mut cluster, shard);
        if kill == 3 {
            // Before anybody can have gone back.
            kill_shard(&mut cluster, 1 - shard);
        }
        if kill % 2 == 0 {
            cluster.start_engine();
        }
        cluster.until(&job, |s| number(s, "generation") > kill).await;
    }
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), EPOCH * u64::from(EPOCHS), "{summary:?}");
    assert_eq!(number(&summary, "epochs_complete"), u64::from(EPOCHS), "{summary:?}");
    assert!(number(&summary, "iterations_rolled_back") > 0, "{summary:?}");
    assert_eq!(number(&summary, "iterations_torn") + number(&summary, "iterations_lost"), 0, "{summary:?}");
    let events = cluster.print("events checkpointed");
    assert!(events.contains("checkpoint_kept") && events.contains("rolled_back"), "{events}");
    check_next_job_runs(&cluster, "next").await;
    Survived { summary, _cluster: cluster }
}

/// How a job ended.
struct Survived {
    summary: BTreeMap<String, String>,
    /// Has its weights.
    _cluster: Cluster,
}

impl Survived {
    /// No worker died: every weight has moved as often as this counter says.
    fn check_weights(&self, counter: &str) {
        let counts = counts(Path::new(&self.summary["snapshot"]));
        let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
        let expected = number(&self.summary, counter);
        assert_eq!((low, high), (expected, expected), "{:?}", self.summary);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_under_asp_goes_back_to_its_checkpoint_and_counts_every_push_once() {
    survives("asp", 3).await.check_weights("iterations_done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_under_elastic_bsp_goes_back_to_its_checkpoint_and_counts_every_push_once() {
    survives("elastic-bsp:15", 8).await.check_weights("iterations_done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_under_bsp_goes_back_to_its_checkpoint_and_makes_every_round_once() {
    // The mean of ones is one: a round is one step.
    survives("bsp", 5).await.check_weights("barriers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_under_local_sgd_goes_back_to_its_checkpoint_and_counts_every_sample_once() {
    let Survived { summary, .. } = survives("local-sgd:4", 13).await;
    assert!(number(&summary, "barriers") > 0, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_shards_that_die_together_lose_and_repeat_nothing() {
    let mut cluster = Cluster::of(2, 3).worker_flags(WORKER).default_shard_silence().start().await;
    // It must not be over when the last ones have died.
    let epochs = 2 * EPOCHS;
    let changed = |train: &mut TrainSpec| {
        every_epoch(train);
        train.epochs = epochs;
    };
    let job = submit(&cluster, counting("both", "asp", EPOCH, changed)).await;
    for kill in 1..=3 {
        until_beyond(&cluster, &job, u64::from(kill)).await;
        let victim = kill as usize % cluster.workers.len();
        cluster.workers[victim].kill();
        kill_shard(&mut cluster, kill % 2);
        cluster.workers[victim] = cluster.spawn_worker(WORKER);
        cluster.until(&job, |s| number(s, "generation") > u64::from(kill)).await;
    }
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, EPOCH * u64::from(epochs));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_says_nothing_of_checkpoints_begins_anew_before_its_first_and_one_without_says_what_would_help()
 {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("without", "asp", 100_000, |train| train.checkpoint = None)).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    kill_shard(&mut cluster, 1);
    let summary = cluster.until_over(&job).await;
    assert_eq!((&*summary["state"], &*summary["code"]), ("failed", "E220"), "{summary:?}");
    assert!(summary["reason"].contains("checkpoint"), "{summary:?}");

    let job = submit(&cluster, counting("early", "asp", 8_000, |_| {})).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    kill_shard(&mut cluster, 1);
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, 8_000);
    assert_eq!(number(&summary, "generation"), 2, "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

/// As by default, but for the five minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_until_the_job_is_done_brings_it_back_and_is_gone_then() {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let until_done = |train: &mut TrainSpec| {
        every_epoch(train);
        train.checkpoint =
            Some(CheckpointSpec { until_done: true, ..CheckpointSpec::every_epochs(1).keep(1) });
    };
    let job = submit(&cluster, counting("until-done", "bsp", EPOCH, until_done)).await;
    until_beyond(&cluster, &job, 1).await;
    kill_shard(&mut cluster, 0);
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, EPOCH * u64::from(EPOCHS));
    assert_eq!(number(&summary, "generation"), 2, "{summary:?}");
    for shard in 0..2 {
        let folder = cluster.shard_folder(shard).join("checkpoints");
        eventually("its checkpoints are gone", async || fs::read_dir(&folder).unwrap().next().is_none())
            .await;
    }
}

/// How a shard ends that counts as lost before it comes back.
#[derive(Clone, Copy, PartialEq)]
enum Ended {
    Killed,
    InOrder,
}

/// A shard is away for longer than the engine takes it for alive, and the engine is another one meanwhile.
async fn outlives_a_loss(ended: Ended) -> BTreeMap<String, String> {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, counting("patient", "asp", EPOCH, every_epoch)).await;
    until_beyond(&cluster, &job, 1).await;
    match ended {
        Ended::Killed => cluster.shards[0].kill(),
        Ended::InOrder => {
            cluster.shards[0].signal("TERM");
            cluster.shards[0].wait();
        }
    }
    let waits =
        |s: &BTreeMap<String, String>| s["waiting_for"].contains("parameter shard s0, which counts as lost");
    cluster.until(&job, |s| waits(s) && number(s, "workers") == 0).await;
    assert!(cluster.print("jobs").contains("counts as lost"));
    assert!(cluster.print("explain patient").contains("counts as lost"));
    let again =
        cluster.client().replace_prepared(counting("patient", "asp", EPOCH, every_epoch)).await.unwrap();
    assert!(!again.is_new, "it is the job that waits");
    cluster.kill_engine();
    cluster.start_engine();
    let waiting = cluster.until(&job, waits).await;
    assert_eq!(waiting["state"], "running", "{waiting:?}");
    cluster.start_shard(0);
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), EPOCH * u64::from(EPOCHS), "{summary:?}");
    assert!(cluster.print("events patient").contains("shard_lost"));
    check_next_job_runs(&cluster, "next").await;
    summary
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shard_that_counts_as_lost_brings_its_job_back_to_the_checkpoint_when_it_is_there_again() {
    let summary = outlives_a_loss(Ended::Killed).await;
    assert_eq!(number(&summary, "generation"), 2, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_shard_that_counts_as_lost_undoes_nothing_when_it_is_there_again() {
    let summary = outlives_a_loss(Ended::InOrder).await;
    let undone = number(&summary, "samples_rolled_back");
    assert_eq!((number(&summary, "generation"), undone), (1, 0), "{summary:?}");
}

/// Of a job that trains, and of the same one when it is paused and a shard was killed and came back
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_asked_for_holds_what_is_trained_and_brings_it_back_when_it_is_paused() {
    // Some seconds, so that samples are left at the second checkpoint.
    let samples = 10 * EPOCH;
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("asked", "asp", samples, |_| {})).await;
    let trained = cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    let client = cluster.client();
    assert_eq!(client.keep_checkpoint(&job).await.unwrap(), 0);
    let kept = client.status(&job).await.unwrap().job;
    assert!(kept.checkpoint_samples.unwrap() >= number(&trained, "samples_applied"), "{kept:?}");
    client.pause(&job).await.unwrap();
    cluster.until(&job, |s| number(s, "workers") == 0).await;
    let number_of_last = client.keep_checkpoint(&job).await.unwrap();
    kill_shard(&mut cluster, 1);
    let back = cluster.until(&job, |s| number(s, "generation") == 2).await;
    assert_eq!(number(&back, "samples_rolled_back"), 0, "{number_of_last}: {back:?}");
    client.resume(&job).await.unwrap();
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, samples);
    check_next_job_runs(&cluster, "next").await;
}

/// The first seconds of two jobs, of which one trains and the other is next.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_a_checkpoint_yet_begin_anew_when_their_killed_shard_is_there_again() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let first = submit(&cluster, counting("first", "bsp", EPOCH, |_| {})).await;
    let second = submit(&cluster, counting("second", "asp", EPOCH, |_| {})).await;
    cluster.until(&first, |s| number(s, "samples_applied") > 100).await;
    cluster.shards[0].kill();
    cluster.until(&first, |s| s["waiting_for"].contains("if need be from its beginning")).await;
    cluster.until(&second, |s| s["waiting_for"].contains("like job `first`")).await;
    cluster.start_shard(0);
    for job in [&first, &second] {
        let summary = cluster.until_over(job).await;
        check_exact(&summary, EPOCH);
    }
    check_next_job_runs(&cluster, "next").await;
}

/// A machine with the engine and a shard ends, and comes back without the shard at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_a_new_engine_has_never_met_is_waited_for_like_one_that_it_lost() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, counting("both", "asp", EPOCH, every_epoch)).await;
    until_beyond(&cluster, &job, 1).await;
    cluster.kill_engine();
    cluster.shards[0].kill();
    cluster.start_engine();
    let waits = |s: &BTreeMap<String, String>| s["waiting_for"].contains("it was not there in the first 4 s");
    cluster.until(&job, |s| waits(s) && number(s, "workers") == 0).await;
    cluster.start_shard(0);
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, EPOCH * u64::from(EPOCHS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_keeps_no_checkpoints_fails_when_its_killed_shard_is_there_again() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, counting("gone", "bsp", EPOCH, |train| train.checkpoint = None)).await;
    cluster.until(&job, |s| number(s, "samples_applied") > 100).await;
    cluster.shards[0].kill();
    cluster.until(&job, |s| s["waiting_for"].contains("it keeps no checkpoints")).await;
    cluster.start_shard(0);
    let summary = cluster.until_over(&job).await;
    assert_eq!((&*summary["state"], &*summary["code"]), ("failed", "E220"), "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}

#[test]
fn a_shard_that_up_starts_again_brings_its_job_back() {
    let (waiting, dir) = (Runtime::new().unwrap(), folder());
    let up = Up::start(&dir, &["--workers", "2", "--shards", "2", "--step-ms", "2"]);
    let prepared = counting("supervised", "elastic-bsp:15", EPOCH, every_epoch);
    let (job, engine) = (prepared.spec.id.clone(), client(&up));
    waiting.block_on(engine.submit_prepared(prepared)).unwrap();
    wait_until("there is a checkpoint, and more than is in it", || {
        let view = waiting.block_on(engine.status(&job)).unwrap().job;
        view.checkpoint_samples.is_some_and(|kept| view.samples_applied > kept)
    });
    kill("KILL", up.about["processes"]["ps-1"].as_u64().unwrap().try_into().unwrap());
    let summary = until_over(&up, &waiting, &job);
    assert_eq!(summary.state, JobPhase::Done, "{summary:?}");
    assert_eq!((summary.generation, summary.samples_applied), (2, EPOCH * u64::from(EPOCHS)), "{summary:?}");
    let counts = counts(Path::new(summary.snapshot.as_ref().unwrap()));
    assert!(counts.iter().all(|&count| count == summary.iterations_done), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_cannot_be_read_makes_way_for_the_one_before() {
    let mut cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("damaged", "asp", EPOCH, every_epoch)).await;
    let before = stop_workers_beyond(&cluster, &job, 3).await;
    let mut kept: Vec<_> = fs::read_dir(cluster.shard_folder(1).join("checkpoints")).unwrap().collect();
    let dir = kept.pop().unwrap().unwrap().path();
    let newest = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some_and(|e| e == "checkpoint"));
    let number_of = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let newest = newest.max_by_key(|path| number_of(path)).unwrap();
    cluster.shards[0].kill();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    cluster.workers.iter().for_each(|worker| worker.signal("CONT"));
    cluster.start_shard(0);
    let generation = number(&before, "generation");
    cluster.until(&job, |s| number(s, "generation") >= generation + 2).await;
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, EPOCH * u64::from(EPOCHS));
    assert!(cluster.print("events damaged").contains("E439"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_done_leaves_the_checkpoint_of_its_end_until_it_is_deleted() {
    let cluster = Cluster::of(1, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit(&cluster, counting("tidy", "elastic-bsp:15", EPOCH, every_epoch)).await;
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, EPOCH * u64::from(EPOCHS));
    assert_eq!(summary["checkpoint_samples"], (EPOCH * u64::from(EPOCHS)).to_string(), "{summary:?}");
    let files = || {
        let jobs = fs::read_dir(cluster.shard_folder(0).join("checkpoints")).unwrap();
        let files = jobs.flat_map(|job| fs::read_dir(job.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    let is_checkpoint = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "checkpoint");
    wait_until("the others are gone", || files().iter().filter(is_checkpoint).count() == 1);
    cluster.client().delete(&job).await.unwrap();
    wait_until("nothing is left of it", || files().is_empty());
}
