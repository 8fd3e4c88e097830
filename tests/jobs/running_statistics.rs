//! Running statistics of BatchNormalization through whole jobs: what the shards hold at the end is what the
//! workers saw, under every way to merge it.
//!
//! Every sample has the same features, so each batch has mean (3, -2) and variance (0, 0) whoever computes
//! it, and k steps of momentum 0.9 take a running mean from 0 to (1 - 0.9^k) of it.

use std::{fs, path::Path};

use safetensors::SafeTensors;
use syncline::{JobPhase, Loss};
use syncline_onnx::{ElementType, GraphBuilder};
use syncline_scheduler::spec::{DataSpec, Optimizer, Source, Split};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

const FEATURES: [f32; 2] = [3.0, -2.0];
const KEPT: f64 = 0.9;
/// Iterations of each of the two workers.
const STEPS: i32 = 12;
const BATCH: u32 = 4;

/// Normalizes two features and tells two classes apart.
fn model() -> Vec<u8> {
    let mut graph = GraphBuilder::new("normalized");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let inputs = [
        graph.weight("norm.weight", &[2], &[1.0; 2]),
        graph.weight("norm.bias", &[2], &[0.5; 2]),
        graph.weight("norm.mean", &[2], &[0.0; 2]),
        graph.weight("norm.variance", &[2], &[1.0; 2]),
    ];
    let [scale, bias, mean, variance] = &inputs;
    let y = graph.op("BatchNormalization", &[&x, scale, bias, mean, variance], &[]);
    let w = graph.weight("fc.weight", &[2, 2], &[0.1, -0.1, 0.2, 0.3]);
    let y = graph.op("MatMul", &[&y, &w], &[]);
    graph.output(&y);
    graph.finish().to_bytes()
}

fn data(dir: &Path) -> DataSpec {
    let path = dir.join("points.csv");
    let train = 2 * STEPS as usize * BATCH as usize;
    let lines = (0..train * 5 / 4).map(|i| format!("{},{},{}\n", FEATURES[0], FEATURES[1], i % 2));
    fs::write(&path, lines.collect::<String>()).unwrap();
    let path = path.to_string_lossy().into_owned();
    let split = Split::TestEvery(5);
    DataSpec { split, ..DataSpec::new(Source::csv(path)) }
}

fn tensor(file: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let data = file.tensor(name).unwrap().data().to_vec();
    data.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

/// Share of the way that every running statistic has gone, which must be the same for all four.
fn way_gone(snapshot: &[u8], policy: &str) -> f64 {
    let file = SafeTensors::deserialize(snapshot).unwrap();
    let (mean, variance) = (tensor(&file, "norm.mean"), tensor(&file, "norm.variance"));
    let ways = [mean[0] / 3.0, mean[1] / -2.0, 1.0 - variance[0], 1.0 - variance[1]];
    assert!(ways.iter().all(|way| (way - ways[0]).abs() < 1e-5), "{policy}: {ways:?}");
    ways[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_end_with_the_statistics_that_the_workers_saw_under_every_policy() {
    let options = LocalOptions::workers(2);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let gone = |steps: i32| 1.0 - KEPT.powi(steps);
    // A push of one of two workers goes half the way of its step, from values that miss some pushes of the
    // other.
    let (least, most) = (gone(STEPS / 2), gone(2 * STEPS));
    #[rustfmt::skip]
    let cases = [
        // policy, least, most
        ("bsp",                          gone(STEPS), gone(STEPS)),
        ("local-sgd:4",                  gone(STEPS), gone(STEPS)),
        ("diloco:4",                     gone(STEPS), gone(STEPS)),
        // A worker whose share is one sample leaves them as they are.
        ("lb-bsp",                       least,       gone(STEPS)),
        ("asp",                          least,       most),
        ("ssp:1",                        least,       most),
        ("elastic-bsp:4",                least,       most),
        // All iterations of a superstep count as one.
        ("elastic-bsp:4+update=barrier", gone(1),     gone(STEPS)),
    ];
    for (index, (policy, least, most)) in cases.into_iter().enumerate() {
        let model = Model::forward(model(), Loss::SoftmaxCrossEntropy);
        let training = Training::new(model, data.clone()).with(|s| {
            s.policy = policy.parse().unwrap();
            s.batch = BATCH;
            s.min_workers = 2;
            s.clip_norm = Some(1e-3);
            s.optimizer = Optimizer::Momentum { momentum: 0.9, nesterov: true, weight_decay: 0.1 };
            s.learning_rate = Some(0.1);
        });
        let graph = {
            let mut job = JobGraph::new(format!("statistics-{index}"));
            let train = job.train("train", training);
            job.evaluate("test", &train);
            job.snapshot("weights", &train);
            job
        };
        let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
        let id = prepared.spec.id.clone();
        cluster.client().submit_prepared(prepared).await.unwrap();
        let view = cluster.client().wait(&id, |_| {}).await.unwrap();
        assert_eq!(view.job.state, JobPhase::Done, "{policy}: {:?}", view.job);
        let way = way_gone(&fs::read(view.job.snapshot.unwrap()).unwrap(), policy);
        assert!((least - 1e-5..=most + 1e-5).contains(&way), "{policy}: {way}, expected {least} to {most}");
    }
    cluster.stop().await.unwrap();
}
