//! Where models that come from elsewhere are loaded, and what can be done with them there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_bytes::ByteBuf;
use syncline_autodiff::{DeriveOptions, Estimate, Loss, Precision, accept_ready};
use syncline_kit::{Device, DeviceParts};
use syncline_runtime::Runtime;

use super::error::ModelError;
use super::message::{Answer, Derived, ModelChecks, Work};
use super::parent::{not_started, run_in_child, run_in_child_until};
use crate::check::{CheckOptions, Checked, SampleShapes, check, check_graph, step_cost};

static SERVES: AtomicBool = AtomicBool::new(false);

/// Says that this program serves as its own child.
pub(super) fn this_program_serves() {
    SERVES.store(true, Ordering::Relaxed);
}

/// A model, and what it is called if it ends the process.
#[derive(Debug, Clone, Copy)]
pub struct NamedModel<'a> {
    /// For people, such as the path of its file.
    pub name: &'a str,
    /// The model as it came.
    pub onnx: &'a [u8],
}

/// Where models that come from elsewhere are loaded.
#[derive(Debug, Clone)]
pub enum ModelHost {
    /// In this process, which a model may end.
    InProcess(Runtime),
    /// In a process for each call: this program, started again, loads the ONNX Runtime at this path.
    ChildProcess(PathBuf),
}

impl ModelHost {
    /// In a child if this program has called [`serve_if_asked`](super::serve_if_asked), else in this process.
    pub fn of(runtime: &Runtime) -> Self {
        match SERVES.load(Ordering::Relaxed) {
            true => Self::ChildProcess(runtime.path().to_owned()),
            false => Self::InProcess(runtime.clone()),
        }
    }

    /// The same with the ONNX Runtime that is found on this machine, or fetched; the log says what takes
    /// time. Blocks.
    ///
    /// # Errors
    /// E101 to E109 if it is neither found nor fetched, E320 to E322 if it cannot be loaded here, where no
    /// process of its own can be had.
    pub fn find() -> Result<Self, ModelError> {
        Self::with(&syncline_kit::for_device(Device::Cpu, &|line| tracing::info!("{line}"))?)
    }

    /// The same with native parts that are not loaded yet.
    ///
    /// # Errors
    /// E320 to E322 if ONNX Runtime cannot be loaded here, where no process of its own can be had.
    #[doc(hidden)]
    pub fn with(parts: &DeviceParts) -> Result<Self, ModelError> {
        match SERVES.load(Ordering::Relaxed) {
            true => Ok(Self::ChildProcess(parts.onnxruntime.path.clone())),
            false => Ok(Self::InProcess(Runtime::load_for(Device::Cpu, parts)?)),
        }
    }

    /// Derives a training graph, see [`derive`](syncline_autodiff::derive), from a model that takes any batch
    /// if it can be made to.
    ///
    /// # Errors
    /// E301 to E323 for a model that is none or cannot be trained, E247 to E265 for what a look at it finds,
    /// E254 and E255 if it ends ONNX Runtime or takes too long.
    #[doc(hidden)]
    pub fn derive(
        &self,
        model: NamedModel<'_>,
        loss: Loss,
        options: &DeriveOptions,
        checks: ModelChecks,
    ) -> Result<Derived, ModelError> {
        match self {
            Self::InProcess(runtime) => Derived::derive(runtime, model.onnx, loss, options, checks),
            Self::ChildProcess(library) => {
                let work = Work::Derive { loss, options: Box::new(options.clone()), checks };
                derived(run_in_child(library, work, model, &|_| {})?)
            }
        }
    }

