//! Groups of parameters through whole jobs: the numbers of PyTorch's parameter groups, and each policy's
//! steps with them.

use std::{fs, path::Path};

use safetensors::SafeTensors;
use syncline::{Loss, ParameterGroup};
use syncline_onnx::{ElementType, GraphBuilder};
use syncline_scheduler::spec::{DataSpec, Optimizer, Source, Split};
use syncline_workers::{
    local::LocalCluster,
    submit::{JobGraph, Model, Settings, Training},
};

use crate::trained::{cluster, trained};

const SAMPLES: usize = 16;

/// `count` numbers of a pattern, each of which float32 has exactly.
fn numbers(factor: usize, count: usize, modulus: usize, less: f32, over: f32) -> Vec<f32> {
    (0..count).map(|n| ((n * factor % modulus) as f32 - less) / over).collect()
}

fn data(dir: &Path) -> DataSpec {
    let (x, y) = (numbers(5, SAMPLES * 3, 7, 3.0, 4.0), numbers(3, SAMPLES, 5, 2.0, 2.0));
    let line = |(x, y): (&[f32], &f32)| format!("{},{},{},{y}\n", x[0], x[1], x[2]);
    let path = dir.join("points.csv");
    fs::write(&path, x.chunks(3).zip(&y).map(line).collect::<String>()).unwrap();
    DataSpec { split: Split::All, ..DataSpec::new(Source::csv(path)) }
}

/// Two layers, in an order in which two shards have a part of `fc1.bias` each. `still`: three numbers that
/// the loss does not depend on.
fn model(still: bool) -> Vec<u8> {
    let mut graph = GraphBuilder::new("layers");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let b2 = graph.weight("fc2.bias", &[1], &[0.5]);
    let w1 = graph.weight("fc1.weight", &[3, 4], &numbers(7, 12, 11, 5.0, 8.0));
    let b1 = graph.weight("fc1.bias", &[4], &numbers(3, 4, 5, 2.0, 8.0));
    let w2 = graph.weight("fc2.weight", &[4, 1], &numbers(5, 4, 7, 3.0, 4.0));
    let product = graph.op("MatMul", &[&x, &w1], &[]);
    let hidden = graph.op("Add", &[&product, &b1], &[]);
    let hidden = graph.op("Relu", &[&hidden], &[]);
    let product = graph.op("MatMul", &[&hidden, &w2], &[]);
    let mut y = graph.op("Add", &[&product, &b2], &[]);
    if still {
        // Where nothing flows, nothing but weight decay moves a parameter.
        let nothing = graph.op("Sub", &[&y, &y], &[]);
        for name in ["still.usual", "still.flat", "still.slow"] {
            let weight = graph.weight(name, &[1], &[1.0]);
            let none = graph.op("Mul", &[&nothing, &weight], &[]);
            y = graph.op("Add", &[&y, &none], &[]);
        }
    }
    graph.output(&y);
    graph.finish().to_bytes()
}

