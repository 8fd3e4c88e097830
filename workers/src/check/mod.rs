//! Checks a training graph on random numbers: its gradients against differences of its own loss.
//!
//! In: a forward model and a loss, or a training graph; the sizes of open axes. Out: for each parameter how
//! far the gradient is off, and what a step costs. The differences are central, along the gradient itself,
//! which finds one that is scaled or turned, and along directions that mix it with random numbers, which find
//! parts that are missing; so that the cost is a few evaluations per parameter and not two per element. Of a
//! large model several parameters are looked at together, as many as the time allows, see `groups`. They are
//! taken in float64, where operators without a float64 kernel are written as others (`vjp::float64_form`); if
//! one remains, in float32, where they are good to a few per cent only.
//!
//! The graph is the one that a job would train, so that normalization uses the batch and Dropout drops; what
//! it draws is drawn once, from its own seeds, and kept (`frozen`). Parameters are shaken a little, away from
//! the kinks that rules of initialization like to hit, at which a loss has no gradient to compare with.
//!
//! [`quick_check`] is the same along one random direction, for a graph that is about to be trained; it finds
//! out more only where something differs.

mod differences;
mod error;
mod fault;
mod feed;
mod float64;
mod frozen;
mod groups;
mod quick_check;
mod search;

pub use error::{CheckError, NO_GRADIENTS};
pub(crate) use quick_check::AXES;
pub use quick_check::{Verdict, quick_check, scatters};

use std::{
    collections::{BTreeMap, HashMap},
    panic::resume_unwind,
    thread,
};

use serde::{Deserialize, Serialize};
use syncline_autodiff::{
    AutodiffError, DeriveOptions, Estimate, GRAD_SUFFIX, LOSS, Loss, NOMINAL_AXIS, TrainingGraph,
    close_sizes, derive, estimate, sizes,
};
use syncline_onnx::{ElementType, SplitMix64, Types};
use syncline_runtime::{BackendError, Executable, Runtime, stage};

use crate::batch_axis::{BatchAxis, open_batch};
use differences::{Differences, as_trained};
use feed::{DEFAULT_SIZE, Fed};
use search::Search;

/// The shape of a sample of the data, by the name of the input that takes it.
pub type SampleShapes = BTreeMap<String, Vec<usize>>;

/// How to check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckOptions {
    /// Samples in the random batch.
    pub batch: usize,
    /// Sizes of open axes other than the batch, by name; 4 for those that are not listed.
    pub dims: HashMap<String, usize>,
    /// Seed of the batch, of how far parameters are shaken, and of the directions.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { batch: 3, dims: HashMap::new(), seed: 0 }
    }
}

/// What a check found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checked {
    /// Loss of the batch, as the training graph computes it.
    pub loss: f64,
    /// The same where the differences are taken: in float64 if they are.
    pub exact_loss: f64,
    /// The value that the loss looks at; `None` for a graph that was made elsewhere.
    pub loss_at: Option<String>,
    /// One for each parameter, in the order of the training graph.
    pub params: Vec<CheckedParam>,
    /// Element type of the differences.
    pub differences: ElementType,
    /// Element type of the gradients that they are compared with.
    pub gradients: ElementType,
    /// Cost of one step on the batch.
    pub cost: Estimate,
    /// The same if cheap values are made again; `None` for a graph that was made elsewhere.
    pub recomputed: Option<Estimate>,
    /// Samples in the random batch.
    pub batch: usize,
}

/// How far a gradient is off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckedParam {
    /// Parameter whose gradient it is.
    pub name: String,
    /// Euclidean norm of the gradient.
    pub norm: f64,
    /// Largest difference along a direction, relative to the norm; in float64 if the differences are.
    pub error: f64,
    /// How many parameters were looked at together; the error is that of all of them.
    pub together: usize,
    /// How far the gradient in float32 is from that in float64, relative to the norm; 0 if there is no
    /// float64.
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
        // Where both forms of the graph compute the same loss, they differ by where a kink lies.
        let most = if self.losses_agree() { MOST_BY_KINKS } else { MOST_ROUNDING };
        param.error <= self.tolerance() && param.rounding <= most
    }

    /// Whether a gradient that passes is another one in float32 than in float64, as elements next to a kink
    /// make it.
    pub fn is_rounded(&self, param: &CheckedParam) -> bool {
        self.passes(param) && param.rounding > MOST_ROUNDING
    }

    fn losses_agree(&self) -> bool {
        (self.loss - self.exact_loss).abs() <= SAME_LOSS * self.loss.abs().max(1.0)
    }
}

