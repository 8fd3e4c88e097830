//! A quick check of a training graph before it is used: one difference of its loss along one random
//! direction.
//!
//! In about a second: what would take longer is left to [`check_graph`](super::check_graph). A large graph is
//! therefore run as it is written, not as ONNX Runtime optimizes it. A graph that computes its loss and fails
//! at its gradients is refused. Only where the difference disagrees, everything is looked at
//! closely, so that nothing right is refused for a kink or for rounding. Where the loss is a number and its
//! gradients at two random points are none, no training goes anywhere.

use std::time::{Duration, Instant};

use syncline_autodiff::{LOSS_SCALE, NOMINAL_AXIS, Param, TrainingGraph, sizes};
use syncline_onnx::{ModelProto, SplitMix64};
use syncline_runtime::{BackendError, ExecOptions, Executable, Optimize, Runtime, stage};

use super::differences::{Differences, as_trained, threads};
use super::error::CheckError;
use super::fault::{fault, zero_root};
use super::feed::Fed;
use super::groups::{Direction, direction};
use super::{CheckOptions, Checked, check_graph, feed, floor, frozen, gradients, sizes_of};

/// What a quick check says.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The gradients are those of the loss along the direction.
    Right,
    /// The same, of a loss in float64 that is another one than in float32, in words for the user.
    Doubtful(String),
    /// It could not be told, for this reason.
    Unknown(String),
}

impl Verdict {
    fn passed(doubt: Option<String>) -> Self {
        doubt.map_or(Self::Right, Self::Doubtful)
    }
}

/// Samples in the random batch.
const BATCH: usize = 2;
/// Sizes that open axes are tried with: small ones are quick, but no window may be larger than its image.
pub(crate) const AXES: [usize; 3] = [4, 16, 64];
/// When a large graph is left alone.
const PATIENCE: Duration = Duration::from_millis(700);
/// Most that the difference may be off, in units of one gradient, before everything is looked at closely.
const SUSPICIOUS: f64 = 2e-2;

/// Most that rounding changes a loss, relative to its size.
const MOST_APART: f64 = 1e-3;

/// The same for a difference in float32, as a share of all that the direction changes.
const SUSPICIOUS_ROUGHLY: f64 = 0.1;
/// Graphs up to this size are quickly loaded as they are trained, and written and loaded in float64.
const MOST_NODES: usize = 1000;
const MOST_NUMBERS: usize = 1 << 17;

/// Most parameters without gradients that are named.
const MOST_PARAMS: usize = 6;

