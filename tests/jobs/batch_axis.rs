//! Models that PyTorch exported for one batch size train on any, or are refused before they are submitted.
//!
//! `fixed_batch/make_fixed_batch.py` wrote the files, by both exporters.

use std::{
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::TensorView as Saved};
use syncline::JobPhase;
use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::{self as onnx, Dim, ElementType, GraphBuilder, SplitMix64, TensorType, attr_int};
use syncline_scheduler::spec::{DataSpec, Source, Split};
use syncline_workers::{
    batch_axis::{BatchAxis, open_batch},
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

use crate::onnxruntime;

const SAMPLES: usize = 45;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/fixed_batch").join(format!("{name}.onnx"))
}

#[test]
fn a_fixed_batch_axis_is_opened_where_the_graph_allows() {
    let runtime = onnxruntime::runtime();
    for (name, size) in [("cnn", 4), ("attention", 4), ("single", 1)] {
        for exporter in ["script", "dynamo"] {
            let name = format!("{name}.{exporter}");
            let bytes = fs::read(path(&name)).unwrap();
            match open_batch(&runtime, &bytes, &DeriveOptions::default())
                .unwrap_or_else(|error| panic!("{name}: {error}"))
            {
                BatchAxis::Opened { from, onnx } => {
                    assert_eq!(from, size, "{name}");
                    assert_eq!(
                        open_batch(&runtime, &onnx, &DeriveOptions::default()).unwrap(),
                        BatchAxis::Open,
                        "{name}"
                    );
                }
                BatchAxis::Open => panic!("{name} is fixed"),
            }
        }
    }
}

#[test]
fn a_loop_between_a_weight_and_the_loss_is_refused_before_a_fixed_batch_is_opened() {
    let bag = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workers/tests/checks/embedding_bag.dynamo.onnx");
    let mut bag = onnx::parse(&fs::read(bag).unwrap()).unwrap();
    let ids = &mut bag.graph.as_mut().unwrap().input[0];
    let shape = TensorType::from_value_info(ids).unwrap();
    *ids = TensorType::new(shape.element, [vec![Dim::Fixed(3)], shape.dims[1..].to_vec()].concat())
        .to_value_info(&ids.name);
    // ONNX Runtime would end this process.
    let error = open_batch(&onnxruntime::runtime(), &bag.to_bytes(), &DeriveOptions::default()).unwrap_err();
    assert_eq!(error.code(), "E311", "{error}");
    assert!(error.to_string().contains("Loop"), "{error}");
}

#[test]
fn what_depends_on_the_size_of_the_batch_is_refused_with_the_reason_and_the_line() {
    for exporter in ["script", "dynamo"] {
        let bytes = fs::read(path(&format!("memory.{exporter}"))).unwrap();
        let error = open_batch(&onnxruntime::runtime(), &bytes, &DeriveOptions::default()).unwrap_err();
        assert_eq!(error.code(), "E262", "{error}");
        assert!(error.to_string().contains("batches of 4 samples"), "{error}");
        assert!(error.hint().unwrap().contains("dynamic_axes"), "{error}");
    }
}

#[test]
fn a_loss_beside_the_scores_of_a_fixed_batch_is_in_nobodys_way_and_one_that_trains_is_refused_in_words() {
    let runtime = onnxruntime::runtime();
    let mut graph = GraphBuilder::new("scores");
    let x = graph.input("x", ElementType::F32, &[4.into(), 3.into()]);
    let w = graph.weight("w", &[3, 2], &[0.1; 6]);
    let scores = graph.named("scores", "MatMul", &[&x, &w], &[]);
    let loss = graph.named("loss", "ReduceMean", &[&scores], &[attr_int("keepdims", 0)]);
    graph.output(&scores);
    graph.output(&loss);
    let bytes = graph.finish().to_bytes();
    let of = |output: &str| DeriveOptions { output: Some(output.to_owned()), ..DeriveOptions::default() };
    let opened = open_batch(&runtime, &bytes, &of("scores")).unwrap();
    assert!(matches!(opened, BatchAxis::Opened { from: 4, .. }), "{opened:?}");
    let refused = open_batch(&runtime, &bytes, &of("loss")).unwrap_err();
    assert_eq!(refused.code(), "E262");
    assert!(refused.to_string().contains("output `loss` is one number for the whole batch"), "{refused}");
}

