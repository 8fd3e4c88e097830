//! Bad input of every kind gets a coded error and leaves nothing in Redis.

use std::{collections::BTreeMap, fs, path::Path};

use syncline::{ClientError, JobPhase, Loss, ParameterGroup};
use syncline_autodiff::Precision;
use syncline_engine::store::{
    RedisStore,
    keys::{self, JobKeys},
};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_onnx::{self as onnx, ElementType, GraphBuilder};
use syncline_scheduler::spec::{Compression, DataSpec, OnNan, Source, Split};
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::{self, GraphNode, JobGraph, Model, NodeWork, SubmitError, Training},
};

const SAMPLES: usize = 60;

/// Two features, three classes, `SAMPLES` lines.
fn write_data(path: &Path, change: impl Fn(usize, &mut String)) -> DataSpec {
    let mut text = String::new();
    for i in 0..SAMPLES {
        let mut line = format!("{},{},{}", i % 7, i % 5, i % 3);
        change(i, &mut line);
        text.push_str(&line);
        text.push('\n');
    }
    fs::write(path, text).unwrap();
    DataSpec { split: Split::TestEvery(5), ..DataSpec::new(Source::csv(path.to_string_lossy().into_owned())) }
}

fn model(inputs: usize) -> Model {
    Model::forward(onnx::mlp(&[inputs, 8, 3], 1).to_bytes(), Loss::SoftmaxCrossEntropy)
}

fn graph(id: &str, training: Training) -> JobGraph {
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.evaluate("test", &train);
    job
}

async fn cluster() -> LocalCluster {
    let options = LocalOptions::workers(2);
    LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap()
}

async fn try_job(cluster: &LocalCluster, graph: &JobGraph) -> Result<(), SubmitError> {
    let prepared = submit::prepare(cluster.runtime(), graph)?;
    cluster.client().submit_prepared(prepared).await.map(drop)
}