/// Compares the gradients with one difference of the loss. Refuses a graph whose gradients are wrong.
pub fn quick_check(runtime: &Runtime, graph: &TrainingGraph) -> Result<Verdict, CheckError> {
    stage::enter("compare the gradients along one direction");
    let began = Instant::now();
    let (mut unknown, mut unrunnable) = (Verdict::Unknown(String::new()), None);
    for axis in AXES {
        match compare(runtime, graph, axis, began) {
            Ok(GradientComparison::Suspicious(doubt)) => return closely(runtime, graph, axis, doubt),
            Ok(GradientComparison::NoNumbers(params)) => return no_gradients(runtime, graph, axis, &params),
            Ok(GradientComparison::Right(doubt)) => return Ok(Verdict::passed(doubt)),
            Ok(GradientComparison::Unknown) => {
                let reason = "its loss is NaN or infinite, or a step of it takes too long for a quick check";
                return Ok(Verdict::Unknown(reason.to_owned()));
            }
            // Inputs of other sizes may do.
            Ok(GradientComparison::Unrunnable(reason)) => unrunnable = Some(reason),
            // What the model cannot be fed with, a job can all the same.
            Err(error) => unknown = Verdict::Unknown(error.to_string()),
        }
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    unrunnable.map_or(Ok(unknown), |reason| Err(CheckError::Unrunnable { reason }))
}

/// What was seen at random numbers.
enum GradientComparison {
    /// With what is in doubt, for the user.
    Right(Option<String>),
    /// The difference disagrees.
    Suspicious(Option<String>),
    /// The loss is a number, and the gradients of these parameters are not.
    NoNumbers(Vec<String>),
    /// The loss is computed, and its gradients fail with these words.
    Unrunnable(String),
    /// There is no time to find out, or the loss is no number.
    Unknown,
}

fn compare(
    runtime: &Runtime,
    graph: &TrainingGraph,
    axis: usize,
    began: Instant,
) -> Result<GradientComparison, CheckError> {
    let options = CheckOptions { batch: BATCH, ..CheckOptions::default() };
    let graph = feed::of_fixed_size(graph, &options, axis)?;
    let mut random = SplitMix64::new(options.seed);
    let mut fed = feed::draw(&graph, &mut random)?;
    let graph = &frozen::freeze(runtime, graph, &fed)?;
    let small = is_small(graph)?;
    let load = || match small {
        true => Executable::new(runtime, &graph.train_onnx, &as_trained()),
        false => Executable::quick(runtime, syncline_onnx::parse(&graph.train_onnx)?, threads()),
    };
    let (value, grads) = match gradients(load()?, graph, &fed) {
        Ok(found) => found,
        Err(BackendError::Run { reason }) if runs_without_gradients(runtime, graph, &fed, &reason) => {
            return Ok(GradientComparison::Unrunnable(reason));
        }
        Err(error) => return Err(error.into()),
    };
    if !value.is_finite() {
        return Ok(GradientComparison::Unknown);
    }
    let broken = no_numbers(graph, &grads);
    if !broken.is_empty() && has_loss_scale(graph)? {
        // The first scale is too large for many models, and sinks until it fits.
        return Ok(GradientComparison::Unknown);
    }
    if !broken.is_empty() {
        // One point may lie on a kink or beyond float32; two hardly do.
        let mut random = SplitMix64::new(options.seed + 1);
        let (value, grads) = gradients(load()?, graph, &feed::draw(graph, &mut random)?)?;
        let again = no_numbers(graph, &grads);
        let both: Vec<String> = broken.into_iter().filter(|name| again.contains(name)).collect();
        return Ok(if value.is_finite() && !both.is_empty() {
            GradientComparison::NoNumbers(both)
        } else {
            GradientComparison::Unknown
        });
    }
    if !small && began.elapsed() > PATIENCE {
        return Ok(GradientComparison::Unknown);
    }
    match small {
        true => exactly(runtime, graph, &mut fed, value, &grads),
        false => {
            let options = ExecOptions { optimize: Optimize::Off, ..as_trained() };
            roughly(runtime, graph, &mut fed, &grads, &options)
        }
    }
}

/// Whether the loss alone can be computed of what the whole graph has failed at, for this reason. Where there
/// is no memory the graph is not to blame.
fn runs_without_gradients(runtime: &Runtime, graph: &TrainingGraph, fed: &[Fed], reason: &str) -> bool {
    let options = ExecOptions { optimize: Optimize::Off, ..as_trained() };
    !reason.contains("alloc") && Differences::narrow(runtime, graph, fed, &options).is_ok()
}

/// Parameters whose gradients are no numbers.
fn no_numbers(graph: &TrainingGraph, grads: &[Vec<f64>]) -> Vec<String> {
    let broken = graph.params.iter().zip(grads);
    let broken = broken.filter(|(_, grad)| !grad.iter().all(|number| number.is_finite()));
    broken.map(|(param, _)| param.name.clone()).collect()
}

/// Whether the gradients are those of the loss times a scale, which a job lowers where they overflow.
fn has_loss_scale(graph: &TrainingGraph) -> Result<bool, CheckError> {
    let inner = syncline_onnx::parse(&graph.train_onnx)?.graph.unwrap_or_default();
    Ok(inner.initializer.iter().any(|tensor| tensor.name == LOSS_SCALE))
}

fn no_gradients(
    runtime: &Runtime,
    graph: &TrainingGraph,
    axis: usize,
    params: &[String],
) -> Result<Verdict, CheckError> {
    let options = CheckOptions { batch: BATCH, ..CheckOptions::default() };
    let fixed = feed::of_fixed_size(graph, &options, axis)?;
    let cause = zero_root(runtime, &fixed, params);
    Err(CheckError::NoGradients { params: some_of(params), cause })
}

/// The names, as far as a line has place for them.
fn some_of(params: &[String]) -> String {
    let first = params.iter().take(MOST_PARAMS).cloned().collect::<Vec<_>>().join(", ");
    match params.len().saturating_sub(MOST_PARAMS) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Whether the graph is quickly loaded as it is trained, and written and loaded in float64.
fn is_small(graph: &TrainingGraph) -> Result<bool, CheckError> {
    let nodes = syncline_onnx::parse(&graph.train_onnx)?.graph.map_or(0, |graph| graph.node.len());
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
) -> Result<GradientComparison, CheckError> {
    let types = sizes(runtime, &syncline_onnx::parse(&graph.train_onnx)?, NOMINAL_AXIS)?;
    let mut differences = Differences::new(runtime, graph, &types, fed)?;
    if !differences.is_exact() {
        return roughly(runtime, graph, fed, grads, &as_trained());
    }
    let scales = sizes_of(grads, floor(grads, value, differences.least_gradient()));
    let all: Vec<usize> = (0..grads.len()).collect();
    let mut random = SplitMix64::new(1);
    let direction = direction(&all, grads, &scales, &mut random, true);
    let found = suspicious(&mut differences, fed, &direction, SUSPICIOUS * direction.unit, direction.unit)?;
    // Operators without a float64 kernel are written as others: the loss says whether these do the same.
    let float64 = differences.loss();
    let apart = (float64 - value).abs() > MOST_APART * value.abs().max(1.0);
    let doubt = apart.then(|| {
        format!(
            "the loss on random numbers is {value} in float32 and {float64} in float64: numbers too large for float32 are added or \
             subtracted, or an operator is computed otherwise than in this check; `syncline model check` says how far each gradient \
             is off"
        )
    });
    Ok(match found {
        GradientComparison::Right(_) => GradientComparison::Right(doubt),
        GradientComparison::Suspicious(_) => GradientComparison::Suspicious(doubt),
        other => other,
    })
}

/// In float32, where each parameter moves by the same share of its size, and what changes the loss more
/// counts more.
fn roughly(
    runtime: &Runtime,
    graph: &TrainingGraph,
    fed: &mut [Fed],
    grads: &[Vec<f64>],
    options: &ExecOptions,
) -> Result<GradientComparison, CheckError> {
    let mut differences = Differences::narrow(runtime, graph, fed, options)?;
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
        return Ok(GradientComparison::Unknown);
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
) -> Result<GradientComparison, CheckError> {
    let mut closest = f64::INFINITY;
    for step in differences.steps(slope) {
        let found = differences.slope(fed, direction, step)?;
        closest = closest.min((found - direction.expected).abs());
        if closest < most {
            return Ok(GradientComparison::Right(None));
        }
    }
    Ok(if closest.is_finite() { GradientComparison::Suspicious(None) } else { GradientComparison::Unknown })
}

/// Looks at every gradient.
fn closely(
    runtime: &Runtime,
    graph: &TrainingGraph,
    axis: usize,
    doubt: Option<String>,
) -> Result<Verdict, CheckError> {
    let options = CheckOptions { batch: BATCH, ..CheckOptions::default() };
    let fixed = feed::of_fixed_size(graph, &options, axis)?;
    let checked = check_graph(runtime, &fixed, &options)?;
    let wrong = |checked: &Checked| -> Vec<String> {
        let wrong = checked.params.iter().filter(|param| param.error > WRONG);
        wrong.map(|param| param.name.clone()).collect()
    };
    match wrong(&checked) {
        wrong if wrong.is_empty() => Ok(Verdict::passed(doubt)),
        wrong => {
            let cause = fault(runtime, &fixed, &wrong)?;
            let scatters = scatters(&syncline_onnx::parse(&graph.eval_onnx)?);
            Err(CheckError::WrongGradients { params: wrong.join(", "), cause, scatters })
        }
    }
}

/// Whether a model has a scatter, in which exporters may have lost a sum.
pub fn scatters(model: &ModelProto) -> bool {
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes.into_iter().any(|node| node.op_type.starts_with("Scatter"))
}

/// What is refused: far above all rounding, and below what changes a training.
const WRONG: f64 = 1e-2;
