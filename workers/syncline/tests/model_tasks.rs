//! ONNX models as tasks of a graph, between functions of another worker. Engine, shards and workers are real.

use std::path::Path;

use syncline::{
    ArgumentError, Client, Function, LocalCluster, LocalOptions, OnnxModel, RUN_MODEL, SubmitError,
    TaskGraph, TaskQuery, Tensor,
    worker::{Context, Next, Throttle, Worker, run},
};
use syncline_onnx::{ElementType, GraphBuilder, mlp};
use tokio::{sync::watch, task::JoinHandle};

/// A row of so many ones.
const ONES: Function<(u64,), Tensor> = Function::new("ones");
/// The sum over all numbers of all tensors.
const TOTAL: Function<(Vec<Tensor>,), f32> = Function::new("total");

/// The scores of so many images, by a task that it adds.
const SPREAD: Function<(OnnxModel, u64), Vec<Tensor>> = Function::new("spread");

fn spread(context: &Context, model: OnnxModel, images: u64) -> Result<Next<Vec<Tensor>>, ArgumentError> {
    let images = context.map(ONES, (0..images).map(|_| (3,)))?;
    Ok(Next::Of(context.call(RUN_MODEL, (model, &images))?))
}

fn ones(count: u64) -> Result<Tensor, String> {
    Tensor::new([1, count as usize], vec![1.0f32; count as usize]).map_err(|e| e.to_string())
}

fn total(tensors: Vec<Tensor>) -> Result<f32, String> {
    let sums = tensors.iter().map(|tensor| tensor.values::<f32>().map(|values| values.iter().sum::<f32>()));
    sums.sum::<Result<f32, _>>().map_err(|e| e.to_string())
}

/// sum = a + b, difference = a - b.
fn sum_and_difference() -> Vec<u8> {
    let mut graph = GraphBuilder::new("two");
    let a = graph.input("a", ElementType::F32, &["rows".into(), "columns".into()]);
    let b = graph.input("b", ElementType::F32, &["rows".into(), "columns".into()]);
    for (name, op) in [("sum", "Add"), ("difference", "Sub")] {
        let output = graph.named(name, op, &[&a, &b], &[]);
        graph.output(&output);
    }
    graph.finish().to_bytes()
}

/// A cluster, and a worker with functions and without ONNX Runtime.
struct Place {
    client: Client,
    cluster: LocalCluster,
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
}

impl Place {
    /// With so many workers that have ONNX Runtime.
    async fn start(workers: usize) -> Self {
        let workers = vec![Throttle::default(); workers];
        let options = LocalOptions { workers, shards: 2, ..LocalOptions::default() };
        let cluster = LocalCluster::start(options, |line| eprintln!("{line}")).await.unwrap();
        let worker = Worker::builder().register(ONES, ones).register(TOTAL, total).register(SPREAD, spread);
        let options = worker.options(cluster.cluster()).unwrap();
        let (stop, stopped) = watch::channel(false);
        let worker = tokio::spawn(async move { run(options, stopped).await.unwrap() });
        Self { client: cluster.client(), cluster, stop, worker }
    }

