//! A training that is evaluated while it runs, with real processes.

use syncline::{JobId, Loss, Metric};
use syncline_onnx as onnx;
use syncline_rpc::status::{EvaluationPoint, EventKind};
use syncline_scheduler::spec::{DataSpec, EvaluateSpec, Source, Split};
use syncline_workers::submit::{self, JobGraph, Model, Training};

use crate::{
    cluster::{Cluster, number, runtime},
    jobs::submit,
};

/// Of 60 samples every fifth one tests.
const TESTS: u64 = 12;
const TRAINS: u64 = 48;
const EPOCHS: u64 = 100;

/// A job that is evaluated after each epoch. `rate`: how fast it learns, which may be too slow for anything
/// to change.
async fn start(
    cluster: &Cluster,
    (id, policy): (&str, &str),
    epochs: u32,
    rate: f32,
    ends_with_node: bool,
) -> JobId {
    let data = cluster.dir.path().join(format!("{id}.csv"));
    let lines: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 3)).collect();
    std::fs::write(&data, lines).unwrap();
    let mut data = DataSpec::new(Source::csv(data.to_string_lossy().into_owned()));
    data.split = Split::TestEvery(5);
    let model = Model::forward(onnx::mlp(&[2, 8, 3], 1).to_bytes(), Loss::SoftmaxCrossEntropy);
    let training = Training::new(model, data).with(|s| {
        (s.batch, s.epochs, s.learning_rate) = (4, epochs, Some(rate));
        s.policy = policy.parse().unwrap();
        s.min_workers = 2;
        s.evaluate = Some(EvaluateSpec::every_epochs(1));
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    if ends_with_node {
        job.evaluate("test", &train);
    }
    submit(cluster, submit::prepare(&runtime(), &job).unwrap()).await
}

/// All that were kept, each of which is an event as well.
async fn evaluations(cluster: &Cluster, job: &JobId) -> Vec<EvaluationPoint> {
    let client = cluster.client();
    let (points, events) = (client.evaluations(job, None).await, client.events(job, None).await);
    let points: Vec<_> = points.unwrap().into_iter().map(|entry| entry.value).collect();
    let events = events.unwrap().into_iter().map(|entry| entry.value);
    let told: Vec<_> = events.filter(|event| event.what == EventKind::Evaluated).collect();
    let of_events: Vec<_> =
        told.iter().map(|event| (event.samples.unwrap(), event.test[Metric::Loss].unwrap())).collect();
    let of_points: Vec<_> =
        points.iter().map(|point| (point.samples, point.test[Metric::Loss].unwrap())).collect();
    assert_eq!(of_points, of_events);
    points
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_measure_in_parts_is_what_one_measures_of_all() {
    let cluster = Cluster::start(1, 2, "--slowdown 1").await;
    for (id, policy) in
        [("a", "bsp"), ("b", "asp"), ("c", "elastic-bsp:4"), ("d", "local-sgd:5"), ("e", "diloco:3")]
    {
        check_parts(&cluster, id, policy).await;
    }
    let picture = cluster.dir.path().join("curve.svg");
    cluster.print(&format!("metrics a --plot {}", picture.display()));
    assert!(std::fs::read_to_string(picture).unwrap().contains("on test samples"));
}

async fn check_parts(cluster: &Cluster, id: &str, policy: &str) {
    let job = start(cluster, (id, policy), 4, 1e-30, true).await;
    let summary = cluster.until_over(&job).await;
    assert_eq!((&*summary["state"], &*summary["test_samples"]), ("done", "12"), "{summary:?}");
    let whole: f64 = summary["test_loss"].parse().unwrap();
    let accuracy: f64 = summary["test_accuracy"].parse().unwrap();
    let of_classes = ["test_macro_f1", "test_macro_precision", "test_macro_recall"];
    let of_classes = of_classes.map(|name| Some(summary[name].parse::<f64>().unwrap()));
    let told = evaluations(cluster, &job).await;
    assert_eq!(told.len(), 4, "{policy}, the node does the last one: {told:?}");
    for (epoch, point) in (1..).zip(told) {
        assert_eq!(point.test_samples, Some(TESTS));
        assert!((point.test[Metric::Loss].unwrap() - whole).abs() < 1e-5, "{policy}: {point:?}, {whole}");
        assert_eq!(point.test[Metric::Accuracy], Some(accuracy));
        let told = [
            point.test[Metric::MacroF1],
            point.test[Metric::MacroPrecision],
            point.test[Metric::MacroRecall],
        ];
        assert_eq!(told, of_classes);
        assert_eq!(point.samples, epoch * TRAINS, "{point:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deaths_of_engine_worker_and_all_lose_no_sample_and_no_last_evaluation() {
    let mut cluster = Cluster::start(1, 2, "--slowdown 8").await;
    let job = start(&cluster, ("deaths", "bsp"), EPOCHS as u32, 0.1, false).await;
    cluster.until(&job, |summary| !summary["test_loss"].is_empty()).await;
    cluster.kill_engine();
    cluster.start_engine();
    cluster.until(&job, |summary| number(summary, "epochs_complete") >= EPOCHS / 4).await;
    drop(cluster.workers.remove(0));
    let another = cluster.spawn_worker("--slowdown 8 --name another");
    cluster.workers.push(another);
    let summary = cluster.until_over(&job).await;
    assert_eq!(summary["state"], "done", "{summary:?}");
    assert_eq!(number(&summary, "samples_applied"), EPOCHS * TRAINS, "{summary:?}");
    let told = evaluations(&cluster, &job).await;
    let samples: Vec<u64> = told.iter().map(|point| point.samples).collect();
    assert_eq!(samples, (1..=EPOCHS).map(|epoch| epoch * TRAINS).collect::<Vec<_>>());
    assert_eq!(
        told.last().unwrap().test[Metric::Loss].unwrap().to_string().parse::<f64>().ok(),
        summary["test_loss"].parse().ok()
    );
}
