//! Tables of which only the rows of a batch travel, through whole jobs: what they learn is what whole tables
//! learn.

use std::{fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use syncline::{Loss, Metric};
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64};
use syncline_scheduler::spec::{DataSpec, Optimizer, ParameterKind, Source, Split};
use syncline_workers::{
    local::LocalCluster,
    submit::{self, JobGraph, Model, Settings, SubmitError, Training},
};

use crate::trained::{cluster, trained};

const SAMPLES: usize = 480;
const USERS: usize = 700;
const ITEMS: usize = 300;
const WIDTH: usize = 33;
const ADAM: Optimizer =
    Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: false };

/// A rating is a weighted product of two rows and the sum of two biases. `tied`: a head reads the items'
/// table as well.
fn model(tied: bool) -> Vec<u8> {
    let mut random = SplitMix64::new(7);
    let mut numbers = |count: usize| (0..count).map(|_| random.normal() as f32 * 0.3).collect::<Vec<f32>>();
    let mut graph = GraphBuilder::new("ratings");
    let user = graph.input("user", ElementType::I64, &["batch".into()]);
    let item = graph.input("item", ElementType::I64, &["batch".into()]);
    let users = graph.weight("users.weight", &[USERS, WIDTH], &numbers(USERS * WIDTH));
    let users_bias = graph.weight("users.bias", &[USERS, 1], &numbers(USERS));
    let items = graph.weight("items.weight", &[ITEMS, WIDTH], &numbers(ITEMS * WIDTH));
    let items_bias = graph.weight("items.bias", &[ITEMS + 5, 1], &numbers(ITEMS + 5));
    let head = graph.weight("head.weight", &[WIDTH, 1], &numbers(WIDTH));
    let of_user = graph.op("Gather", &[&users, &user], &[]);
    let of_item = graph.op("Gather", &[&items, &item], &[]);
    let product = graph.op("Mul", &[&of_user, &of_item], &[]);
    let mut rating = graph.op("MatMul", &[&product, &head], &[]);
    if tied {
        let all = graph.transpose(&items, &[1, 0]);
        let scores = graph.op("MatMul", &[&of_user, &all], &[]);
        let axes = graph.ints("axes", &[1]);
        let sum = graph.op("ReduceSum", &[&scores, &axes], &[]);
        rating = graph.op("Add", &[&rating, &sum], &[]);
    }
    for (bias, ids) in [(&users_bias, &user), (&items_bias, &item)] {
        let bias = graph.op("Gather", &[bias, ids], &[]);
        rating = graph.op("Add", &[&rating, &bias], &[]);
    }
    graph.output(&rating);
    graph.finish().to_bytes()
}

fn data(dir: &Path) -> DataSpec {
    let path = dir.join("ratings.safetensors");
    let mut random = SplitMix64::new(11);
    let mut ids = |below: usize| -> Vec<u8> {
        let ids = (0..SAMPLES).map(|_| (random.normal().abs() * 1e6) as i64 % below as i64);
        ids.flat_map(i64::to_le_bytes).collect()
    };
    let (users, items) = (ids(USERS), ids(ITEMS));
    let ratings: Vec<u8> = (0..SAMPLES).flat_map(|n| ((n % 5) as f32 - 2.0).to_le_bytes()).collect();
    let tensors = [
        ("user", TensorView::new(Dtype::I64, vec![SAMPLES], &users).unwrap()),
        ("item", TensorView::new(Dtype::I64, vec![SAMPLES], &items).unwrap()),
        ("label", TensorView::new(Dtype::F32, vec![SAMPLES, 1], &ratings).unwrap()),
    ];
    fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let source = Source::safetensors(&path);
    DataSpec { split: Split::TestEvery(5), ..DataSpec::new(source) }
}

fn job(id: &str, data: &DataSpec, tied: bool, change: impl FnOnce(&mut Settings)) -> JobGraph {
    let training =
        Training::new(Model::forward(model(tied), Loss::MeanSquaredError), data.clone()).with(|settings| {
            settings.learning_rate = Some(0.05);
            settings.batch = 16;
            settings.epochs = 3;
            settings.policy = "bsp".parse().unwrap();
            change(settings);
        });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.evaluate("test", &train);
    job.snapshot("weights", &train);
    job
}

