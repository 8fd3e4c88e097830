//! A Redis that does not know for a while what shards hold: it was another one, or an old copy, until
//! somebody saw that.

use std::{ffi::OsStr, fs, path::Path};

use syncline::{ClientError, TaskGraph};
use syncline_rpc::status::EngineStatus;
use syncline_scheduler::{ids::JobId, spec::CheckpointSpec};
use syncline_workers::submit::PreparedJob;
use tokio::sync::mpsc;

use crate::{
    cluster::{Cluster, eventually, number, number_if_any},
    graphs::{Expected, HOLD, function_worker},
    jobs::{check_exact, check_next_job_runs, counting, submit},
    replicas::{followed, shard},
    store::{go_back, lag_from_now},
};

const SAMPLES: u64 = 4_000;
const ENDLESS: u64 = 1_000_000;
const WORKER: &str = "--step-ms 5 --slowdown 1";

/// One that keeps no checkpoints: it goes on where it was, or not at all.
fn unknown(samples: u64) -> PreparedJob {
    counting("unknown", "asp", samples, |train| train.checkpoint = None)
}

/// How many jobs lie in this state directory that were set aside.
fn count_aside(state_dir: &Path) -> usize {
    let files = fs::read_dir(state_dir.join("jobs")).unwrap();
    files.filter(|file| file.as_ref().unwrap().path().extension() == Some(OsStr::new("forgotten"))).count()
}

/// Every shard has written down so many jobs.
async fn until_set_aside(cluster: &Cluster, jobs: usize) {
    eventually("the shards have set aside what Redis does not know", async || {
        (0..2).all(|shard| count_aside(&cluster.shard_folder(shard)) == jobs)
    })
    .await;
}