/// Gradients below this share of the largest are rounding errors of zero.
const FLOOR: f64 = 1e-4;
/// Most that float32 may change: some elements next to a kink may be on its other side.
const MOST_ROUNDING: f64 = 5e-2;
/// The same in a deep network, as GoogLeNet, where an element on the other side changes many that follow.
const MOST_BY_KINKS: f64 = 0.5;
/// How far apart one loss may be in float32 and in float64, relative to its size.
const SAME_LOSS: f64 = 1e-5;

/// Derives the training graph as for a job and checks it with all axes fixed.
pub fn check(
    runtime: &Runtime,
    forward: &[u8],
    loss: Loss,
    derive_options: &DeriveOptions,
    options: &CheckOptions,
) -> Result<Checked, CheckError> {
    // As a job trains it: with any number of samples, where the model was exported for one.
    let opened = match open_batch(runtime, forward, derive_options) {
        Ok(BatchAxis::Opened { onnx, .. }) => Some(onnx),
        _ => None,
    };
    let forward = opened.as_deref().unwrap_or(forward);
    let compared = || {
        let mut graph = derive_open(runtime, forward, loss, derive_options, options)?;
        if !feed::label_follows(&graph) {
            // Only the model itself can tell what shape of labels goes with these sizes.
            let mut model = syncline_onnx::parse(forward)?;
            feed::fix_dims(&mut model, options, DEFAULT_SIZE);
            graph = derive(runtime, &model.to_bytes(), loss, derive_options)?;
        }
        check_graph(runtime, &graph, options)
    };
    let recomputed = || {
        let recomputing = DeriveOptions { recompute: true, ..derive_options.clone() };
        let recomputing = derive_open(runtime, forward, loss, &recomputing, options)?;
        let (cost, _) = cost(runtime, &feed::of_fixed_size(&recomputing, options, DEFAULT_SIZE)?)?;
        Ok::<_, CheckError>(cost)
    };
    // Both are mostly loading, which takes one core; for large models the second takes half as long as the
    // first.
    thread::scope(|scope| {
        let recomputed = scope.spawn(recomputed);
        let checked = compared()?;
        let recomputed = recomputed.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(Checked { recomputed: Some(recomputed), ..checked })
    })
}

/// Derives a training graph with open sizes; where a gradient has to know them, or only some suit the model,
/// with those of the check.
fn derive_open(
    runtime: &Runtime,
    forward: &[u8],
    loss: Loss,
    derive_options: &DeriveOptions,
    options: &CheckOptions,
) -> Result<TrainingGraph, CheckError> {
    match derive(runtime, forward, loss, derive_options) {
        Err(AutodiffError::UnsupportedUse { .. } | AutodiffError::Compile(_)) => {
            let sample_shapes = feed::sample_shapes(forward, options)?;
            let derive_options = DeriveOptions { sample_shapes, ..derive_options.clone() };
            Ok(derive(runtime, forward, loss, &derive_options)?)
        }
        other => Ok(other?),
    }
}