/// Trains, and returns the trained parameters and the test loss.
async fn train(cluster: &LocalCluster, graph: &JobGraph) -> (Vec<u8>, f64) {
    let job = trained(cluster, graph).await;
    let epochs = job.samples_applied / (SAMPLES as u64 * 4 / 5);
    assert_eq!(job.samples_applied, epochs * SAMPLES as u64 * 4 / 5, "{}", job.id);
    (fs::read(job.snapshot.unwrap()).unwrap(), job.test[Metric::Loss].unwrap())
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sgd_rows_learn_what_whole_tables_learn_bit_for_bit_over_any_number_of_shards() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    for shards in 1..=3 {
        let cluster = cluster(shards, 1).await;
        for policy in ["bsp", "asp"] {
            let mut ends = Vec::new();
            for sparse in [Vec::new(), all()] {
                let id = format!("{policy}-{}", sparse.len());
                let graph = job(&id, &data, false, |settings| {
                    settings.policy = policy.parse().unwrap();
                    settings.sparse = sparse;
                });
                ends.push(train(&cluster, &graph).await);
            }
            let tensors = ends.iter().map(|(file, _)| SafeTensors::deserialize(file).unwrap());
            let [whole, rows] = &tensors.collect::<Vec<_>>()[..] else { unreachable!("two jobs") };
            for (name, tensor) in whole.tensors() {
                assert_eq!(
                    tensor.data(),
                    rows.tensor(&name).unwrap().data(),
                    "{policy}, {shards} shards: {name}"
                );
            }
            assert_eq!(ends[0].1, ends[1].1, "{policy}: evaluated on the same parameters");
        }
        cluster.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_learns_by_rows_with_lazy_moments() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let cluster = cluster(2, 2).await;
    let momentum = Optimizer::Momentum { momentum: 0.9, nesterov: true, weight_decay: 1e-4 };
    let policies = ["bsp", "asp", "ssp:2", "dssp:1:4", "lb-bsp", "elastic-bsp:4", "elastic-lb:4", "auto"];
    for (n, policy) in policies.into_iter().enumerate() {
        let graph = job(&format!("lazy-{n}"), &data, false, |settings| {
            settings.policy = policy.parse().unwrap();
            settings.optimizer = if n % 2 == 0 { ADAM } else { momentum };
            settings.learning_rate = Some(if n % 2 == 0 { 0.02 } else { 0.01 });
            settings.sparse = all();
            settings.min_workers = 2;
            settings.clip_norm = Some(5.0);
        });
        // Ratings are what their place says, so that nothing is to be learned of others: that it counts and
        // ends is enough.
        let (_, loss) = train(&cluster, &graph).await;
        assert!(loss.is_finite() && loss < 20.0, "{policy}: {loss}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_all_of_is_read_trains_as_a_whole_and_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(dir.path());
    let cluster = cluster(1, 1).await;
    let graph = job("tied", &data, true, |settings| {
        settings.sparse = all();
        settings.learning_rate = Some(1e-4);
    });
    let prepared = submit::prepare(cluster.runtime(), &graph).unwrap();
    let said = prepared.warnings.join("\n");
    assert!(said.contains("`items.weight`") && said.contains("`items.bias`"), "{said}");
    let (_, spec) = prepared.spec.train().unwrap();
    let tables: Vec<&str> = (spec.model.layout.0.iter())
        .filter(|p| matches!(p.kind, ParameterKind::Rows { .. }))
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(tables, ["users.weight", "users.bias"]);
    train(&cluster, &graph).await;

    let refused = |tied, change: fn(&mut Settings)| -> SubmitError {
        submit::prepare(cluster.runtime(), &job("refused", &data, tied, change)).unwrap_err()
    };
    type Change = fn(&mut Settings);
    #[rustfmt::skip]
    let cases: [(bool, Change, &str); 8] = [
        (true,  |s| s.sparse = vec!["items.weight".into()],                                        "E264"),
        (true,  |s| s.sparse = vec!["items.bias".into()],                                          "E264"),
        (false, |s| s.sparse = vec!["head.weight".into()],                                         "E264"),
        (false, |s| { s.freeze = vec!["items.*".into()]; s.sparse = vec!["items.weight".into()] }, "E264"),
        (false, |s| s.sparse = vec!["nothing.*".into()],                                           "E317"),
        (false, |s| { s.sparse = all(); s.policy = "local-sgd:4".parse().unwrap() },               "E027"),
        (false, |s| { s.sparse = all(); s.compression = syncline_scheduler::spec::Compression::Bf16 }, "E027"),
        (false, |s| { s.sparse = all(); s.pull_compression = syncline_scheduler::spec::PullCompression::Fp16 }, "E027"),
    ];
    for (tied, change, code) in cases {
        let error = refused(tied, change).to_string();
        assert!(error.contains(&format!("[{code}]")), "{error}");
    }
    let idle = job("idle", &data, false, |s| s.sparse = vec!["head.*".into()]);
    let said = submit::prepare(cluster.runtime(), &idle).unwrap().warnings.join("\n");
    assert!(said.contains("`head.*` of `sparse` trains no table by rows"), "{said}");
    let frozen = job("frozen", &data, false, |s| (s.sparse, s.freeze) = (all(), vec!["users.*".into()]));
    let said = submit::prepare(cluster.runtime(), &frozen).unwrap().warnings.join("\n");
    assert!(said.contains("`users.weight`, which `sparse` means, is not trained ("), "{said}");
    cluster.stop().await.unwrap();
}