/// Images of 6x6 whose brightness tells their class.
fn write(path: &Path) -> DataSpec {
    let mut random = SplitMix64::new(5);
    let label: Vec<i64> = (0..SAMPLES as i64).map(|sample| sample * 2 % 3).collect();
    let pixels =
        label.iter().flat_map(|class| vec![*class as f32; 36]).map(|class| class + random.normal() as f32);
    let x: Vec<u8> = pixels.collect::<Vec<_>>().into_iter().flat_map(f32::to_le_bytes).collect();
    let y: Vec<u8> = label.iter().flat_map(|class| class.to_le_bytes()).collect();
    let tensors = [
        ("x", Saved::new(Dtype::F32, vec![SAMPLES, 1, 6, 6], &x).unwrap()),
        ("label", Saved::new(Dtype::I64, vec![SAMPLES], &y).unwrap()),
    ];
    fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let source = Source::safetensors(path);
    DataSpec { split: Split::TestEvery(5), ..DataSpec::new(source) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_model_of_fixed_batch_ends_with_every_sample_or_without_the_last_batch() {
    let options = LocalOptions::workers(1);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = write(&dir.path().join("images.safetensors"));
    // 36 samples train, 9 test; a batch of 8 leaves 4 over.
    for (name, drop_last, samples) in [
        ("cnn.script", false, 72),
        ("attention.dynamo", false, 72),
        ("attention.script", true, 64),
        ("single.dynamo", true, 64),
    ] {
        let training = Training::new(Model::forward(path(name), Loss::SoftmaxCrossEntropy), data.clone())
            .with(|s| {
                s.batch = 8;
                s.epochs = 2;
                s.drop_last = drop_last;
                s.policy = "bsp".parse().unwrap();
            });
        let graph = {
            let mut job = JobGraph::new(name.replace('.', "-"));
            let train = job.train("train", training);
            job.evaluate("test", &train);
            job
        };
        let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
        assert!(
            prepared.warnings.iter().any(|said| said.contains("it takes any now")),
            "{:?}",
            prepared.warnings
        );
        let id = prepared.spec.id.clone();
        cluster.client().submit_prepared(prepared).await.unwrap();
        let view = cluster.client().wait(&id, |_| {}).await.unwrap();
        assert_eq!(view.job.state, JobPhase::Done, "{name}: {:?}", view.job);
        assert_eq!((view.job.samples_applied, view.job.samples_total), (samples, samples), "{name}");
        assert_eq!((view.job.epochs_complete, view.job.test_samples), (2, Some(9)), "{name}");
    }
    cluster.stop().await.unwrap();
}

#[test]
fn models_that_no_batch_of_a_job_fits_are_refused_at_submission() {
    let runtime = onnxruntime::runtime();
    let dir = tempfile::tempdir().unwrap();
    let data = write(&dir.path().join("images.safetensors"));
    let bytes = fs::read(path("cnn.script")).unwrap();
    let graph = derive(&runtime, &bytes, Loss::SoftmaxCrossEntropy, &DeriveOptions::default()).unwrap();
    let fixed = Model::ready(graph.with_first_values().unwrap());
    for model in [Model::forward(path("memory.dynamo"), Loss::SoftmaxCrossEntropy), fixed] {
        let graph = {
            let mut job = JobGraph::new("fixed");
            job.train("train", Training::new(model, data.clone()));
            job
        };
        let error = submit::prepare(&runtime, &graph).unwrap_err();
        assert!(
            error.to_string().contains("[E262]") && error.hint().unwrap().contains("dynamic_axes"),
            "{error}"
        );
    }
}
