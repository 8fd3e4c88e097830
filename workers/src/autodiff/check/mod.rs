//! Checks a derived training graph on random numbers: its gradients against differences of its own loss.
//!
//! In: a forward model, a loss, the sizes of open axes. Out: for each parameter how far the gradient is off, and what
//! a step costs. The differences are central, along directions that mix the gradient with random numbers, so that the
//! cost is a few evaluations per parameter and not two per element. They are taken in float64 if ONNX Runtime has a
//! float64 form of every operator, else in float32, where they are good to a few per cent only.
//!
//! The loss is that of training, so that normalisation uses the batch; Dropout, which no two runs have in common, is
//! taken out first.

mod double;
mod feed;

use std::collections::HashMap;

use super::derive::{DeriveOptions, TrainingGraph, derive};
use super::error::AutodiffError;
use super::estimate::{Estimate, estimate};
use super::loss::Loss;
use super::recompute::NOMINAL_AXIS;
use super::sizes::sizes;
use super::{GRAD_SUFFIX, LOSS};
use crate::backend::{BackendError, ExecOptions, Executable, Runtime};
use crate::onnx::SplitMix64;
use crate::onnx::{self, ElementType};
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
    /// Cost of one step on the batch.
    pub cost: Estimate,
    /// The same if cheap values are made again.
    pub recomputed: Estimate,
    pub batch: usize,
}

/// How far a gradient is off.
#[derive(Debug, Clone)]
pub struct CheckedParam {
    pub name: String,
    /// Euclidean norm of the gradient.
    pub norm: f64,
    /// Largest difference along a direction, relative to the norm.
    pub error: f64,
}

impl Checked {
    /// Largest error that passes.
    pub fn tolerance(&self) -> f64 {
        if self.differences == ElementType::F64 { 1e-3 } else { 5e-2 }
    }
}

/// Directions in which each gradient is looked at.
const DIRECTIONS: usize = 3;
/// Steps of the differences, as shares of the widest: kinks spoil wide ones, rounding narrow ones, and a wrong gradient
/// agrees with none.
const STEPS: [f64; 3] = [1.0, 0.25, 0.0625];
/// Gradients below this share of the largest are rounding errors of zero.
const FLOOR: f64 = 1e-4;

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
    let cost = cost(runtime, &graph)?;
    let recomputing = DeriveOptions { recompute: true, ..derive_options.clone() };
    let recomputed = derive(runtime, &model.to_bytes(), loss, &recomputing)?.saving.map_or(cost, |s| s.with);
    let mut random = SplitMix64::new(options.seed);
    let mut fed = feed::draw(&model, &graph, &mut random)?;
    let (value, grads) = gradients(runtime, &graph, &fed)?;
    let mut differences = Differences::new(runtime, &graph, value)?;
    let largest = grads.iter().map(|grad| norm(grad)).fold(0.0, f64::max);

    let mut params = Vec::with_capacity(grads.len());
    for (index, grad) in grads.iter().enumerate() {
        let scale = norm(grad).max(largest * FLOOR).max(f64::MIN_POSITIVE);
        let mut error = 0.0f64;
        for _ in 0..DIRECTIONS {
            let direction = direction(grad, &mut random);
            let expected: f64 = grad.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let mut closest = f64::INFINITY;
            for share in STEPS {
                let slope = differences.slope(&mut fed, index, &direction, (scale, share))?;
                closest = closest.min((slope - expected).abs() / scale);
            }
            error = error.max(closest);
        }
        params.push(CheckedParam { name: graph.params[index].name.clone(), norm: norm(grad), error });
    }
    Ok(Checked {
        loss: value,
        params,
        differences: differences.element,
        cost,
        recomputed,
        batch: options.batch,
    })
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A unit vector, half along the gradient and half random.
fn direction(grad: &[f64], random: &mut SplitMix64) -> Vec<f64> {
    let noise: Vec<f64> = grad.iter().map(|_| random.normal()).collect();
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

/// The loss as a function of the parameters.
struct Differences {
    session: Executable,
    element: ElementType,
    loss: f64,
    /// Where the first parameter stands among what is fed.
    first: usize,
}

impl Differences {
    fn new(runtime: &Runtime, graph: &TrainingGraph, loss: f64) -> Result<Self, AutodiffError> {
        let options = ExecOptions::default();
        let mut training = onnx::parse(&graph.train_onnx)?;
        // What only other outputs need is dropped when the model is loaded.
        training.graph.iter_mut().for_each(|graph| graph.output.retain(|output| output.name == LOSS));
        let wide = double::to_f64(&training);
        let (session, element) = match Executable::new(runtime, &wide.to_bytes(), &options) {
            Ok(session) => (session, ElementType::F64),
            Err(_) => (Executable::new(runtime, &training.to_bytes(), &options)?, ElementType::F32),
        };
        let first = graph.data_inputs.len() + usize::from(graph.label.is_some());
        Ok(Self { session, element, loss, first })
    }

    /// The slope of the loss along a direction of one parameter whose gradient has about this norm, by a step that is
    /// this share of the widest.
    fn slope(
        &mut self,
        fed: &mut [Fed],
        param: usize,
        along: &[f64],
        (norm, share): (f64, f64),
    ) -> Result<f64, BackendError> {
        let step = match self.element {
            ElementType::F64 => 1e-5,
            // Between the rounding of the loss and its curvature.
            _ => (5e-4 * (1.0 + self.loss.abs()) / norm).clamp(1e-4, 3e-2),
        };
        let step = step * share;
        let start = fed[self.first + param].numbers().to_vec();
        let mut at = |step: f64| -> Result<f64, BackendError> {
            let moved = start.iter().zip(along).map(|(x, d)| x + step * d).collect();
            fed[self.first + param].set_numbers(moved);
            match self.element {
                ElementType::F64 => {
                    let outputs = self.session.run(&feed::views(fed))?;
                    Ok(outputs.f64(LOSS)?.first().copied().unwrap_or(f64::NAN))
                }
                _ => Ok(f64::from(self.session.run(&feed::narrow(fed).views())?.scalar(LOSS)?)),
            }
        };
        let slope = (at(step)? - at(-step)?) / (2.0 * step);
        fed[self.first + param].set_numbers(start);
        Ok(slope)
    }
}