fn job(id: &str, data: &DataSpec, still: bool, change: impl FnOnce(&mut Settings)) -> JobGraph {
    let model = Model::forward(model(still), Loss::MeanSquaredError);
    let training = Training::new(model, data.clone()).with(|s| {
        s.policy = "bsp".parse().unwrap();
        s.batch = SAMPLES as u32;
        change(s);
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    job
}

/// Trains, and returns the trained parameters and what the status says of groups.
async fn train(cluster: &LocalCluster, graph: &JobGraph) -> (Vec<u8>, Option<String>) {
    let job = trained(cluster, graph).await;
    (fs::read(job.snapshot.unwrap()).unwrap(), job.groups)
}

fn values(snapshot: &[u8], name: &str) -> Vec<f32> {
    let file = SafeTensors::deserialize(snapshot).unwrap();
    let data = file.tensor(name).unwrap().data().to_vec();
    data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// What PyTorch 2 makes of 12 steps on all samples with `[{b1, b2: weight_decay=0}, {w1: lr=0.05 * 0.2}, {w2}]`, a learning rate of 0.05
/// and a weight decay of 0.1: `torch.optim.AdamW`, and `torch.optim.SGD(momentum=0.9)`.
#[rustfmt::skip]
const PYTORCH: [[(&str, &[f32]); 4]; 2] = [
    [
        ("fc1.weight", &[-0.683493, 0.33787, -0.281048, 0.510862, 0.166699, -0.276321, 0.484141, -0.110487, -0.392465, 0.271858, -0.162651, -0.587262]),
        ("fc1.bias",   &[-0.141425, -0.30914, -0.122654, -0.144258]),
        ("fc2.weight", &[-0.954919, 0.012778, -0.185908, -0.07656]),
        ("fc2.bias",   &[0.100973]),
    ],
    [
        ("fc1.weight", &[-0.638876, 0.25741, -0.236212, 0.566407, 0.14778, -0.307984, 0.471342, -0.006366, -0.449814, 0.322314, -0.118888, -0.579139]),
        ("fc1.bias",   &[-0.17678, -0.13402, -0.130499, 0.068325]),
        ("fc2.weight", &[-0.634256, 0.070672, -0.087015, 0.011659]),
        ("fc2.bias",   &[-0.034357]),
    ],
];

#[tokio::test(flavor = "multi_thread")]
async fn groups_train_as_those_of_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let cluster = cluster(2, 1).await;
    let (beta1, beta2, epsilon, weight_decay) = (0.9, 0.999, 1e-8, 0.1);
    let adamw = Optimizer::Adam { beta1, beta2, epsilon, weight_decay, decoupled: true };
    let momentum = Optimizer::Momentum { momentum: 0.9, nesterov: false, weight_decay };
    // Local rounds of one step are steps of the worker, which the shards average.
    for policy in ["bsp", "asp", "local-sgd:1"] {
        for (n, (optimizer, want)) in [adamw, momentum].into_iter().zip(PYTORCH).enumerate() {
            let id = format!("{}-{n}", policy.replace(':', "-"));
            let graph = job(&id, &data, false, |s| {
                (s.optimizer, s.learning_rate, s.epochs) = (optimizer, Some(0.05), 12);
                s.policy = policy.parse().unwrap();
                s.groups = vec![
                    ParameterGroup::of(["*.bias"]).weight_decay(0.0),
                    ParameterGroup::of(["fc1.*"]).learning_rate_factor(0.2),
                ];
            });
            let (snapshot, groups) = train(&cluster, &graph).await;
            for (name, want) in want {
                let got = values(&snapshot, name);
                let close = got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-4);
                assert!(close && got.len() == want.len(), "{id}: {name} {got:?}, PyTorch has {want:?}");
            }
            let words = "weight decay 0 for 2 parameters (5 numbers); 0.2 times the learning rate for 1 parameter (12 numbers)";
            assert_eq!(groups.as_deref(), Some(words), "{id}");
        }
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_steps_by_groups() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let cluster = cluster(2, 2).await;
    let policies =
        ["bsp", "asp", "ssp:2", "dssp:1:3", "lb-bsp", "elastic-bsp:4", "local-sgd:3", "diloco:3", "auto"];
    for policy in policies {
        let graph = job(&policy.replace(':', "-"), &data, true, |s| {
            (s.optimizer, s.learning_rate) = (Optimizer::Sgd { weight_decay: 0.1 }, Some(0.02));
            (s.batch, s.epochs, s.policy) = (4, 10, policy.parse().unwrap());
            s.groups = vec![
                ParameterGroup::of(["still.flat"]).weight_decay(0.0),
                ParameterGroup::of(["still.slow"]).learning_rate_factor(0.1),
            ];
        });
        let (snapshot, _) = train(&cluster, &graph).await;
        let gone = |name: &str| 1.0 - values(&snapshot, name)[0];
        let (usual, slow) = (gone("still.usual"), gone("still.slow"));
        assert_eq!(gone("still.flat"), 0.0, "{policy}");
        assert!(usual > 0.01, "{policy}: {usual}");
        assert!((0.09..0.12).contains(&(slow / usual)), "{policy}: {slow} of {usual}");
    }
    // The same cluster has no groups where a job has none.
    let graph = job("without", &data, true, |s| {
        (s.optimizer, s.learning_rate) = (Optimizer::Sgd { weight_decay: 0.1 }, Some(0.02));
        (s.batch, s.epochs) = (4, 10);
    });
    let (snapshot, groups) = train(&cluster, &graph).await;
    let [usual, flat, slow] =
        ["usual", "flat", "slow"].map(|name| values(&snapshot, &format!("still.{name}")));
    assert!(usual == flat && usual == slow && usual[0] < 0.99, "{usual:?} {flat:?} {slow:?}");
    assert_eq!(groups, None);
    cluster.stop().await.unwrap();
}
