//! Clusters on a folder that stays: a stop keeps what its shards hold.

use std::{
    fs::{self, File},
    path::Path,
    time::SystemTime,
};

use syncline::{JobId, Loss};
use syncline_onnx as onnx;
use syncline_scheduler::spec::{DataSpec, Source};
use syncline_workers::{
    local::{LocalCluster, LocalError, LocalOptions},
    submit::{self, JobGraph, Model, Training},
    worker::Throttle,
};
use tokio::runtime::Runtime;

use crate::waiting::eventually;

async fn start(state_dir: &Path) -> Result<LocalCluster, LocalError> {
    let options = LocalOptions {
        workers: vec![Throttle::default()],
        shards: 2,
        state_dir: Some(state_dir.to_owned()),
        ..LocalOptions::default()
    };
    LocalCluster::start(options).await
}

/// Begins a job that no test sees the end of.
async fn begin_endless(cluster: &LocalCluster, dir: &Path) -> JobId {
    let data = dir.join("data.csv");
    fs::write(&data, "1,2,0\n2,1,1\n".repeat(8)).unwrap();
    let data = DataSpec::new(Source::csv(data.to_string_lossy().into_owned()));
    let model = Model::forward(onnx::mlp(&[2, 8, 2], 1).to_bytes(), Loss::SoftmaxCrossEntropy);
    let mut graph = JobGraph::new("endless");
    graph.train(
        "train",
        Training::new(model, data).with(|settings| {
            settings.batch = 4;
            settings.epochs = 1_000_000;
        }),
    );
    let id = cluster
        .client()
        .submit_prepared(submit::prepare(cluster.runtime(), &graph).unwrap())
        .await
        .unwrap()
        .id;
    eventually("the job trains", async || iterations(cluster, &id).await > 0).await;
    id
}

async fn iterations(cluster: &LocalCluster, id: &JobId) -> u64 {
    cluster.client().status(id).await.unwrap().job.iterations_done
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_takes_no_job_for_a_moment_loses_none_at_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let cluster = start(&state_dir).await.unwrap();
    let id = begin_endless(&cluster, dir.path()).await;
    // A folder where the file should be written.
    let jobs = state_dir.join("shard-0/jobs");
    let in_the_way = jobs.join(format!("{id}.job"));
    fs::create_dir(&in_the_way).unwrap();
    File::open(&jobs).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let stopping = tokio::spawn(cluster.stop());
    // What is begun changes the folder, and goes where it cannot be ended.
    let failed_once = || {
        let changed = fs::metadata(&jobs).unwrap().modified().unwrap() != SystemTime::UNIX_EPOCH;
        changed && fs::read_dir(&jobs).unwrap().count() == 1
    };
    eventually("shard 0 begins to keep the job, and fails", async || failed_once()).await;
    fs::remove_dir(&in_the_way).unwrap();
    stopping.await.unwrap().unwrap();
    assert!(in_the_way.is_file() && state_dir.join(format!("shard-1/jobs/{id}.job")).is_file());
    goes_on(&state_dir, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_does_not_start_costs_the_others_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let cluster = start(&state_dir).await.unwrap();
    let id = begin_endless(&cluster, dir.path()).await;
    cluster.stop().await.unwrap();
    let of_first = state_dir.join(format!("shard-0/jobs/{id}.job"));
    let misplaced = state_dir.join("shard-1/jobs/other.job");
    fs::copy(&of_first, &misplaced).unwrap();
    assert_eq!(start(&state_dir).await.err().unwrap().code(), "E427");
    assert!(of_first.is_file());
    fs::remove_file(misplaced).unwrap();
    goes_on(&state_dir, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_nobody_waits_for_any_more_costs_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let cluster = start(&state_dir).await.unwrap();
    let id = begin_endless(&cluster, dir.path()).await;
    cluster.stop().await.unwrap();
    let of_each = [0, 1].map(|shard| state_dir.join(format!("shard-{shard}/jobs/{id}.job")));
    let mut starting = Box::pin(start(&state_dir));
    let mut started = None;
    while of_each[0].exists() && started.is_none() {
        tokio::select! {
            biased;
            cluster = &mut starting => started = Some(cluster.unwrap()),
            () = tokio::task::yield_now() => {}
        }
    }
    // Shard 0 has its job in memory alone.
    match started {
        None => drop(starting),
        Some(cluster) => cluster.stop().await.unwrap(),
    }
    let are_kept = || of_each.iter().all(|file| file.is_file());
    eventually("the shards keep the job", async || are_kept()).await;
    goes_on(&state_dir, &id).await;
}

#[test]
fn a_cluster_whose_runtime_is_gone_keeps_its_jobs_where_another_one_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (cluster, id) = first.block_on(async {
        let cluster = start(&state_dir).await.unwrap();
        let id = begin_endless(&cluster, dir.path()).await;
        (cluster, id)
    });
    first.shutdown_background();
    second.block_on(async {
        cluster.stop().await.unwrap();
        goes_on(&state_dir, &id).await;
    });
}

/// A cluster that starts there trains the job.
async fn goes_on(state_dir: &Path, id: &JobId) {
    let again = start(state_dir).await.unwrap();
    let before = iterations(&again, id).await;
    eventually("the job goes on", async || iterations(&again, id).await > before).await;
    again.stop().await.unwrap();
}
