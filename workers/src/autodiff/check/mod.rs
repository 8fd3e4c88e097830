//! Checks a training graph on random numbers: its gradients against differences of its own loss.
//!
//! In: a forward model and a loss, or a training graph; the sizes of open axes. Out: for each parameter how far the
//! gradient is off, and what a step costs. The differences are central, along the gradient itself, which finds one that
//! is scaled or turned, and along directions that mix it with random numbers, which find parts that are missing; so that
//! the cost is a few evaluations per parameter and not two per element. They are taken in float64, where operators
//! without a float64 kernel are written as others (`rules::float64_form`); if one remains, in float32, where they are
//! good to a few per cent only.
//!
//! The loss is that of training, so that normalisation uses the batch; Dropout, which no two runs have in common, is
//! taken out first, and other random operators are refused.

mod differences;
mod double;
mod feed;

use std::collections::HashMap;

use super::derive::derive;
use super::error::AutodiffError;
use super::estimate::{Estimate, estimate};
use super::loss::Loss;
use super::options::DeriveOptions;
use super::recompute::NOMINAL_AXIS;
use super::sizes::sizes;
use super::training_graph::TrainingGraph;
use super::{GRAD_SUFFIX, LOSS};
use crate::backend::{BackendError, ExecOptions, Executable, Runtime};
use crate::onnx::SplitMix64;
use crate::onnx::{self, ElementType};
use differences::Differences;
use feed::{Fed, fix_dims};

/// How to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Samples in the random batch.
    pub batch: usize,
    /// Sizes of open axes other than the batch, by name; 4 for those that are not listed.
    pub dims: HashMap<String, usize>,
    pub seed: u64,
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct Checked {
    pub loss: f64,
    pub params: Vec<CheckedParam>,
    /// Element type of the differences.
    pub differences: ElementType,
    /// Element type of the gradients that they are compared with.
    pub gradients: ElementType,
    /// Cost of one step on the batch.
    pub cost: Estimate,
    /// The same if cheap values are made again; `None` for a graph that was made elsewhere.
    pub recomputed: Option<Estimate>,
    pub batch: usize,
}

/// How far a gradient is off.
#[derive(Debug, Clone)]
pub struct CheckedParam {
    pub name: String,
    /// Euclidean norm of the gradient.
    pub norm: f64,
    /// Largest difference along a direction, relative to the norm; in float64 if the differences are.
    pub error: f64,
    /// How far the gradient in float32 is from that in float64, relative to the norm; 0 if there is no float64.
    pub rounding: f64,
}

impl Checked {
    /// Largest error that passes.
    pub fn tolerance(&self) -> f64 {
        match (self.differences, self.gradients) {
            (ElementType::F64, ElementType::F64) => 1e-4,
            // Float32 gradients may be on the other side of a kink.
            (ElementType::F64, _) => 1e-3,
            _ => 3e-2,
        }
    }

    /// Whether a gradient is right, as far as this check can tell.
    pub fn passes(&self, param: &CheckedParam) -> bool {
        param.error <= self.tolerance() && param.rounding <= MOST_ROUNDING
    }
}

/// Random directions in which each gradient is looked at, beside its own.
const MIXED_DIRECTIONS: usize = 3;
/// Gradients below this share of the largest are rounding errors of zero.
const FLOOR: f64 = 1e-4;
/// Most that float32 may change: some elements next to a kink may be on its other side.
const MOST_ROUNDING: f64 = 5e-2;

/// Derives the training graph with all axes fixed and checks it.
pub fn check(
    runtime: &Runtime,
    forward: &[u8],
    loss: Loss,
    derive_options: &DeriveOptions,
    options: &CheckOptions,
) -> Result<Checked, AutodiffError> {
    let mut model = onnx::parse(forward)?;
    fix_dims(&mut model, options);
    feed::silence_dropout(&mut model);
    let graph = derive(runtime, &model.to_bytes(), loss, derive_options)?;
    let recomputing = DeriveOptions { recompute: true, ..derive_options.clone() };
    let saving = derive(runtime, &model.to_bytes(), loss, &recomputing)?.saving;
    let checked = check_graph(runtime, &graph, options)?;
    Ok(Checked { recomputed: saving.map(|saving| saving.with), ..checked })
}