/// Checks a training graph, derived or made elsewhere.
pub fn check_graph(
    runtime: &Runtime,
    graph: &TrainingGraph,
    options: &CheckOptions,
) -> Result<Checked, CheckError> {
    let graph = feed::of_fixed_size(graph, options, DEFAULT_SIZE)?;
    let (cost, types) = cost(runtime, &graph)?;
    let mut random = SplitMix64::new(options.seed);
    let mut fed = feed::draw(&graph, &mut random)?;
    let graph = &frozen::freeze(runtime, graph, &fed)?;
    stage::enter("run the training graph");
    let (value, rough) = gradients(Executable::new(runtime, &graph.train_onnx, &as_trained())?, graph, &fed)?;
    stage::enter("run the training graph in float64");
    let differences = Differences::new(runtime, graph, &types, &fed)?;
    let exact = differences.gradients(runtime, graph, &fed)?;
    let grads = exact.as_ref().unwrap_or(&rough);
    let floor = |least: f64| floor(grads, value, least);

    let mut checked = Checked {
        loss: value,
        exact_loss: differences.loss(),
        loss_at: graph.loss_at.clone(),
        params: Vec::new(),
        differences: differences.element,
        gradients: if exact.is_some() { ElementType::F64 } else { ElementType::F32 },
        cost,
        recomputed: None,
        batch: options.batch,
    };
    let scales = sizes_of(grads, floor(differences.least_gradient()));
    let tolerance = checked.tolerance();
    let search = Search { differences, grads, scales: &scales, tolerance, random, step: 0 };
    let found = search.run(&mut fed)?;
    for (index, (grad, found)) in grads.iter().zip(found).enumerate() {
        let apart: Vec<f64> = grad.iter().zip(&rough[index]).map(|(exact, rough)| exact - rough).collect();
        let rounding = norm(&apart) / norm(grad).max(floor(1e-5));
        checked.params.push(CheckedParam {
            name: graph.params[index].name.clone(),
            norm: norm(grad),
            error: found.error,
            together: found.together,
            // What is no number passes no comparison.
            rounding: if rounding.is_nan() { f64::INFINITY } else { rounding },
        });
    }
    Ok(checked)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The size below which a gradient is taken for zero; `least` is that for a loss of 1.
fn floor(grads: &[Vec<f64>], loss: f64, least: f64) -> f64 {
    let largest = grads.iter().map(|grad| norm(grad)).fold(0.0, f64::max);
    (largest * FLOOR).max(least * (1.0 + loss.abs()))
}

/// The norm of each gradient, `least` at least.
fn sizes_of(grads: &[Vec<f64>], least: f64) -> Vec<f64> {
    grads.iter().map(|grad| norm(grad).max(least)).collect()
}

/// What one run of a training graph costs on a batch of so many samples. Its inputs have these shapes of a
/// sample, by name; whatever is open besides counts as many as the batch.
pub fn step_cost(
    runtime: &Runtime,
    train_onnx: &[u8],
    batch: usize,
    sample_shapes: &SampleShapes,
) -> Result<Estimate, CheckError> {
    let mut model = syncline_onnx::parse(train_onnx)?;
    // What a weight is multiplied by has no other size than that of the data.
    model.graph.iter_mut().for_each(|graph| close_sizes(graph, sample_shapes));
    let types = sizes(runtime, &model, batch)?;
    Ok(estimate(&model.graph.unwrap_or_default(), &types))
}

/// Also the types of all values, which take long to infer. They stay what they are where nodes that draw are
/// replaced.
fn cost(runtime: &Runtime, graph: &TrainingGraph) -> Result<(Estimate, Types), CheckError> {
    let model = syncline_onnx::parse(&graph.train_onnx)?;
    let types = sizes(runtime, &model, NOMINAL_AXIS)?;
    Ok((estimate(&model.graph.unwrap_or_default(), &types), types))
}

/// The loss and the gradient of each parameter by the training graph.
fn gradients(
    mut session: Executable,
    graph: &TrainingGraph,
    fed: &[Fed],
) -> Result<(f64, Vec<Vec<f64>>), BackendError> {
    let inputs = feed::narrow(fed);
    let outputs = session.run(&inputs.views())?;
    let mut grads = Vec::with_capacity(graph.params.len());
    for param in &graph.params {
        let grad = outputs.f32(&format!("{}{GRAD_SUFFIX}", param.name))?;
        grads.push(grad.iter().copied().map(f64::from).collect());
    }
    Ok((f64::from(outputs.scalar(LOSS)?), grads))
}
