//! ONNX models as tasks of a graph, between functions of another worker. Engine, shards and workers are real.

use std::{path::Path, time::Duration};

use syncline::{
    ArgumentError, Cancellation, ClientError, Function, OnnxModel, RUN_MODEL, SubmitError, TaskGraph,
    TaskQuery, Tensor,
    worker::{Context, Next, Throttle, Worker},
};
use syncline_onnx::{ElementType, GraphBuilder, mlp, proto::AttributeProto};

use crate::{function_cluster::FunctionCluster, waiting::eventually};

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

/// A loop of 2^63 - 1 passes: centuries.
fn endless() -> Vec<u8> {
    let mut body = GraphBuilder::new("body");
    body.input("pass", ElementType::I64, &[]);
    let goes_on = body.input("goes_on", ElementType::Bool, &[]);
    let before = body.input("before", ElementType::F32, &[1.into()]);
    let one = body.weight("one", &[1], &[1.0]);
    for (name, op, inputs) in [("still", "Identity", vec![&*goes_on]), ("after", "Add", vec![&before, &one])]
    {
        let output = body.named(name, op, &inputs, &[]);
        body.output(&output);
    }
    let mut graph = GraphBuilder::new("endless");
    let x = graph.input("x", ElementType::F32, &[1.into()]);
    let passes = graph.ints("passes", &[i64::MAX]);
    // 5: a graph.
    let body = AttributeProto { name: "body".into(), g: body.finish().graph, kind: 5, ..Default::default() };
    let last = graph.named("last", "Loop", &[&passes, "", &x], &[body]);
    graph.output(&last);
    graph.finish().to_bytes()
}

/// A cluster with so many workers that have ONNX Runtime, and one with the functions of this file.
async fn start(workers: usize) -> FunctionCluster {
    let functions = Worker::builder().register(ONES, ones).register(TOTAL, total).register(SPREAD, spread);
    FunctionCluster::start(workers, functions).await
}

async fn upload(cluster: &FunctionCluster, onnx: Vec<u8>) -> OnnxModel {
    cluster.client.upload_model(onnx).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn models_take_what_functions_give_and_the_other_way_round() {
    let cluster = start(2).await;
    let onnx = sum_and_difference();
    let model = upload(&cluster, onnx.clone()).await;
    assert_eq!(upload(&cluster, onnx).await, model);
    let classifier = upload(&cluster, mlp(&[3, 4, 2], 1).to_bytes()).await;

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
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    // 1 + 1 and 1 - 1, then 2 + 0 and 2 - 0, three of each.
    assert_eq!(run.get(&sum).await.unwrap(), 12.0);
    assert_eq!(run.get(&also_sum).await.unwrap(), 6.0);
    let large = run.get(&large).await.unwrap();
    assert_eq!(large[0].values::<f32>().unwrap(), vec![4.0; 10_000]);
    assert_eq!(large[1].values::<f32>().unwrap(), vec![0.0; 10_000]);
    for (n, scores) in (1..).zip(&scores) {
        assert_eq!(run.get(scores).await.unwrap()[0].shape(), [n, 2]);
    }
    run.wait(|_| {}).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_onnx_runtime_a_task_waits_and_says_for_what() {
    let mut cluster = start(0).await;
    let workers = async || cluster.client.workers().await.unwrap().len();
    eventually("the worker is there", async || workers().await > 0).await;
    let model = upload(&cluster, sum_and_difference()).await;
    let mut graph = TaskGraph::new("waits");
    let one = Tensor::new([1, 1], vec![1.0f32]).unwrap();
    let both = graph.call(RUN_MODEL, (model, vec![one.clone(), one]));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    let view = cluster.client.tasks(run.id(), &TaskQuery { limit: 1, ..TaskQuery::default() }).await.unwrap();
    let reason = &view[0].reason;
    assert_eq!(reason, "the only worker that runs tasks does not have the function `syncline.run-model`");
    cluster.cluster.add_worker(Throttle::default());
    assert_eq!(run.get(&both).await.unwrap()[0].values::<f32>().unwrap(), [2.0]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_model_or_its_inputs_is_told_and_costs_no_worker() {
    let cluster = start(1).await;
    let refused = |error: SubmitError| error.to_string()[1..5].to_owned();
    let none = cluster.client.upload_model(b"no model".to_vec()).await.unwrap_err();
    assert_eq!(refused(none), "E302");
    let missing = cluster.client.upload_model(Path::new("/no/such/model.onnx")).await.unwrap_err();
    assert_eq!(refused(missing), "E360");

    let model = upload(&cluster, sum_and_difference()).await;
    let mut unknown = mlp(&[3, 2], 1);
    unknown.graph.as_mut().unwrap().node[0].op_type = "NoSuchOperator".to_owned();
    let unknown = upload(&cluster, unknown.to_bytes()).await;
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
        let run = cluster.client.submit_tasks(&graph).await.unwrap();
        let told = run.get(&output).await.unwrap_err().to_string();
        assert!(told.contains(reason), "{told}");
    }
    let mut graph = TaskGraph::new("right");
    let output = graph.call(RUN_MODEL, (model, vec![row(2), row(2)]));
    let run = cluster.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(run.get(&output).await.unwrap()[1].values::<f32>().unwrap(), [0.0, 0.0]);
    let workers = async || cluster.client.workers().await.unwrap().len();
    eventually("both workers are there", async || workers().await == 2).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_computes_for_ever_ends_when_its_job_is_canceled() {
    let cluster = start(1).await;
    let (endless, quick) = (upload(&cluster, endless()).await, upload(&cluster, sum_and_difference()).await);
    let mut graph = TaskGraph::new("endless");
    let number = Tensor::new([1], vec![1.0f32]).unwrap();
    let sums = graph.call(RUN_MODEL, (quick, vec![Tensor::new([1, 1], vec![1.0f32]).unwrap(); 2]));
    graph.call(RUN_MODEL, (endless, vec![number]));
    let job = cluster.client.submit_tasks(&graph).await.unwrap();
    // The only slot is the other model's now, or will be in a moment.
    job.get(&sums).await.unwrap();
    let how = Cancellation::new().reason("it never ends").grace(Duration::from_secs(3_600));
    cluster.client.cancel_with(job.id(), &how).await.unwrap();
    let ended = job.wait(|_| ()).await.unwrap_err();
    assert!(matches!(&ended, ClientError::JobCanceled { .. }), "{ended}");
    assert_eq!(ended.to_string(), "[E507] job endless was canceled: it never ends");

    let mut graph = TaskGraph::new("next");
    let sums = graph.call(RUN_MODEL, (quick, vec![Tensor::new([1, 1], vec![2.0f32]).unwrap(); 2]));
    let job = cluster.client.submit_tasks(&graph).await.unwrap();
    assert_eq!(job.get(&sums).await.unwrap()[0].values::<f32>().unwrap(), [4.0]);
    cluster.stop().await;
}
