//! Batches in pieces, through whole jobs: what they learn is what whole batches learn.

use std::{fs, path::Path};

use safetensors::SafeTensors;
use syncline::{Loss, LossOptions, Metric};
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64};
use syncline_rpc::status::JobStatus;
use syncline_scheduler::spec::{DataSpec, Source, Split};
use syncline_workers::{
    local::LocalCluster,
    submit::{self, JobGraph, Model, Settings, Training},
};

use crate::trained::{cluster, trained};

const FEATURES: usize = 2;
/// Rows of the table.
const ROWS: usize = 40;
const WIDTH: usize = 5;
/// No multiple of any batch here.
const SAMPLES: usize = 170;

/// Two features and a word each, of one of three classes.
fn data(dir: &Path) -> DataSpec {
    let path = dir.join("points.safetensors");
    let mut random = SplitMix64::new(3);
    let x: Vec<f32> = (0..SAMPLES * FEATURES).map(|_| random.normal() as f32).collect();
    let words: Vec<i64> = (0..SAMPLES).map(|n| (n * n % ROWS) as i64).collect();
    let class = |(x, word): (&[f32], &i64)| i64::from(x[0] > x[1]) + i64::from(word % 4 == 0);
    let labels: Vec<i64> = x.chunks(FEATURES).zip(&words).map(class).collect();
    let [x, words, labels] = [
        x.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>(),
        words.iter().flat_map(|number| number.to_le_bytes()).collect(),
        labels.iter().flat_map(|number| number.to_le_bytes()).collect(),
    ];
    let view = |dtype, shape, data| safetensors::tensor::TensorView::new(dtype, shape, data).unwrap();
    let tensors = [
        ("x", view(safetensors::Dtype::F32, vec![SAMPLES, FEATURES], &x)),
        ("word", view(safetensors::Dtype::I64, vec![SAMPLES], &words)),
        ("label", view(safetensors::Dtype::I64, vec![SAMPLES], &labels)),
    ];
    fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    DataSpec { split: Split::TestEvery(10), ..DataSpec::new(Source::safetensors(path.display().to_string())) }
}

/// The features and the row of a table that the word names, before three classes.
fn model() -> Model {
    let mut random = SplitMix64::new(7);
    let mut numbers = |count: usize| (0..count).map(|_| random.normal() as f32 * 0.3).collect::<Vec<f32>>();
    let mut graph = GraphBuilder::new("words");
    let x = graph.input("x", ElementType::F32, &["batch".into(), FEATURES.into()]);
    let word = graph.input("word", ElementType::I64, &["batch".into()]);
    let w = graph.weight("w", &[FEATURES, WIDTH], &numbers(FEATURES * WIDTH));
    let table = graph.weight("table", &[ROWS, WIDTH], &numbers(ROWS * WIDTH));
    let head = graph.weight("head", &[WIDTH, 3], &numbers(WIDTH * 3));
    let row = graph.op("Gather", &[&table, &word], &[]);
    let hidden = graph.op("MatMul", &[&x, &w], &[]);
    let hidden = graph.op("Add", &[&hidden, &row], &[]);
    let hidden = graph.op("Tanh", &[&hidden], &[]);
    let scores = graph.op("MatMul", &[&hidden, &head], &[]);
    graph.output(&scores);
    Model::forward(graph.finish().to_bytes(), Loss::SoftmaxCrossEntropy).with_loss_options(LossOptions {
        class_weights: vec![0.5, 1.0, 4.0].into(),
        ..LossOptions::default()
    })
}

fn job(id: &str, data: &DataSpec, change: impl FnOnce(&mut Settings)) -> JobGraph {
    let training = Training::new(model(), data.clone()).with(|s| {
        s.learning_rate = Some(0.2);
        (s.batch, s.epochs, s.clip_norm) = (20, 4, Some(0.5));
        change(s);
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.evaluate("test", &train);
    job.snapshot("weights", &train);
    job
}

/// Trains, and returns what the status says and all trained numbers.
async fn train(cluster: &LocalCluster, graph: &JobGraph) -> (JobStatus, Vec<f32>) {
    let job = trained(cluster, graph).await;
    let file = fs::read(job.snapshot.as_ref().unwrap()).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let numbers = ["head", "table", "w"].map(|name| tensors.tensor(name).unwrap().data().to_vec()).concat();
    let (numbers, _) = numbers.as_chunks();
    (job, numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_learn_what_whole_batches_learn() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    #[rustfmt::skip]
    let cases = [
        // policy, workers, pieces, tables whose rows travel
        ("bsp",         2, 7,  ""),
        ("asp",         1, 6,  ""),
        ("asp",         1, 1,  "table"),
        ("bsp",         2, 3,  "table"),
        ("local-sgd:3", 2, 4,  ""),
        ("diloco:2",    2, 8,  ""),
    ];
    for (policy, workers, micro_batch, table) in cases {
        let cluster = cluster(2, workers).await;
        let mut ends = Vec::new();
        for most in [None, Some(micro_batch)] {
            let id = format!("{}-{}-{}", policy.replace(':', "-"), table.len(), most.unwrap_or(0));
            let graph = job(&id, &data, |s| {
                (s.policy, s.micro_batch, s.min_workers) = (policy.parse().unwrap(), most, workers as u32);
                s.sparse = if table.is_empty() { Vec::new() } else { vec![table.to_owned()] };
            });
            let (job, numbers) = train(&cluster, &graph).await;
            assert_eq!((job.micro_batch, job.samples_applied), (most, 4 * 153), "{id}");
            ends.push((job.test[Metric::Loss].unwrap(), numbers));
        }
        let [(loss, whole), (of_pieces, pieces)] = &ends[..] else { unreachable!("two jobs") };
        let far = whole.iter().zip(pieces).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 2e-5 && whole.len() == pieces.len(), "{policy}, {table}: {far}");
        assert!((loss - of_pieces).abs() < 1e-5, "{policy}, {table}: {loss}, {of_pieces}");
        cluster.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_takes_pieces_and_those_without_effect_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let cluster = cluster(2, 2).await;
    let policies = ["ssp:1", "dssp:1:4", "lb-bsp", "elastic-bsp:4", "elastic-lb:4", "auto"];
    for (n, policy) in policies.into_iter().enumerate() {
        let graph = job(&format!("policy-{n}"), &data, |s| {
            (s.policy, s.micro_batch, s.min_workers) = (policy.parse().unwrap(), Some(3), 2);
        });
        let (job, numbers) = train(&cluster, &graph).await;
        assert_eq!(job.samples_applied, 4 * 153, "{policy}");
        // Of few samples, in batches that the speeds of the moment make: that it goes nowhere far is all that
        // can be said.
        assert!(
            job.test[Metric::Loss].unwrap() < 2.0 && numbers.iter().all(|x| x.is_finite()),
            "{policy}: {job:?}"
        );
    }
    for (policy, micro_batch, is_idle) in
        [("bsp", 19, false), ("bsp", 20, true), ("asp", 64, true), ("lb-bsp", 20, false), ("auto", 64, false)]
    {
        let graph = job("idle", &data, |s| {
            (s.policy, s.micro_batch) = (policy.parse().unwrap(), Some(micro_batch));
        });
        let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
        let said = prepared.warnings.iter().any(|said| said.contains("has no effect"));
        assert_eq!(said, is_idle, "{policy}, {micro_batch}: {:?}", prepared.warnings);
    }
    cluster.stop().await.unwrap();
}
