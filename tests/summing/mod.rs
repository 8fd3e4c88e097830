//! A model that adds up the images it trains on: its gradient is the mean of a batch, so that with SGD and
//! learning rate 1 every weight is minus the sum of what its pixel was, over the number of images in a batch
//! and of pixels in an image. All of these are powers of two and pixels are bytes: no rounding, in whatever
//! order the batches come.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{fs, path::Path};

use syncline::Loss;
use syncline_onnx::{ElementType, GraphBuilder, TensorView, attr_int, attr_ints};
use syncline_scheduler::spec::{Augment, DataElement, DataSpec, Source};
use syncline_workers::{
    data::{Dataset, InputSignature, ModelSignature, Pass},
    submit::{JobGraph, Model, Training},
};

/// Channels, height and width.
const IMAGE: [usize; 3] = [2, 8, 8];
const PIXELS: usize = 128;
pub const BATCH: u32 = 4;

/// Mirrored, cut out, and with a square covered.
pub const ALL: Augment = Augment { flip: true, crop: 3, cutout: 3 };

/// So many images, which are written to `folder`: no pixel is 0, and no two images are alike.
pub fn data(folder: &Path, samples: usize, augment: Augment) -> DataSpec {
    let path = folder.join("images.safetensors");
    let pixels: Vec<u8> = (0..samples * PIXELS).map(|at| (at * at / 7 % 254 + 1) as u8).collect();
    let shape = [&[samples], &IMAGE[..]].concat();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::U8, shape, &pixels).unwrap();
    fs::write(&path, safetensors::serialize([("x", view)], None).unwrap()).unwrap();
    DataSpec::new(Source::safetensors(path)).with(|d| d.augment = augment)
}

/// Trains on these images, in batches of [`BATCH`].
pub fn job(id: &str, data: DataSpec, policy: &str, epochs: u32) -> JobGraph {
    let mut graph = GraphBuilder::new("sum");
    let dims = ["batch".into(), IMAGE[0].into(), IMAGE[1].into(), IMAGE[2].into()];
    let x = graph.input("x", ElementType::F32, &dims);
    let weight = graph.weight("weight", &IMAGE, &[0.0; PIXELS]);
    let product = graph.op("Mul", &[&x, &weight], &[]);
    let loss = graph.op("ReduceMean", &[&product], &[attr_ints("axes", &[1, 2, 3]), attr_int("keepdims", 0)]);
    graph.output(&loss);
    let model = Model::forward(graph.finish().to_bytes(), Loss::Output);
    let training = Training::new(model, data).with(|s| {
        (s.batch, s.epochs, s.learning_rate, s.seed) = (BATCH, epochs, Some(1.0), 11);
        s.policy = policy.parse().unwrap();
    });
    let mut job = JobGraph::new(id);
    let train = job.train("train", training);
    job.snapshot("weights", &train);
    job
}

/// What the weights of [`job`] are in the end where each batch is a step: from the images alone, one by one.
pub fn expected(data: &DataSpec, epochs: u32) -> Vec<f32> {
    let shape = IMAGE.map(Some).to_vec();
    let input = InputSignature { name: "x".to_owned(), element: DataElement::F32, shape, rows: Vec::new() };
    let set = Dataset::open(data, &ModelSignature { inputs: vec![input], label: None }).unwrap();
    let (mut sums, mut batch) = (vec![0f64; PIXELS], set.batch());
    for epoch in 0..epochs {
        for row in 0..set.len() as u32 {
            set.gather_to_train(&[row], Pass { seed: 11, epoch }, &mut batch).unwrap();
            let Some(TensorView::F32 { data, .. }) = batch.inputs().next() else { unreachable!("floats") };
            sums.iter_mut().zip(data).for_each(|(sum, pixel)| *sum += f64::from(*pixel));
        }
    }
    sums.into_iter().map(|sum| (-sum / f64::from(BATCH) / PIXELS as f64) as f32).collect()
}

/// The weights in a snapshot.
pub fn weights(snapshot: impl AsRef<Path>) -> Vec<f32> {
    let bytes = fs::read(snapshot).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let numbers = tensors.tensor("weight").unwrap().data().as_chunks().0.iter();
    numbers.map(|number| f32::from_le_bytes(*number)).collect()
}
