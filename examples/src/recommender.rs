//! Who likes what: a factorization of ratings, of whose tables only the rows of a batch travel.
//!
//! The ratings are made up, from tastes that nobody is told: what is predicted of others was learned from
//! those.

use std::{io, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use syncline::{
    DataSpec, ElementType, JobGraph, Loss, Model, Optimizer, Source, Split, Training,
    onnx::{GraphBuilder, SplitMix64},
};

use crate::Run;

/// Passes over the ratings after which those that were left out are predicted well.
pub const EPOCHS: u32 = 10;
const USERS: usize = 400;
const ITEMS: usize = 200;
const RATINGS: usize = 40_000;
/// Numbers that the made-up tastes have, and rows of the tables.
const TASTES: usize = 4;
const WIDTH: usize = 8;
const BATCH: u32 = 64;

/// Makes up ratings and writes them to `path`: every fifth one tests. They spread by about 1 around 0.
pub fn data(path: &Path) -> io::Result<DataSpec> {
    let mut random = SplitMix64::new(1);
    let mut tastes = |count: usize| -> Vec<f64> { (0..count * TASTES).map(|_| random.normal()).collect() };
    let (likes, is_like) = (tastes(USERS), tastes(ITEMS));
    let mut random = SplitMix64::new(2);
    let mut draw = |below: usize| (random.next_u64() % below as u64) as usize;
    let (mut users, mut items, mut ratings) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RATINGS {
        let (user, item) = (draw(USERS), draw(ITEMS));
        let product = (0..TASTES).map(|n| likes[user * TASTES + n] * is_like[item * TASTES + n]);
        let rating = product.sum::<f64>() / (TASTES as f64).sqrt();
        users.extend((user as i64).to_le_bytes());
        items.extend((item as i64).to_le_bytes());
        ratings.extend((rating as f32).to_le_bytes());
    }
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes);
    let write = || {
        let tensors = [
            ("user", view(Dtype::I64, &[RATINGS], &users)?),
            ("item", view(Dtype::I64, &[RATINGS], &items)?),
            ("label", view(Dtype::F32, &[RATINGS, 1], &ratings)?),
        ];
        safetensors::serialize_to_file(tensors, None, path)
    };
    write().map_err(io::Error::other)?;
    Ok(DataSpec { split: Split::TestEvery(5), ..DataSpec::new(Source::safetensors(path)) })
}

/// A rating is the product of a row for the user and one for the item.
fn model(seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let mut numbers = |count: usize| (0..count).map(|_| random.normal() as f32 * 0.3).collect::<Vec<f32>>();
    let mut graph = GraphBuilder::new("recommender");
    let mut factors = Vec::new();
    for (ids, table, rows) in [("user", "users.weight", USERS), ("item", "items.weight", ITEMS)] {
        let ids = graph.input(ids, ElementType::I64, &["batch".into()]);
        let table = graph.weight(table, &[rows, WIDTH], &numbers(rows * WIDTH));
        factors.push(graph.op("Gather", &[&table, &ids], &[]));
    }
    let product = graph.op("Mul", &[&factors[0], &factors[1]], &[]);
    let last = graph.ints("last", &[-1]);
    let rating = graph.op("ReduceSum", &[&product, &last], &[]);
    graph.output(&rating);
    graph.finish().to_bytes()
}

/// Train, then test and save.
pub fn job(run: &Run<'_>, data: DataSpec) -> JobGraph {
    let model = Model::forward(model(run.seed), Loss::MeanSquaredError);
    let training = Training::new(model, data).with(|s| {
        run.set(s, 0.03);
        s.optimizer = Optimizer::adam();
        s.batch = BATCH;
        s.sparse = vec!["*.weight".to_owned()];
    });
    JobGraph::of_training(run.id, training)
}
