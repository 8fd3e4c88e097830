//! Float16 jobs on a cluster: they train, and a gradient that the scale made infinite costs a step, not the
//! job.

use std::{fmt::Write, fs, path::Path};

use syncline::{JobPhase, Loss};
use syncline_autodiff::{FIRST_LOSS_SCALE, LOSS_SCALE, Precision};
use syncline_onnx::{self as onnx, ElementType, GraphBuilder, TensorType, proto::TensorProto};
use syncline_scheduler::spec::{DataSpec, OnNan, Source, Split};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, JobGraph, Model, Training},
};

/// The class is whether the first of two features is larger.
fn write_data(path: &Path) -> DataSpec {
    let mut text = String::new();
    for i in 0..120 {
        let (a, b) = (i % 7, (i * 3) % 5);
        writeln!(text, "{a},{b},{}", u8::from(a > b)).unwrap();
    }
    fs::write(path, text).unwrap();
    let source = Source::csv(path.to_string_lossy().into_owned());
    DataSpec { split: Split::TestEvery(5), ..DataSpec::new(source) }
}

/// A training graph whose gradient is infinite at every scale above 100.
fn touchy() -> Model {
    let mut graph = GraphBuilder::new("touchy");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    graph.input("label", ElementType::I64, &["batch".into()]);
    let w = graph.input("w", ElementType::F32, &[2.into()]);
    let [limit, high, one] = [("limit", 100.0), ("high", f32::INFINITY), ("one", 1.0)]
        .map(|(name, number)| graph.constant(TensorProto::from_f32(name, &[], &[number])));
    let mean = graph.op("ReduceMean", &[&x], &[]);
    let finite = graph.op("Mul", &[&mean, &one], &[]);
    let too_large = graph.op("Greater", &[LOSS_SCALE, &limit], &[]);
    let slope = graph.op("Where", &[&too_large, &high, &one], &[]);
    graph.named("w.grad", "Mul", &[&w, &slope], &[]);
    graph.named("loss", "Identity", &[&finite], &[]);
    graph.named("loss_weight", "Identity", &[&one], &[]);
    let scores = graph.op("Mul", &[&x, &w], &[]);
    graph.named("logits", "Identity", &[&scores], &[]);
    ["loss", "loss_weight", "w.grad", "logits"].into_iter().for_each(|name| graph.output(name));
    let mut model = graph.finish();
    let graph = model.graph.as_mut().unwrap();
    graph.input.push(TensorType::new(ElementType::F32, Vec::new()).to_value_info(LOSS_SCALE));
    graph.initializer.push(TensorProto::from_f32(LOSS_SCALE, &[], &[FIRST_LOSS_SCALE]));
    graph.initializer.push(TensorProto::from_f32("w", &[2], &[0.5, -0.5]));
    Model::ready(model.to_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_that_is_too_large_costs_steps_and_not_the_job() {
    let options = LocalOptions::workers(1);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(&dir.path().join("data.csv"));
    let run = async |id: &str, model: Model, precision| {
        let training = Training::new(model, data.clone()).with(|settings| {
            settings.precision = precision;
            settings.on_nan = OnNan::Fail;
            settings.batch = 4;
            settings.epochs = 6;
            settings.policy = "asp".parse().unwrap();
            settings.learning_rate = Some(0.01);
        });
        let graph = {
            let mut job = JobGraph::new(id);
            let train = job.train("train", training);
            job.evaluate("test", &train);
            job
        };
        let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
        cluster.client().submit_prepared(prepared).await.unwrap();
        let view = cluster.client().wait(&id.parse().unwrap(), |_| {}).await.unwrap();
        assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
        view.job.iterations_skipped
    };
    assert_eq!(run("touchy", touchy(), Precision::F32).await, 10, "from 65536 to 64");
    let mlp = Model::forward(onnx::mlp(&[2, 16, 2], 1).to_bytes(), Loss::SoftmaxCrossEntropy);
    assert_eq!(run("half", mlp, Precision::Fp16).await, 0);
    cluster.stop().await.unwrap();
}