/// Checks a training graph, derived or made elsewhere.
pub fn check_graph(
    runtime: &Runtime,
    graph: &TrainingGraph,
    options: &CheckOptions,
) -> Result<Checked, AutodiffError> {
    let graph = &feed::of_fixed_size(graph, options)?;
    refuse_randomness(graph)?;
    let cost = cost(runtime, graph)?;
    let mut random = SplitMix64::new(options.seed);
    let mut fed = feed::draw(graph, &mut random)?;
    let (value, rough) = gradients(runtime, graph, &fed)?;
    let mut differences = Differences::new(runtime, graph, value)?;
    let exact = differences.gradients(graph, &fed)?;
    let grads = exact.as_ref().unwrap_or(&rough);
    let largest = grads.iter().map(|grad| norm(grad)).fold(0.0, f64::max);
    let floor = |least: f64| (largest * FLOOR).max(least * (1.0 + value.abs()));

    let mut checked = Checked {
        loss: value,
        params: Vec::new(),
        differences: differences.element,
        gradients: if exact.is_some() { ElementType::F64 } else { ElementType::F32 },
        cost,
        recomputed: None,
        batch: options.batch,
    };
    for (index, grad) in grads.iter().enumerate() {
        let scale = norm(grad).max(floor(differences.least_gradient()));
        let mut error = 0.0f64;
        for round in 0..=MIXED_DIRECTIONS {
            let direction = direction(grad, &mut random, round > 0);
            let expected: f64 = grad.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let mut closest = f64::INFINITY;
            for step in differences.steps(scale) {
                let slope = differences.slope(&mut fed, index, &direction, step)?;
                closest = closest.min((slope - expected).abs() / scale);
                if closest < checked.tolerance() / 10.0 {
                    break;
                }
            }
            error = error.max(closest);
        }
        let apart: Vec<f64> = grad.iter().zip(&rough[index]).map(|(exact, rough)| exact - rough).collect();
        let rounding = norm(&apart) / norm(grad).max(floor(1e-5));
        checked.params.push(CheckedParam {
            name: graph.params[index].name.clone(),
            norm: norm(grad),
            error,
            // What is no number passes no comparison.
            rounding: if rounding.is_nan() { f64::INFINITY } else { rounding },
        });
    }
    Ok(checked)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Refuses a graph of which no two runs compute the same.
fn refuse_randomness(graph: &TrainingGraph) -> Result<(), AutodiffError> {
    const RANDOM: [&str; 7] = [
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ];
    let inner = onnx::parse(&graph.train_onnx)?.graph.unwrap_or_default();
    let random = inner.node.into_iter().find(|node| RANDOM.contains(&node.op_type.as_str()));
    random.map_or(Ok(()), |node| {
        Err(AutodiffError::CheckRandom { node: node.label().to_owned(), op: node.op_type })
    })
}

/// A unit vector along the gradient, or half along it and half random.
fn direction(grad: &[f64], random: &mut SplitMix64, mixed: bool) -> Vec<f64> {
    let noise: Vec<f64> = grad.iter().map(|_| if mixed { random.normal() } else { 0.0 }).collect();
    let (along, across) = (norm(grad).max(f64::MIN_POSITIVE), norm(&noise).max(f64::MIN_POSITIVE));
    let mixed: Vec<f64> = grad.iter().zip(&noise).map(|(g, n)| g / along + n / across).collect();
    let length = norm(&mixed).max(f64::MIN_POSITIVE);
    mixed.into_iter().map(|x| x / length).collect()
}

fn cost(runtime: &Runtime, graph: &TrainingGraph) -> Result<Estimate, AutodiffError> {
    let model = onnx::parse(&graph.train_onnx)?;
    let types = sizes(runtime, &model, NOMINAL_AXIS)?;
    Ok(estimate(&model.graph.unwrap_or_default(), &types))
}

/// The loss and the gradient of each parameter by the training graph.
fn gradients(
    runtime: &Runtime,
    graph: &TrainingGraph,
    fed: &[Fed],
) -> Result<(f64, Vec<Vec<f64>>), BackendError> {
    let mut session = Executable::new(runtime, &graph.train_onnx, &ExecOptions::default())?;
    let inputs = feed::narrow(fed);
    let outputs = session.run(&inputs.views())?;
    let mut grads = Vec::with_capacity(graph.params.len());
    for param in &graph.params {
        let grad = outputs.f32(&format!("{}{GRAD_SUFFIX}", param.name))?;
        grads.push(grad.iter().copied().map(f64::from).collect());
    }
    Ok((f64::from(outputs.scalar(LOSS)?), grads))
}
