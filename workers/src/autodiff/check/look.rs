//! A quick look at a training graph before it is used: one difference of its loss along one random direction.
//!
//! In a second at most, whatever the model: what would take longer is left to [`check_graph`](super::check_graph). Only
//! where the difference disagrees, everything is looked at closely, so that nothing right is refused for a kink or for
//! rounding.

use std::time::{Duration, Instant};

use super::differences::Differences;
use super::feed::Fed;
use super::groups::{Direction, direction};
use super::place::place;
use super::{CheckOptions, Checked, check_graph, feed, floor, frozen, gradients, sizes_of};
use crate::autodiff::error::AutodiffError;
use crate::autodiff::training_graph::{Param, TrainingGraph};
use crate::backend::{Runtime, stage};
use crate::onnx::{self, SplitMix64};

/// What a quick look says.
#[derive(Debug, Clone, PartialEq)]
pub enum Looked {
    /// The gradients are those of the loss along the direction.
    Right,
    /// It could not be told, for this reason.
    Unknown(String),
}

/// Samples in the random batch.
const BATCH: usize = 2;
/// Sizes that open axes are tried with: small ones are quick, but no window may be larger than its image.
const AXES: [usize; 3] = [4, 16, 64];
/// When a large graph is left alone.
const PATIENCE: Duration = Duration::from_millis(400);
/// Most that the difference may be off, in units of one gradient, before everything is looked at closely.
const SUSPICIOUS: f64 = 2e-2;

/// The same for a difference in float32, as a share of all that the direction changes.
const SUSPICIOUS_ROUGHLY: f64 = 0.1;
/// Graphs up to this size are quickly written and loaded in float64.
const MOST_NODES: usize = 1000;
const MOST_NUMBERS: usize = 1 << 17;

/// Compares the gradients with one difference of the loss. Refuses a graph whose gradients are wrong.
pub fn look(runtime: &Runtime, graph: &TrainingGraph) -> Result<Looked, AutodiffError> {
    stage::enter("compare the gradients along one direction");
    let began = Instant::now();
    let mut unknown = Looked::Unknown(String::new());
    for axis in AXES {
        match look_at(runtime, graph, axis, began) {
            Ok(Some(suspicious)) if suspicious => return closely(runtime, graph, axis),
            Ok(Some(_)) => return Ok(Looked::Right),
            Ok(None) => {
                let reason = "its loss is no number, or a step of it takes too long for a quick look";
                return Ok(Looked::Unknown(reason.to_owned()));
            }
            // Inputs of other sizes may do; what the model cannot be fed with, a job can all the same.
            Err(error) => unknown = Looked::Unknown(error.to_string()),
        }
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    Ok(unknown)
}

/// Whether the difference disagrees; `None` if there is no time to find out, or the loss is no number.
fn look_at(
    runtime: &Runtime,
    graph: &TrainingGraph,
    axis: usize,
    began: Instant,
) -> Result<Option<bool>, AutodiffError> {
    let options = CheckOptions { batch: BATCH, ..CheckOptions::default() };
    let graph = &feed::of_fixed_size(graph, &options, axis)?;
    let mut random = SplitMix64::new(options.seed);
    let mut fed = feed::draw(graph, &mut random)?;
    let graph = &frozen::freeze(runtime, graph, &fed)?;
    let (value, grads) = gradients(runtime, graph, &fed)?;
    let finite = value.is_finite() && grads.iter().flatten().all(|number| number.is_finite());
    let small = is_small(graph)?;
    if !finite || (!small && began.elapsed() > PATIENCE) {
        return Ok(None);
    }
    match small {
        true => exactly(runtime, graph, &mut fed, value, &grads),
        false => roughly(runtime, graph, &mut fed, &grads),
    }
}

/// Whether the graph is quickly written and loaded in float64.
fn is_small(graph: &TrainingGraph) -> Result<bool, AutodiffError> {
    let nodes = onnx::parse(&graph.train_onnx)?.graph.map_or(0, |graph| graph.node.len());
    let numbers: usize = graph.params.iter().map(|param| param.initial.len()).sum();
    Ok(nodes <= MOST_NODES && numbers <= MOST_NUMBERS)
}

/// In float64, where the gradient of each parameter counts as much as that of any other.
fn exactly(
    runtime: &Runtime,
    graph: &TrainingGraph,
    fed: &mut [Fed],
    value: f64,
    grads: &[Vec<f64>],
) -> Result<Option<bool>, AutodiffError> {
    let mut differences = Differences::new(runtime, graph, fed)?;
    if !differences.is_exact() {
        return roughly(runtime, graph, fed, grads);
    }
    let scales = sizes_of(grads, floor(grads, value, differences.least_gradient()));
    let all: Vec<usize> = (0..grads.len()).collect();
    let mut random = SplitMix64::new(1);
    let direction = direction(&all, grads, &scales, &mut random, true);
    suspicious(&mut differences, fed, &direction, SUSPICIOUS * direction.unit, direction.unit)
}

/// In float32, where each parameter moves by the same share of its size, and what changes the loss more counts more.
fn roughly(
    runtime: &Runtime,
    graph: &TrainingGraph,
    fed: &mut [Fed],
    grads: &[Vec<f64>],
) -> Result<Option<bool>, AutodiffError> {
    let mut differences = Differences::narrow(runtime, graph, fed)?;
    let size = |param: &Param| {
        let squares: f64 = param.initial.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        squares.sqrt().max(1e-3)
    };
    let shares: Vec<f64> = graph.params.iter().map(|param| 1.0 / size(param)).collect();
    let all: Vec<usize> = (0..grads.len()).collect();
    let mut random = SplitMix64::new(1);
    let direction = direction(&all, grads, &shares, &mut random, false);
    let promised: f64 = direction
        .parts
        .iter()
        .map(|(index, part)| grads[*index].iter().zip(part).map(|(g, d)| g * d).sum::<f64>().abs())
        .sum();
    // A slope that rounding hides says nothing.
    if promised < differences.least_gradient() {
        return Ok(None);
    }
    suspicious(&mut differences, fed, &direction, SUSPICIOUS_ROUGHLY * promised, promised)
}

/// Whether the difference along the direction is off by more than `most`, whatever the step.
fn suspicious(
    differences: &mut Differences,
    fed: &mut [Fed],
    direction: &Direction,
    most: f64,
    slope: f64,
) -> Result<Option<bool>, AutodiffError> {
    let mut closest = f64::INFINITY;
    for step in differences.steps(slope) {
        let found = differences.slope(fed, direction, step)?;
        closest = closest.min((found - direction.expected).abs());
        if closest < most {
            return Ok(Some(false));
        }
    }
    Ok(closest.is_finite().then_some(true))
}

/// Looks at every gradient.
fn closely(runtime: &Runtime, graph: &TrainingGraph, axis: usize) -> Result<Looked, AutodiffError> {
    let options = CheckOptions { batch: BATCH, ..CheckOptions::default() };
    let fixed = feed::of_fixed_size(graph, &options, axis)?;
    let checked = check_graph(runtime, &fixed, &options)?;
    let wrong = |checked: &Checked| -> Vec<String> {
        let wrong = checked.params.iter().filter(|param| param.error > WRONG);
        wrong.map(|param| param.name.clone()).collect()
    };
    match wrong(&checked) {
        wrong if wrong.is_empty() => Ok(Looked::Right),
        wrong => {
            let place = place(runtime, &fixed, &wrong)?;
            Err(AutodiffError::WrongGradients { params: wrong.join(", "), place })
        }
    }
}

/// What is refused: far above all rounding, and below what changes a training.
const WRONG: f64 = 1e-2;
