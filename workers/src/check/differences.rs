//! The loss of a training graph as a function of its parameters, and its slopes.

use std::thread;

use syncline_autodiff::{TrainingGraph, float64_form};
use syncline_onnx::{ElementType, Graph, ModelProto, Types};
use syncline_runtime::{BackendError, ExecOptions, Executable, Runtime};

use super::error::CheckError;
use super::feed::{self, Fed};
use super::groups::Direction;
use super::{GRAD_SUFFIX, LOSS, float64};

/// The loss of a training graph in the widest form that ONNX Runtime runs.
pub(super) struct Differences {
    session: Executable,
    /// The whole training graph in float64, if every operator of the loss has a float64 form.
    wide: Option<ModelProto>,
    pub(super) element: ElementType,
    loss: f64,
    /// Where the first parameter stands among what is fed.
    first: usize,
}

/// All cores: whoever asks for a check waits for it.
pub(super) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// As a job runs it, on all cores.
pub(super) fn as_trained() -> ExecOptions {
    ExecOptions { intra_threads: threads(), ..ExecOptions::default() }
}

impl Differences {
    /// In float64 if every operator of the loss has a float64 form. `types`: of the graph's values; `fed`:
    /// where the differences are taken.
    pub(super) fn new(
        runtime: &Runtime,
        graph: &TrainingGraph,
        types: &Types,
        fed: &[Fed],
    ) -> Result<Self, CheckError> {
        let mut wide = syncline_onnx::parse(&graph.train_onnx)?;
        wide.graph = wide.graph.take().map(|graph| float64_form(graph, types));
        let wide = float64::to_f64(&wide);
        let session = Executable::new(runtime, &loss_alone(wide.clone()).to_bytes(), &as_trained());
        let first = first_parameter(graph);
        match session {
            Ok(session) => {
                let new = Self { session, wide: Some(wide), element: ElementType::F64, loss: 0.0, first };
                Ok(new.started(fed)?)
            }
            Err(_) => Self::narrow(runtime, graph, fed, &as_trained()),
        }
    }

    /// In float32.
    pub(super) fn narrow(
        runtime: &Runtime,
        graph: &TrainingGraph,
        fed: &[Fed],
        options: &ExecOptions,
    ) -> Result<Self, CheckError> {
        let training = syncline_onnx::parse(&graph.train_onnx)?;
        let session = Executable::new(runtime, &loss_alone(training).to_bytes(), options)?;
        let first = first_parameter(graph);
        Ok(Self { session, wide: None, element: ElementType::F32, loss: 0.0, first }.started(fed)?)
    }

    fn started(mut self, fed: &[Fed]) -> Result<Self, BackendError> {
        self.loss = self.value(fed)?;
        Ok(self)
    }

    /// The loss where the differences are taken.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Whether they are in float64.
    pub(super) fn is_exact(&self) -> bool {
        self.element == ElementType::F64
    }

    /// Below this norm, for a loss of 1, a gradient cannot be told from zero.
    pub(super) fn least_gradient(&self) -> f64 {
        if self.element == ElementType::F64 { 1e-6 } else { 1e-4 }
    }

    /// The gradients in float64, if they can be had.
    pub(super) fn gradients(
        &self,
        runtime: &Runtime,
        graph: &TrainingGraph,
        fed: &[Fed],
    ) -> Result<Option<Vec<Vec<f64>>>, BackendError> {
        let Some(wide) = &self.wide else { return Ok(None) };
        let Ok(mut session) = Executable::quick(runtime, wide.clone(), threads()) else { return Ok(None) };
        let outputs = session.run(&feed::views(fed))?;
        let grad = |name: &str| Ok(outputs.f64(&format!("{name}{GRAD_SUFFIX}"))?.to_vec());
        graph.params.iter().map(|param| grad(&param.name)).collect::<Result<_, _>>().map(Some)
    }

    /// Steps along a unit vector, for a slope of about this size, widest first: kinks spoil wide ones,
    /// rounding narrow ones, and a wrong gradient agrees with none.
    pub(super) fn steps(&self, slope: f64) -> Vec<f64> {
        if self.element == ElementType::F64 {
            // A million activations have some within a ten millionth of a kink.
            return vec![1e-5, 1e-6, 1e-7, 1e-8];
        }
        // Between the rounding of the loss and its curvature.
        let widest = (5e-4 * (1.0 + self.loss.abs()) / slope).clamp(1e-4, 3e-2);
        [1.0, 0.25, 0.0625].map(|share| widest * share).to_vec()
    }

    /// The slope of the loss along a direction, by its values `step` to either side.
    pub(super) fn slope(
        &mut self,
        fed: &mut [Fed],
        direction: &Direction,
        step: f64,
    ) -> Result<f64, BackendError> {
        let start: Vec<Vec<f64>> =
            direction.parts.iter().map(|(index, _)| fed[self.first + index].numbers().to_vec()).collect();
        let mut at = |step: f64| -> Result<f64, BackendError> {
            for ((index, along), start) in direction.parts.iter().zip(&start) {
                let moved = start.iter().zip(along).map(|(x, d)| x + step * d).collect();
                fed[self.first + index].set_numbers(moved);
            }
            self.value(fed)
        };
        let (ahead, back) = (at(step)?, at(-step)?);
        for ((index, _), start) in direction.parts.iter().zip(start) {
            fed[self.first + index].set_numbers(start);
        }
        Ok((ahead - back) / (2.0 * step))
    }

    /// The loss.
    pub(super) fn value(&mut self, fed: &[Fed]) -> Result<f64, BackendError> {
        match self.element {
            ElementType::F64 => {
                let outputs = self.session.run(&feed::views(fed))?;
                Ok(outputs.f64(LOSS)?.first().copied().unwrap_or(f64::NAN))
            }
            _ => Ok(f64::from(self.session.run(&feed::narrow(fed).views())?.scalar(LOSS)?)),
        }
    }
}

/// Data inputs and label stand in front.
fn first_parameter(graph: &TrainingGraph) -> usize {
    graph.data_inputs.len() + usize::from(graph.label.is_some())
}

/// What the loss needs. Every input stays.
pub(super) fn loss_alone(mut model: ModelProto) -> ModelProto {
    let Some(graph) = &mut model.graph else { return model };
    graph.output.retain(|output| output.name == LOSS);
    *graph = Graph::from(std::mem::take(graph)).remove_dead();
    model
}
