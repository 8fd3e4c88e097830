//! A cluster whose functions run in the process of the tests.

use syncline::{
    Client, LocalCluster, LocalOptions,
    worker::{Throttle, WorkerBuilder, run},
};
use tokio::{sync::watch, task::JoinHandle};

/// Engine, two shards, workers that train and run models, and one with functions and without ONNX Runtime.
pub struct FunctionCluster {
    pub client: Client,
    pub cluster: LocalCluster,
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
}

impl FunctionCluster {
    /// With so many workers that have ONNX Runtime, and with these functions.
    pub async fn start(workers: usize, functions: WorkerBuilder) -> Self {
        let workers = vec![Throttle::default(); workers];
        let options = LocalOptions { workers, shards: 2, ..LocalOptions::default() };
        let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
        let options = functions.options(cluster.cluster()).unwrap();
        let (stop, stopped) = watch::channel(false);
        let worker = tokio::spawn(async move { run(options, stopped).await.unwrap() });
        Self { client: cluster.client(), cluster, stop, worker }
    }

    /// Drops the worker with the functions where it is.
    pub fn drop_worker(&self) {
        self.worker.abort();
    }

    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.worker.await.unwrap();
        self.cluster.stop().await.unwrap();
    }
}
