//! A cluster of so many shards and workers, and a job that is trained on it to its end.

use syncline::JobPhase;
use syncline_rpc::status::JobStatus;
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph},
    worker::Throttle,
};

pub async fn cluster(shards: u32, workers: usize) -> LocalCluster {
    let options =
        LocalOptions { workers: vec![Throttle::default(); workers], shards, ..LocalOptions::default() };
    LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap()
}

/// Trains, and returns what the status says in the end.
pub async fn trained(cluster: &LocalCluster, graph: &JobGraph) -> JobStatus {
    let prepared = submit::prepare(cluster.runtime(), graph).unwrap();
    let id = prepared.spec.id.clone();
    cluster.client().submit_prepared(prepared).await.unwrap();
    let view = cluster.client().wait(&id, |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    view.job
}