async fn until_trained(cluster: &Cluster, job: &JobId, samples: u64) {
    let summary = cluster.until(job, |s| number(s, "samples_applied") > samples).await;
    assert_eq!((&*summary["state"], number(&summary, "generation")), ("running", 1), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_redis_does_not_know_for_a_while_goes_on_where_it_was_also_where_a_shard_starts_again() {
    for starts_again in [false, true] {
        let mut cluster = Cluster::start(2, 2, WORKER).await;
        let job = submit(&cluster, unknown(SAMPLES)).await;
        until_trained(&cluster, &job, SAMPLES / 4).await;
        // The other database of this server is empty.
        go_back(&mut cluster).await;
        until_set_aside(&cluster, 1).await;
        if starts_again {
            cluster.restart_shard(1, || {});
            check_next_job_runs(&cluster, "meanwhile").await;
        }
        go_back(&mut cluster).await;
        let summary = cluster.until_over(&job).await;
        check_exact(&summary, SAMPLES);
        assert_eq!(number(&summary, "generation"), 1, "{summary:?}");
        check_next_job_runs(&cluster, "next").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_of_one_name_each_go_on_where_they_were_once_their_redis_is_back() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let job = submit(&cluster, unknown(ENDLESS)).await;
    until_trained(&cluster, &job, 500).await;
    go_back(&mut cluster).await;
    submit(&cluster, unknown(ENDLESS)).await;
    until_trained(&cluster, &job, 100).await;
    until_set_aside(&cluster, 1).await;
    let trained = |summary| number(&summary, "samples_applied");
    let of_second = trained(cluster.summary(&job).await);
    go_back(&mut cluster).await;
    let of_first = trained(cluster.until(&job, |s| number(s, "samples_applied") > 0).await);
    assert!(of_first >= 500, "{of_first}");
    until_trained(&cluster, &job, of_first + 100).await;
    // With a start in between: the file of one job, and the other in memory until then.
    cluster.restart_shard(0, || {});
    go_back(&mut cluster).await;
    until_trained(&cluster, &job, of_second + 100).await;
    cluster.client().cancel(&job).await.unwrap();
    cluster.until_over(&job).await;
    check_next_job_runs(&cluster, "next").await;
}

/// Of two workers one has functions, and the other one trains. From the Redis that knows nothing each gets the
/// number that the other has in the right one.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_another_redis_has_numbered_in_another_order_are_not_taken_for_each_other() {
    let mut cluster = Cluster::start(1, 0, WORKER).await;
    let with_functions = function_worker(&cluster);
    cluster.until_there(|there| there.len() == 1).await;
    let _trains = cluster.spawn_worker(WORKER);
    let training = submit(&cluster, unknown(ENDLESS)).await;
    until_trained(&cluster, &training, 100).await;
    let folder = cluster.dir.path().to_owned();
    let mut graph = TaskGraph::new("held");
    let held = graph.call(HOLD, (folder.display().to_string(), 0));
    let job = cluster.client().submit_tasks(&graph).await.unwrap();
    eventually("the call has begun", async || folder.join("began-0").exists()).await;
    // Whoever waits for it meets the wrong Redis as well.
    let (run, client) = (job.clone(), cluster.client());
    let waits = tokio::spawn(async move { run.get(&held).await });
    let id = job.id().clone();
    let (tell, mut told) = mpsc::unbounded_channel();
    let seen = move |_: &_| _ = tell.send(());
    let watches = tokio::spawn(async move { client.wait(&id, seen).await });
    told.recv().await.unwrap();
    let mut events = cluster.client().watch(job.id(), None);
    assert!(events.next().await.unwrap().is_some());
    with_functions.signal("STOP");
    go_back(&mut cluster).await;
    cluster.until_there(|there| there.len() == 1).await;
    // And so does whoever begins to wait now.
    let run = job.clone();
    let waits_late = tokio::spawn(async move { run.wait(|_| ()).await });
    let follows = tokio::spawn(async move {
        while events.next().await?.is_some() {}
        Ok::<_, ClientError>(())
    });
    with_functions.signal("CONT");
    cluster.until_there(|there| there.len() == 2).await;
    go_back(&mut cluster).await;
    fs::write(folder.join("go"), "").unwrap();
    assert_eq!(waits.await.unwrap().unwrap(), 7);
    watches.await.unwrap().unwrap();
    waits_late.await.unwrap().unwrap();
    follows.await.unwrap().unwrap();
    Expected::submit(&cluster, "calls", None).await.check(&cluster).await;
    let trained = number(&cluster.summary(&training).await, "samples_applied");
    until_trained(&cluster, &training, trained + 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_failed_by_an_old_copy_of_redis_goes_on_from_the_newer_one() {
    let mut cluster = Cluster::start(2, 2, WORKER).await;
    let often = |train: &mut syncline_scheduler::spec::TrainSpec| {
        train.checkpoint = Some(CheckpointSpec::every_s(1));
    };
    let job = submit(&cluster, counting("copied", "asp", ENDLESS, often)).await;
    let newest = |s: &_| number_if_any(s, "checkpoint");
    cluster.until(&job, |s| newest(s).is_some()).await;
    lag_from_now(&cluster).await;
    let known = newest(&cluster.summary(&job).await);
    cluster.until(&job, |s| newest(s) > known.map(|known| known + 2)).await;
    let trained = number(&cluster.summary(&job).await, "samples_applied");
    go_back(&mut cluster).await;
    let failed = cluster.until_over(&job).await;
    assert_eq!(failed["code"], "E646", "{failed:?}");
    until_set_aside(&cluster, 1).await;
    go_back(&mut cluster).await;
    until_trained(&cluster, &job, trained + 100).await;
    cluster.client().cancel(&job).await.unwrap();
    cluster.until_over(&job).await;
    check_next_job_runs(&cluster, "next").await;
}

/// Every shard has a standby that could take over with everything.
async fn until_whole(cluster: &Cluster) {
    eventually("each standby has everything", async || {
        let about = cluster.client().engine().await;
        let problem = |about: EngineStatus| about.idle.or(about.shard_problem).or(about.standby_problem);
        about.is_ok_and(|about| problem(about).is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_set_aside_outlives_the_machine_that_served_it() {
    let mut cluster =
        Cluster::of(1, 2).worker_flags(WORKER).replicated().default_shard_silence().start().await;
    until_whole(&cluster).await;
    let job = submit(&cluster, unknown(ENDLESS)).await;
    let (primary, standby) = followed(&cluster, &job, 0).await.unwrap();
    until_trained(&cluster, &job, 500).await;
    go_back(&mut cluster).await;
    eventually("both processes have set aside what Redis does not know", async || {
        [&primary, &standby].iter().all(|address| count_aside(&cluster.shard_dir(address)) == 1)
    })
    .await;
    until_whole(&cluster).await;
    cluster.replace_machine(&primary);
    eventually("the other one serves", async || shard(&cluster, 0).await.get("address") == Some(&standby))
        .await;
    go_back(&mut cluster).await;
    let trained = number(&cluster.summary(&job).await, "samples_applied");
    until_trained(&cluster, &job, trained + 100).await;
    assert_eq!(count_aside(&cluster.shard_dir(&standby)), 0, "what has gone on is not read again");
    cluster.client().cancel(&job).await.unwrap();
    let summary = cluster.until_over(&job).await;
    let went_back = (number(&summary, "generation"), number(&summary, "samples_rolled_back"));
    assert_eq!(went_back, (1, 0), "{summary:?}");
    check_next_job_runs(&cluster, "next").await;
}
