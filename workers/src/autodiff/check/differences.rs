//! The loss of a training graph as a function of its parameters, and its slopes.

use std::collections::HashSet;

use super::feed::{self, Fed};
use super::{GRAD_SUFFIX, LOSS, double};
use crate::autodiff::emitter::captured;
use crate::autodiff::error::AutodiffError;
use crate::autodiff::rules::float64_form;
use crate::autodiff::training_graph::TrainingGraph;
use crate::backend::{BackendError, ExecOptions, Executable, Runtime, infer_types};
use crate::onnx::{self, ElementType, ModelProto};

/// A training graph in the widest form that ONNX Runtime runs.
pub(super) struct Differences {
    /// Computes the loss alone.
    session: Executable,
    /// Computes the gradients as well, in float64; `None` if some operator has no float64 form.
    whole: Option<Executable>,
    pub(super) element: ElementType,
    loss: f64,
    /// Where the first parameter stands among what is fed.
    first: usize,
}

impl Differences {
    /// `loss` is its value where the differences are taken.
    pub(super) fn new(runtime: &Runtime, graph: &TrainingGraph, loss: f64) -> Result<Self, AutodiffError> {
        let options = ExecOptions::default();
        let training = onnx::parse(&graph.train_onnx)?;
        let types = infer_types(runtime, &graph.train_onnx)?;
        let mut wide = training.clone();
        wide.graph.iter_mut().for_each(|graph| *graph = float64_form(graph, &types));
        let wide = double::to_f64(&wide);
        let load = |model: &ModelProto| Executable::new(runtime, &model.to_bytes(), &options);
        let (session, element) = match load(&loss_alone(wide.clone())) {
            Ok(session) => (session, ElementType::F64),
            Err(_) => (load(&loss_alone(training))?, ElementType::F32),
        };
        let whole = if element == ElementType::F64 { load(&wide).ok() } else { None };
        let first = graph.data_inputs.len() + usize::from(graph.label.is_some());
        Ok(Self { session, whole, element, loss, first })
    }

    /// Below this norm, for a loss of 1, a gradient cannot be told from zero.
    pub(super) fn least_gradient(&self) -> f64 {
        if self.element == ElementType::F64 { 1e-6 } else { 1e-4 }
    }

    /// The gradients in float64, if they can be had.
    pub(super) fn gradients(
        &mut self,
        graph: &TrainingGraph,
        fed: &[Fed],
    ) -> Result<Option<Vec<Vec<f64>>>, BackendError> {
        let Some(session) = &mut self.whole else { return Ok(None) };
        let outputs = session.run(&feed::views(fed))?;
        let grad = |name: &str| Ok(outputs.f64(&format!("{name}{GRAD_SUFFIX}"))?.to_vec());
        graph.params.iter().map(|param| grad(&param.name)).collect::<Result<_, _>>().map(Some)
    }

    /// Steps along a unit vector, for a gradient of about this norm, widest first: kinks spoil wide ones, rounding narrow
    /// ones, and a wrong gradient agrees with none.
    pub(super) fn steps(&self, norm: f64) -> [f64; 3] {
        if self.element == ElementType::F64 {
            return [1e-5, 1e-6, 1e-7];
        }
        // Between the rounding of the loss and its curvature.
        let widest = (5e-4 * (1.0 + self.loss.abs()) / norm).clamp(1e-4, 3e-2);
        [1.0, 0.25, 0.0625].map(|share| widest * share)
    }

    /// The slope of the loss along a direction of one parameter.
    pub(super) fn slope(
        &mut self,
        fed: &mut [Fed],
        param: usize,
        along: &[f64],
        step: f64,
    ) -> Result<f64, BackendError> {
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

/// What the loss needs.
fn loss_alone(mut model: ModelProto) -> ModelProto {
    let Some(graph) = &mut model.graph else { return model };
    graph.output.retain(|output| output.name == LOSS);
    let mut needed: HashSet<String> = HashSet::from([LOSS.to_owned()]);
    let mut kept = Vec::new();
    for node in std::mem::take(&mut graph.node).into_iter().rev() {
        if node.output.iter().any(|output| needed.contains(output)) {
            needed.extend(node.input.iter().cloned());
            needed.extend(captured(&node).into_iter().map(str::to_owned));
            kept.push(node);
        }
    }
    kept.reverse();
    graph.node = kept;
    model
}
