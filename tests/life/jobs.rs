//! Jobs to run through a cluster, and what must be true of them at the end.

use std::{collections::BTreeMap, fs, path::Path};

use syncline::Loss;
use syncline_onnx as onnx;
use syncline_scheduler::{
    ids::JobId,
    spec::{DataSpec, Source, TrainSpec},
};
use syncline_workers::client::{Client, ClientError};
use syncline_workers::submit::{self, JobGraph, Model, PreparedJob, Training};

use crate::{
    cluster::{Cluster, number, runtime},
    counting,
};

/// A counting job over imaginary samples.
pub fn counting(id: &str, policy: &str, samples: u64, change: impl FnOnce(&mut TrainSpec)) -> PreparedJob {
    let graph = counting::job(id, policy.parse().unwrap(), samples, 10, 1, 0);
    let mut prepared = submit::prepare(&runtime(), &graph).unwrap();
    for node in &mut prepared.spec.nodes {
        if let syncline_scheduler::spec::NodeKind::Train(train) = &mut node.kind {
            change(train);
            return prepared;
        }
    }
    unreachable!("a counting job trains")
}

/// A job that needs the file `data`, which is written here: 48 training samples an epoch.
pub fn with_data(id: &str, data: &Path, epochs: u32) -> PreparedJob {
    let lines: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 3)).collect();
    fs::write(data, lines).unwrap();
    let source = Source::csv(data.to_string_lossy().into_owned());
    let model = Model::forward(onnx::mlp(&[2, 8, 3], 1).to_bytes(), Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, DataSpec::new(source)).with(|s| {
        s.batch = 4;
        s.epochs = epochs;
        s.policy = "asp".parse().unwrap();
    });
    let graph = {
        let mut job = JobGraph::new(id);
        let train = job.train("train", training);
        job.snapshot("weights", &train);
        job
    };
    submit::prepare(&runtime(), &graph).unwrap()
}

/// Submits a job as soon as all shards are there.
pub async fn submit(cluster: &Cluster, prepared: PreparedJob) -> JobId {
    let job = prepared.spec.id.clone();
    let client = cluster.client();
    client.shards().await.unwrap();
    client.submit_prepared(prepared).await.unwrap();
    job
}

/// The job has counted every sample once, in its weights too.
#[track_caller]
pub fn check_exact(summary: &BTreeMap<String, String>, samples: u64) {
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(number(summary, "samples_applied"), samples, "{summary:?}");
    assert_eq!(summary["epochs_complete"], summary["epochs"], "{summary:?}");
    let counts = counting::counts(Path::new(&summary["snapshot"]));
    let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let (done, torn) = (number(summary, "iterations_done"), number(summary, "iterations_torn"));
    let barriers = number(summary, "barriers");
    match summary["policy"].starts_with("bsp") {
        // The mean of ones is one: a round is one step, whoever took part.
        true => assert!(high <= barriers && high - low <= torn, "{barriers} barriers, weights {low}..{high}"),
        false => {
            assert!(low >= done && high <= done + torn, "{done} done, {torn} torn, weights {low}..{high}")
        }
    }
}

/// The cluster is well: a further job runs to its end.
pub async fn check_next_job_runs(cluster: &Cluster, id: &str) {
    let job = submit(cluster, counting(id, "bsp", 100, |_| {})).await;
    check_exact(&cluster.until_over(&job).await, 100);
}

/// What stands in the way, as `status` shows it.
pub async fn notes(client: &Client, job: &JobId) -> Result<Vec<String>, ClientError> {
    Ok(client.status(job).await?.notes)
}