async fn job_keys(store: &RedisStore) -> Vec<String> {
    let mut keys: Vec<String> = store
        .query("scan", &["SCAN", "0", "COUNT", "100000", "MATCH", "syncline:{*"])
        .await
        .map(|(_, keys): (String, Vec<String>)| keys)
        .unwrap();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_job_is_refused_with_a_code_and_leaves_nothing() {
    let cluster = cluster().await;
    let store = RedisStore::connect(cluster.redis_url()).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let good = write_data(&dir.path().join("good.csv"), |_, _| {});
    let short = write_data(&dir.path().join("short.csv"), |i, line| {
        if i == 13 {
            *line = "1,2".into();
        }
    });
    let label = write_data(&dir.path().join("label.csv"), |i, line| {
        if i == 20 {
            *line = "1,2,3".into();
        }
    });
    let nan = write_data(&dir.path().join("nan.csv"), |i, line| {
        if i == 7 {
            *line = "1,nan,2".into();
        }
    });
    let missing = write_data(&dir.path().join("gone.csv"), |_, _| {});
    fs::remove_file(dir.path().join("gone.csv")).unwrap();
    let mut shrink = GraphBuilder::new("shrink");
    let x = shrink.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = shrink.weight("w", &[2, 3], &[0.1; 6]);
    let y = shrink.op("MatMul", &[&x, &w], &[]);
    let y = shrink.named("my_shrink", "Shrink", &[&y], &[]);
    shrink.output(&y);
    let shrink = Model::forward(shrink.finish().to_bytes(), Loss::SoftmaxCrossEntropy);

    let two_inputs = |element| {
        let mut graph = GraphBuilder::new("two");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let mask = graph.input("mask", element, &["batch".into(), 2.into()]);
        let w = graph.weight("w", &[2, 3], &[0.1; 6]);
        let mask = graph.op("Cast", &[&mask], &[onnx::attr_int("to", 1)]);
        let x = graph.op("Mul", &[&x, &mask], &[]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        Model::forward(graph.finish().to_bytes(), Loss::SoftmaxCrossEntropy)
    };

    let with = |data: &DataSpec| graph("bad", Training::new(model(2), data.clone()));
    let half = Training::new(model(2), good.clone()).with(|s| s.precision = Precision::Bf16);
    let half = graph("bad", half);
    let of = |model: Model| graph("bad", Training::new(model, good.clone()));
    let mut truncated = onnx::mlp(&[2, 8, 3], 1).to_bytes();
    truncated.truncate(truncated.len() / 2);
    // As a job file may say it, where nodes have names only.
    let evaluate = |name: &str, after: &[&str]| GraphNode {
        name: name.to_owned(),
        after: after.iter().map(|&name| name.to_owned()).collect(),
        retries: 0,
        work: NodeWork::Evaluate,
    };
    let nodes = |train: bool, others: Vec<GraphNode>| {
        let mut job = graph("bad", Training::new(model(2), good.clone()));
        job.nodes.truncate(usize::from(train));
        job.nodes.extend(others);
        job
    };
    let cycle = nodes(true, vec![evaluate("a", &["train", "b"]), evaluate("b", &["a"])]);

    #[rustfmt::skip]
    let cases: Vec<(&str, JobGraph, &[&str])> = vec![
        ("missing model",       of(Model::forward(dir.path().join("no.onnx"), Loss::MeanSquaredError)),                 &["E360", "no.onnx"]),
        ("truncated model",     of(Model::forward(truncated, Loss::SoftmaxCrossEntropy)),                &["E30"]),
        ("not a model",         of(Model::forward(b"hello world".to_vec(), Loss::SoftmaxCrossEntropy)),  &["E30"]),
        ("unsupported op",      of(shrink),                                                              &["E310", "Shrink", "my_shrink"]),
        ("no kernel",           half,                                                                  &["E470", "bf16", "Gemm"]),
        ("missing data",        with(&missing),                                                        &["E33", "gone.csv"]),
        ("short line",          with(&short),                                                          &["E33", "14"]),
        ("label out of range",  with(&label),                                                          &["E33", "21", "3"]),
        ("nan feature",         with(&nan),                                                            &["E33", "8"]),
        ("wrong width",         of(model(4)),                                                          &["E362", "4", "2"]),
        ("two inputs",          of(two_inputs(ElementType::F32)),                                      &["E363", "x, mask", "safetensors"]),
        ("input of no numbers", of(two_inputs(ElementType::F16)),                                      &["E485", "mask", "float16"]),
        ("bad name",            graph("Bad Job", Training::new(model(2), good.clone())),               &["E001", "Bad Job"]),
        ("cycle",               cycle,                                                                 &["E025", "b -> a -> b"]),
        ("no training",         nodes(false, vec![evaluate("test", &[])]),                             &["E020"]),
        ("unknown edge",        nodes(true, vec![evaluate("s", &["x"])]),                              &["E024", "x"]),
        ("batch too large",     graph("bad", Training::new(model(2), good.clone()).with(|s| s.batch = 49)), &["E028", "49", "48"]),
        ("pieces of nothing",   graph("bad", Training::new(model(2), good.clone()).with(|s| s.micro_batch = Some(0))), &["E027", "micro_batch is 0"]),
        ("zero epochs",         graph("bad", Training::new(model(2), good.clone()).with(|s| s.epochs = 0)), &["E027", "epochs"]),
        ("rate not positive",   graph("bad", Training::new(model(2), good.clone()).with(|s| s.learning_rate = Some(f32::NAN))), &["E027", "NaN"]),
        ("clip not positive",   graph("bad", Training::new(model(2), good.clone()).with(|s| s.clip_norm = Some(0.0))), &["E027", "clip_norm 0,"]),
        ("group of no factor",  graph("bad", Training::new(model(2), good.clone()).with(|s| s.groups = vec![ParameterGroup::of(["*"]).learning_rate_factor(0.0)])), &["E027", "learning_rate_factor = 0,"]),
        ("group of no decay",   graph("bad", Training::new(model(2), good.clone()).with(|s| s.groups = vec![ParameterGroup::of(["*"]).weight_decay(-1.0)])), &["E027", "weight_decay = -1,"]),
        ("group of nobody",     graph("bad", Training::new(model(2), good.clone()).with(|s| s.groups = vec![ParameterGroup::of(["*.biases"]).learning_rate_factor(0.1)])), &["E378", "group 1", "`*.biases`"]),
        ("group of no effect",  graph("bad", Training::new(model(2), good.clone()).with(|s| s.groups = vec![ParameterGroup::of(["*"])])), &["E379", "group 1 changes nothing"]),
        ("top-k of nothing",    graph("bad", Training::new(model(2), good.clone()).with(|s| s.compression = Compression::TopK(0.0))), &["E027", "top-k 0,"]),
        ("top-k of too much",   graph("bad", Training::new(model(2), good.clone()).with(|s| s.compression = Compression::TopK(0.6))), &["E027", "up to 0.5"]),
        ("top-k of no number",  graph("bad", Training::new(model(2), good.clone()).with(|s| s.compression = Compression::TopK(f32::NAN))), &["E027", "top-k NaN"]),
        ("no time to wait",     graph("bad", Training::new(model(2), good.clone()).with(|s| s.queue_limit_s = Some(0))), &["E027", "queue_limit_s is 0"]),
        ("ahead too far",       graph("bad", Training::new(model(2), good.clone()).with(|s| s.ahead = Some(65))), &["E027", "ahead 65,"]),
    ];
    for (name, graph, wanted) in cases {
        let error = try_job(&cluster, &graph).await.unwrap_err();
        let text = format!("{error}");
        for word in wanted {
            assert!(text.contains(word), "{name}: `{word}` is not in: {text}");
        }
        assert!(error.hint().is_some(), "{name}");
        assert_eq!(job_keys(&store).await, Vec::<String>::new(), "{name} left something");
    }

    // The engine's own check, for a client that does not ask its own.
    let mut prepared =
        submit::prepare(cluster.runtime(), &graph("blobless", Training::new(model(2), good.clone())))
            .unwrap();
    prepared.blobs = BTreeMap::new().into();
    let error = cluster.client().submit_prepared(prepared).await.unwrap_err().to_string();
    assert!(error.contains("E132"), "{error}");
    assert_eq!(job_keys(&store).await, Vec::<String>::new());
    assert_eq!(cluster.client().jobs().await.unwrap(), vec![]);

    // The same job again is that job, and another one of its name changes nothing of it.
    let first = graph("twice", Training::new(model(2), good.clone()));
    try_job(&cluster, &first).await.unwrap();
    try_job(&cluster, &first).await.unwrap();
    let other = graph("twice", Training::new(model(2), good.clone()).with(|s| s.learning_rate = Some(0.125)));
    let error = try_job(&cluster, &other).await.unwrap_err().to_string();
    assert!(error.contains("E130") && error.contains("twice"), "{error}");
    let view = cluster.client().wait(&"twice".parse().unwrap(), |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done);

    for unknown in [
        cluster.client().status(&"nobody".parse().unwrap()).await.map(drop),
        cluster.client().cancel(&"nobody".parse().unwrap()).await,
    ] {
        assert!(unknown.unwrap_err().to_string().contains("E131"));
    }
    let over = cluster.client().cancel(&"twice".parse().unwrap()).await.unwrap_err().to_string();
    assert!(over.contains("E137") && over.contains("done"), "{over}");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_is_not_a_number_fails_the_job_by_name_or_is_skipped_for_an_epoch() {
    let cluster = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(&dir.path().join("data.csv"), |_, _| {});
    let hot = |id: &str, on_nan| {
        let training = Training::new(model(2), data.clone()).with(|s| {
            s.learning_rate = Some(1e30);
            s.batch = 4;
            s.epochs = 3;
            s.on_nan = on_nan;
            s.policy = "asp".parse().unwrap();
        });
        let mut job = JobGraph::new(id);
        job.train("train", training);
        job
    };
    try_job(&cluster, &hot("fails", OnNan::Fail)).await.unwrap();
    let failed = cluster.client().wait(&"fails".parse().unwrap(), |_| {}).await.unwrap_err();
    let ClientError::JobFailed { code, reason, .. } = &failed else { panic!("{failed}") };
    assert_eq!(code, "E351");
    assert!(reason.contains("it/w") && reason.contains("worker w"), "{reason}");
    assert!(reason.contains("a smaller learning rate"), "{reason}");

    let huge = write_data(&dir.path().join("huge.csv"), |i, line| *line = format!("3e38,3e38,{}", i % 3));
    let policies = ["asp", "bsp", "local-sgd:4"];
    for (policy, id) in policies.iter().zip(["huge-asp", "huge-bsp", "huge-local"]) {
        let training = Training::new(model(2), huge.clone()).with(|s| s.policy = policy.parse().unwrap());
        let mut job = JobGraph::new(id);
        job.train("train", training);
        try_job(&cluster, &job).await.unwrap();
        let failed = cluster.client().wait(&id.parse().unwrap(), |_| {}).await.unwrap_err().to_string();
        assert!(
            failed.contains("[E351]") && failed.contains("no step has changed the parameters yet"),
            "{failed}"
        );
    }

    try_job(&cluster, &hot("skips", OnNan::Skip)).await.unwrap();
    let failed = cluster.client().wait(&"skips".parse().unwrap(), |_| {}).await.unwrap_err();
    let ClientError::JobFailed { code, reason, .. } = &failed else { panic!("{failed}") };
    assert!(code == "E596" && reason.contains("iterations, a whole epoch, were skipped"), "{failed}");
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_job_is_left_aside_and_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let redis_dir = dir.path().join("redis");
    let redis = tokio::task::spawn_blocking(move || {
        let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap().path;
        RedisServer::start(&program, RedisOptions::new(redis_dir)).unwrap()
    })
    .await
    .unwrap();
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let state = JobKeys::new(&"damaged".parse().unwrap()).state;
    let _: u64 = store.query("list", &["ZADD", keys::JOBS, "1", "damaged"]).await.unwrap();
    let _: u64 =
        store.query("damage", &["HSET", &state, "epoch", "0", "seq", "3", "spec", "nonsense"]).await.unwrap();

    let options = LocalOptions { redis: Some(redis.url()), ..LocalOptions::default() };
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let data = write_data(&dir.path().join("data.csv"), |_, _| {});
    let named = |id: &str| graph(id, Training::new(model(2), data.clone()).with(|s| s.batch = 8));
    let error = try_job(&cluster, &named("damaged")).await.unwrap_err().to_string();
    assert!(error.contains("E130") && error.contains("damaged"), "{error}");
    try_job(&cluster, &named("sound")).await.unwrap();
    let view = cluster.client().wait(&"sound".parse().unwrap(), |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done);
    cluster.stop().await.unwrap();
}
