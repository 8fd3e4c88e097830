//! What draws random numbers in a model: each worker draws its own, and a job that is run again draws the
//! same.

use std::{collections::BTreeSet, fs};

use safetensors::SafeTensors;
use syncline::{JobPhase, Loss};
use syncline_onnx::{ElementType, GraphBuilder, attr_int, attr_ints};
use syncline_scheduler::spec::{DataSpec, Source};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

const WIDTH: usize = 64;

/// The mean of what a Dropout of a half leaves of a row of weights: where it drops, the gradient is 0.
fn model() -> Vec<u8> {
    let mut graph = GraphBuilder::new("dropout");
    let x = graph.input("x", ElementType::F32, &["batch".into(), WIDTH.into()]);
    let weight = graph.weight("weight", &[WIDTH], &[0.0; WIDTH]);
    let product = graph.op("Mul", &[&x, &weight], &[]);
    let dropped = graph.op("Dropout", &[&product], &[]);
    let along_row = [attr_ints("axes", &[1]), attr_int("keepdims", 0)];
    let loss = graph.op("ReduceMean", &[&dropped], &along_row);
    graph.output(&loss);
    graph.finish().to_bytes()
}

/// One round of two workers, each with a row of ones: for each weight how many of them did not drop it.
async fn kept(cluster: &LocalCluster, id: &str, seed: u64) -> Vec<u32> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ones.safetensors");
    let ones = [1f32; 2 * WIDTH].map(f32::to_le_bytes).concat();
    let tensor =
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, WIDTH], &ones).unwrap();
    fs::write(&path, safetensors::serialize([("x", tensor)], None).unwrap()).unwrap();
    let data = DataSpec::new(Source::safetensors(&path));
    let training = Training::new(Model::forward(model(), Loss::Output), data).with(|s| {
        (s.batch, s.min_workers, s.seed, s.learning_rate) = (1, 2, seed, Some(1.0));
        s.policy = "bsp".parse().unwrap();
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    let prepared = submit::prepare(cluster.runtime(), &job).unwrap();
    let id = prepared.spec.id.clone();
    cluster.client().submit_prepared(prepared).await.unwrap();
    let view = cluster.client().wait(&id, |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    let file = fs::read(view.job.snapshot.unwrap()).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let numbers = tensors.tensor("weight").unwrap().data().chunks_exact(4);
    let weights = numbers.map(|number| f32::from_le_bytes(number.try_into().unwrap()));
    weights.map(|weight| (-weight * WIDTH as f32).round() as u32).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_drop_different_values_and_the_same_again_when_the_job_is_run_again() {
    let options = LocalOptions::workers(2);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let first = kept(&cluster, "first", 3).await;
    // By none, by one of the two, and by both.
    assert_eq!(first.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]), "{first:?}");
    assert_eq!(kept(&cluster, "again", 3).await, first);
    assert_ne!(kept(&cluster, "other", 4).await, first);
    cluster.stop().await.unwrap();
}
