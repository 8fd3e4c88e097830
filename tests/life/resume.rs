//! A checkpoint as a file: a job goes on from it elsewhere, with other shards and workers.

use std::{fs, path::Path, process::Output};

use syncline::JobGraph;
use syncline_scheduler::spec::TrainSpec;
use syncline_workers::submit;

use crate::{
    checkpoints::{every_epoch, until_beyond},
    cluster::{Cluster, runtime},
    counting,
    jobs::{check_exact, check_next_job_runs, counting as counting_job, submit as submit_prepared},
};

const EPOCH: u64 = 2_003;
/// Epochs of a job that outlives the commands which ask for its checkpoints, and of the one that goes on from
/// there.
const BEFORE: u32 = 14;
const AFTER: u32 = 16;
const WORKER: &str = "--step-ms 2 --slowdown 1";

/// The counting job with more epochs, which goes on from a file.
fn going_on(id: &str, policy: &str, file: &Path, epochs: u32) -> JobGraph {
    let mut graph = counting::job(id, policy.parse().unwrap(), EPOCH, 10, epochs, 0);
    graph.trainings_mut().for_each(|training| training.settings.resume = Some(file.to_owned()));
    graph
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_on_another_cluster_with_other_shards_and_workers_and_counts_every_sample_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.safetensors");
    let checkpoint = format!("checkpoint before {}", file.display());
    {
        let cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
        let long = |train: &mut TrainSpec| {
            every_epoch(train);
            train.epochs = BEFORE;
        };
        let job = submit_prepared(&cluster, counting_job("before", "asp", EPOCH, long)).await;
        until_beyond(&cluster, &job, 2).await;
        let text = cluster.print(&checkpoint);
        // It trains on while the command starts.
        let of_epoch = |epoch: u32| text.contains(&format!("epoch {epoch}"));
        assert!(text.starts_with("checkpoint ") && (2..=BEFORE).any(of_epoch), "{text}");
        // A file that is there is not replaced unasked, and a canceled job still has its checkpoints.
        assert!(told(&cluster.ask(&cluster.engines, &checkpoint)).contains("[E536]"));
        cluster.print("cancel before");
        cluster.until_over(&job).await;
        cluster.print(&format!("{checkpoint} --force"));
    }
    let cluster = Cluster::of(3, 1).default_shard_silence().start().await;
    let prepared = submit::prepare(&runtime(), &going_on("after", "asp", &file, AFTER)).unwrap();
    let job = submit_prepared(&cluster, prepared).await;
    let summary = cluster.until_over(&job).await;
    check_exact(&summary, u64::from(AFTER) * EPOCH);
    assert!(summary["resumed_from"].starts_with("before/"), "{summary:?}");
    assert!(cluster.print("status after").contains("went on from"));
    let unknown = told(&cluster.ask(&cluster.engines, "checkpoint after nowhere.safetensors"));
    assert!(unknown.contains("[E146]"), "{unknown}");
    check_next_job_runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_done_is_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("end.safetensors");
    let cluster = Cluster::of(2, 2).worker_flags(WORKER).default_shard_silence().start().await;
    let job = submit_prepared(&cluster, counting_job("before", "elastic-bsp:15", EPOCH, every_epoch)).await;
    check_exact(&cluster.until_over(&job).await, 7 * EPOCH);
    let text = cluster.print(&format!("checkpoint before {}", file.display()));
    assert!(text.contains("epoch 7"), "{text}");
    let longer = submit::prepare(&runtime(), &going_on("longer", "asp", &file, 9)).unwrap();
    let longer = submit_prepared(&cluster, longer).await;
    check_exact(&cluster.until_over(&longer).await, 9 * EPOCH);
}

#[test]
fn a_file_that_does_not_fit_the_training_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept.safetensors");
    let refused = |file: &Path| {
        submit::prepare(&runtime(), &going_on("refused", "asp", file, 9)).unwrap_err().to_string()
    };
    assert!(refused(&file).contains("[E360]"));
    for bytes in [&b""[..], b"no checkpoint", &[0xff; 64]] {
        fs::write(&file, bytes).unwrap();
        let text = refused(&file);
        assert!(text.contains("[E368]") && text.contains("safetensors"), "{text}");
    }
    // Weights alone say nothing of how far a training was.
    let weights = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]).unwrap();
    fs::write(&file, safetensors::serialize([("w", weights)], None).unwrap()).unwrap();
    assert!(refused(&file).contains("it holds weights and no checkpoint"));
}
