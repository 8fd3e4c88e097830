//! A job with two inputs from a safetensors file and a label at every position, some of them ignored.

use std::path::Path;

use safetensors::{Dtype, tensor::TensorView};
use syncline::{JobPhase, Loss, Metric};
use syncline_autodiff::LossOptions;
use syncline_onnx::{ElementType, GraphBuilder};
use syncline_scheduler::spec::{DataSpec, Source, Split};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

const SAMPLES: usize = 100;
const POSITIONS: usize = 5;
const TOKENS: i64 = 6;
const CLASSES: i64 = 3;
const IGNORED: i64 = -100;

/// Each token has scores of its own, and each sample has a gain for all of its scores.
fn model() -> Vec<u8> {
    let mut graph = GraphBuilder::new("tagger");
    let ids = graph.input("ids", ElementType::I64, &["batch".into(), "positions".into()]);
    let gain = graph.input("gain", ElementType::F32, &["batch".into(), 1.into(), 1.into()]);
    let table =
        graph.weight("table", &[TOKENS as usize, CLASSES as usize], &[0.0; (TOKENS * CLASSES) as usize]);
    let scores = graph.op("Gather", &[&table, &ids], &[]);
    let scores = graph.op("Mul", &[&scores, &gain], &[]);
    graph.output(&scores);
    graph.finish().to_bytes()
}

/// The class is the token modulo 3; every other position is ignored.
fn write(path: &Path) {
    let (mut ids, mut gains, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..SAMPLES as i64 {
        for position in 0..POSITIONS as i64 {
            let token = (7 * sample + 3 * position) % TOKENS;
            ids.push(token as i32);
            labels.push(if (sample + position) % 2 == 0 { token % CLASSES } else { IGNORED });
        }
        gains.push(1.0 + (sample % 3) as f32);
    }
    let (ids, gains, labels): (Vec<u8>, Vec<u8>, Vec<u8>) = (
        ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        gains.iter().flat_map(|gain| gain.to_le_bytes()).collect(),
        labels.iter().flat_map(|label| label.to_le_bytes()).collect(),
    );
    let tensors = [
        ("ids", TensorView::new(Dtype::I32, vec![SAMPLES, POSITIONS], &ids).unwrap()),
        ("gain", TensorView::new(Dtype::F32, vec![SAMPLES], &gains).unwrap()),
        ("label", TensorView::new(Dtype::I64, vec![SAMPLES, POSITIONS], &labels).unwrap()),
    ];
    std::fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn accuracy_is_that_of_the_positions_that_count() {
    let options = LocalOptions::workers(2);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tags.safetensors");
    write(&path);
    let source = Source::safetensors(&path);
    let data = DataSpec { split: Split::TestEvery(4), ..DataSpec::new(source) };
    let model = |ignore_index| {
        let options = LossOptions { ignore_index, ..LossOptions::default() };
        Model::forward(model(), Loss::SoftmaxCrossEntropy).with_loss_options(options)
    };
    let job = |model| {
        let training = Training::new(model, data.clone()).with(|settings| {
            settings.learning_rate = Some(1.0);
            settings.batch = 5;
            settings.epochs = 4;
            settings.policy = "bsp".parse().unwrap();
        });
        let mut job = JobGraph::new("tags");
        let train = job.train("train", training);
        job.evaluate("test", &train);
        job
    };
    let refused = submit::prepare(cluster.runtime(), &job(model(None))).unwrap_err().to_string();
    assert!(refused.contains("E337") && refused.contains("label -100"), "{refused}");

    let prepared = submit::prepare(cluster.runtime(), &job(model(Some(IGNORED)))).unwrap();
    let (_, train) = prepared.spec.train().unwrap();
    let shapes: Vec<_> = train.model.inputs.iter().map(|input| input.shape.clone()).collect();
    assert_eq!((shapes, train.model.label_shape.clone()), (vec![vec![5], vec![1, 1]], vec![5]));
    cluster.client().submit_prepared(prepared).await.unwrap();
    let view = cluster.client().wait(&"tags".parse().unwrap(), |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    assert_eq!(view.job.test_samples, Some(25));
    // Ignored positions are no wrong answers, and there is one prediction a position.
    assert_eq!(view.job.test[Metric::Accuracy], Some(1.0), "{:?}", view.job);
    cluster.stop().await.unwrap();
}