    /// Takes a training graph from elsewhere, see [`accept_ready`]. With `check_gradients`, wrong gradients
    /// are refused.
    ///
    /// # Errors
    /// E318 if it is no training graph, E261 without first values, E256 and E263 for wrong gradients, E254
    /// and E255 as of any model.
    #[doc(hidden)]
    pub fn accept_ready(
        &self,
        model: NamedModel<'_>,
        weights: Option<&[u8]>,
        check_gradients: bool,
    ) -> Result<Derived, ModelError> {
        match self {
            Self::InProcess(runtime) => Derived::new(
                runtime,
                accept_ready(runtime, model.onnx, weights)?,
                Precision::F32,
                check_gradients,
            ),
            Self::ChildProcess(library) => {
                let work = Work::Ready { weights: weights.map(ByteBuf::from), check_gradients };
                derived(run_in_child(library, work, model, &|_| {})?)
            }
        }
    }

    /// Whether ONNX Runtime can load a model without ending the process. Says nothing in this process, where
    /// the model is loaded anyway. The child is ended once `is_stopped` says so.
    ///
    /// # Errors
    /// E254 if the model ends ONNX Runtime, E255 if it takes too long, E257 if it was stopped, E323 if it is
    /// refused.
    pub fn try_load(&self, model: NamedModel<'_>, is_stopped: &dyn Fn() -> bool) -> Result<(), ModelError> {
        match self {
            Self::InProcess(_) => Ok(()),
            Self::ChildProcess(library) => {
                match run_in_child_until(library, Work::LoadWhole, model, &|_| {}, is_stopped)? {
                    Answer::Loaded => Ok(()),
                    _ => Err(unexpected_answer()),
                }
            }
        }
    }

    /// What one step of a training graph costs on a batch of so many samples of these shapes; other axes that
    /// are open count as many as the batch.
    ///
    /// # Errors
    /// E254 if the graph ends ONNX Runtime, E255 if it takes too long, E323 if it is refused.
    #[doc(hidden)]
    pub fn step_cost(
        &self,
        graph: NamedModel<'_>,
        batch: usize,
        sample_shapes: SampleShapes,
    ) -> Result<Estimate, ModelError> {
        match self {
            Self::InProcess(runtime) => Ok(step_cost(runtime, graph.onnx, batch, &sample_shapes)?),
            Self::ChildProcess(library) => {
                match run_in_child(library, Work::Cost { batch, sample_shapes }, graph, &|_| {})? {
                    Answer::Cost(cost) => Ok(cost),
                    _ => Err(unexpected_answer()),
                }
            }
        }
    }

    /// Compares all gradients with differences: those of a forward model with a loss, see [`check`], or of a
    /// training graph with these first values. `stage` hears what is being done.
    ///
    /// # Errors
    /// E243 and E253 if it cannot be checked with random numbers, and what is refused of any model.
    #[doc(hidden)]
    pub fn check(
        &self,
        model: NamedModel<'_>,
        loss: Option<(Loss, &DeriveOptions)>,
        weights: Option<&[u8]>,
        how: &CheckOptions,
        stage: &dyn Fn(&str),
    ) -> Result<Checked, ModelError> {
        match (self, loss) {
            (Self::InProcess(runtime), Some((loss, options))) => {
                Ok(check(runtime, model.onnx, loss, options, how)?)
            }
            (Self::InProcess(runtime), None) => {
                Ok(check_graph(runtime, &accept_ready(runtime, model.onnx, weights)?, how)?)
            }
            (Self::ChildProcess(library), loss) => {
                let loss = loss.map(|(loss, options)| (loss, Box::new(options.clone())));
                let weights = weights.map(ByteBuf::from);
                match run_in_child(library, Work::Check { loss, weights, how: how.clone() }, model, stage)? {
                    Answer::Checked(checked) => Ok(checked),
                    _ => Err(unexpected_answer()),
                }
            }
        }
    }
}

impl From<&Runtime> for ModelHost {
    fn from(runtime: &Runtime) -> Self {
        Self::of(runtime)
    }
}

fn derived(answer: Answer) -> Result<Derived, ModelError> {
    match answer {
        Answer::Graph(derived) => Ok(*derived),
        _ => Err(unexpected_answer()),
    }
}

fn unexpected_answer() -> ModelError {
    not_started("it answered something else than was asked".to_owned())
}