    async fn upload(&self, onnx: Vec<u8>) -> OnnxModel {
        self.client.upload_model(onnx).await.unwrap()
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.worker.await.unwrap();
        self.cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_take_what_functions_give_and_the_other_way_round() {
    let place = Place::start(2).await;
    let onnx = sum_and_difference();
    let model = place.upload(onnx.clone()).await;
    assert_eq!(place.upload(onnx).await, model);
    let classifier = place.upload(mlp(&[3, 4, 2], 1).to_bytes()).await;

    let mut graph = TaskGraph::new("both-ways");
    let (a, b) = (graph.call(ONES, (3,)), graph.call(ONES, (3,)));
    let both = graph.call(RUN_MODEL, (model, &vec![a, b]));
    let again = graph.call(RUN_MODEL, (model, both));
    let sum = graph.call(TOTAL, (again,));
    let added = graph.call(SPREAD, (model, 2));
    let also_sum = graph.call(TOTAL, (added,));
    // Above what travels inline, both ways.
    let large = Tensor::new([1, 10_000], vec![2.0f32; 10_000]).unwrap();
    let large = graph.call(RUN_MODEL, (model, vec![large.clone(), large]));
    let rows = |n: usize| vec![Tensor::new([n, 3], vec![0.5f32; n * 3]).unwrap()];
    let scores = graph.map(RUN_MODEL, (1..=40).map(|n| (classifier, rows(n))));
    let id = place.client.submit_tasks(&graph).await.unwrap();
    // 1 + 1 and 1 - 1, then 2 + 0 and 2 - 0, three of each.
    assert_eq!(place.client.get(&id, &sum).await.unwrap(), 12.0);
    assert_eq!(place.client.get(&id, &also_sum).await.unwrap(), 6.0);
    let large = place.client.get(&id, &large).await.unwrap();
    assert_eq!(large[0].values::<f32>().unwrap(), vec![4.0; 10_000]);
    assert_eq!(large[1].values::<f32>().unwrap(), vec![0.0; 10_000]);
    for (n, scores) in (1..).zip(&scores) {
        assert_eq!(place.client.get(&id, scores).await.unwrap()[0].shape(), [n, 2]);
    }
    place.client.wait(&id, |_| {}).await.unwrap();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_onnx_runtime_a_task_waits_and_says_for_what() {
    let mut place = Place::start(0).await;
    while place.client.workers().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let model = place.upload(sum_and_difference()).await;
    let mut graph = TaskGraph::new("waits");
    let one = Tensor::new([1, 1], vec![1.0f32]).unwrap();
    let both = graph.call(RUN_MODEL, (model, vec![one.clone(), one]));
    let id = place.client.submit_tasks(&graph).await.unwrap();
    let view = place.client.tasks(&id, &TaskQuery { limit: 1, ..TaskQuery::default() }).await.unwrap();
    let because = &view[0].because;
    assert_eq!(because, "none of the 1 workers that run tasks has the function `syncline.run-model`");
    place.cluster.add_worker(Throttle::default());
    assert_eq!(place.client.get(&id, &both).await.unwrap()[0].values::<f32>().unwrap(), [2.0]);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_model_or_its_inputs_is_told_and_costs_no_worker() {
    let place = Place::start(1).await;
    let refused = |error: SubmitError| error.to_string()[1..5].to_owned();
    let none = place.client.upload_model(b"no model".to_vec()).await.unwrap_err();
    assert_eq!(refused(none), "E302");
    let missing = place.client.upload_model(Path::new("/no/such/model.onnx")).await.unwrap_err();
    assert_eq!(refused(missing), "E360");

    let model = place.upload(sum_and_difference()).await;
    let mut unknown = mlp(&[3, 2], 1);
    unknown.graph.as_mut().unwrap().node[0].op_type = "NoSuchOperator".to_owned();
    let unknown = place.upload(unknown.to_bytes()).await;
    let row = |n: usize| Tensor::new([1, n], vec![1.0f32; n]).unwrap();
    let flat = Tensor::new([1], vec![1.0f32]).unwrap();
    let ints = Tensor::new([1, 1], vec![1i64]).unwrap();
    #[rustfmt::skip]
    let cases = [
        (model,   vec![row(1)],         "[E450] the model has 2 inputs (a, b), it is given 1"),
        (model,   vec![row(1), ints],   "[E451] input `b` of the model is float32 [rows, columns], it is given int64 [1, 1]"),
        (model,   vec![flat, row(1)],   "[E451] input `a` of the model is float32 [rows, columns], it is given float32 [1]"),
        (model,   vec![row(2), row(3)], "[E327] onnx runtime failed to run the model"),
        (unknown, vec![row(3)],         "[E323] onnx runtime refused the model"),
    ];
    for (place_in_table, (model, inputs, reason)) in cases.into_iter().enumerate() {
        let mut graph = TaskGraph::new(format!("wrong-{place_in_table}"));
        let output = graph.call(RUN_MODEL, (model, inputs));
        let id = place.client.submit_tasks(&graph).await.unwrap();
        let told = place.client.get(&id, &output).await.unwrap_err().to_string();
        assert!(told.contains(reason), "{told}");
    }
    let mut graph = TaskGraph::new("right");
    let output = graph.call(RUN_MODEL, (model, vec![row(2), row(2)]));
    let id = place.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(place.client.get(&id, &output).await.unwrap()[1].values::<f32>().unwrap(), [0.0, 0.0]);
    assert_eq!(place.client.workers().await.unwrap().len(), 2);
    place.stop().await;
}
