//! Jobs that let GPUs round the factors of products: on CPUs they are what they would be without.

use std::{collections::BTreeMap, fmt::Write, fs};

use safetensors::SafeTensors;
use syncline::{JobPhase, Loss, Metric};
use syncline_autodiff::{DeriveOptions, Precision, derive};
use syncline_onnx as onnx;
use syncline_scheduler::spec::{DataSpec, Source, Split};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{JobGraph, Model, Training, prepare},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_tf32_trains_on_a_cpu_to_the_weights_of_float32() {
    let options = LocalOptions::workers(1);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.csv");
    let rows = (0..120).map(|i| (i % 7, (i * 3) % 5)).fold(String::new(), |mut text, (a, b)| {
        writeln!(text, "{a},{b},{}", u8::from(a > b)).unwrap();
        text
    });
    fs::write(&path, rows).unwrap();
    let source = Source::csv(path.to_string_lossy().into_owned());
    let data = DataSpec { split: Split::TestEvery(5), ..DataSpec::new(source) };
    let mlp = onnx::mlp(&[2, 16, 2], 1).to_bytes();
    let graph =
        derive(cluster.runtime(), &mlp, Loss::SoftmaxCrossEntropy, &DeriveOptions::default()).unwrap();
    let forward = || Model::forward(mlp.clone(), Loss::SoftmaxCrossEntropy);
    let ready = Model::ready(graph.with_first_values().unwrap());
    let run = async |id: &str, model: Model, precision| {
        let mut job = JobGraph::new(id);
        let training = Training::new(model, data.clone()).with(|settings| {
            settings.precision = precision;
            settings.batch = 4;
            settings.epochs = 2;
            settings.policy = "bsp".parse().unwrap();
        });
        let train = job.train("train", training);
        let tested = job.evaluate("test", &train);
        job.snapshot("save", &tested);
        let prepared = prepare(cluster.runtime(), &job).unwrap();
        let tf32 = prepared.spec.train().unwrap().1.tf32;
        cluster.client().submit_prepared(prepared).await.unwrap();
        let view = cluster.client().wait(&id.parse().unwrap(), |_| {}).await.unwrap();
        assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
        let file = fs::read(view.job.snapshot.unwrap()).unwrap();
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let weights: BTreeMap<_, _> =
            tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect();
        (tf32, weights, view.job.test[Metric::Loss].unwrap())
    };
    let (_, weights, loss) = run("float32", forward(), Precision::F32).await;
    for (id, model) in [("forward", forward()), ("ready", ready)] {
        assert_eq!(run(id, model, Precision::Tf32).await, (true, weights.clone(), loss), "{id}");
    }
    cluster.stop().await.unwrap();
}
