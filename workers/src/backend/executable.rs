//! One model, ready to run on one thread.

use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session, SessionInputValue};

use super::blocked;
use super::error::BackendError;
use super::infer::{Types, outlet_types};
use super::outputs::Outputs;
use super::row_sums::{add_one_after_the_other, adds_by_index};
use super::runtime::Runtime;
use super::view::TensorView;
use crate::onnx::proto::NodeProto;
use crate::onnx::{self, ModelProto};

/// How much ONNX Runtime rewrites a graph when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Optimize {
    /// As it is written.
    Off,
    /// Constant folding and rewrites into standard operators.
    Basic,
    /// Everything, including fusions into ONNX Runtime's own operators, and convolutions on its blocked kernels.
    #[default]
    All,
}

/// How to run a model.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// Threads inside one operator, the calling thread included. Default 1: several workers share a machine best with
    /// one thread each. A model that adds up by index in an uncommon way gets one in any case.
    pub intra_threads: usize,
    /// Whether idle threads spin. Default no: two spinning threads each halve the throughput of workers that
    /// outnumber the cores.
    pub spin: bool,
    /// How much to rewrite the graph first. Default all.
    pub optimize: Optimize,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self { intra_threads: 1, spin: false, optimize: Optimize::All }
    }
}

/// A model loaded into ONNX Runtime. Belongs to one executor; make one per thread.
#[derive(Debug)]
pub struct Executable {
    session: Session,
    input_names: Vec<String>,
    output_names: Vec<String>,
}

impl Executable {
    /// Checks the bytes (external data is refused here as well) and compiles them. Milliseconds to seconds.
    ///
    /// With several threads, sums of rows by index are written so that threads cannot disturb them; a model with sums
    /// by index of another kind runs on one thread, see `row_sums`.
    pub fn new(runtime: &Runtime, onnx_bytes: &[u8], options: &ExecOptions) -> Result<Self, BackendError> {
        let parsed = onnx::parse(onnx_bytes)?;
        let mut options = options.clone();
        let mut rewritten = None;
        if options.intra_threads > 1 && nodes(&parsed).any(adds_by_index) {
            rewritten = add_one_after_the_other(&parsed);
            if nodes(rewritten.as_ref().unwrap_or(&parsed)).any(adds_by_index) {
                options.intra_threads = 1;
            }
        }
        if options.optimize == Optimize::All
            && let Some(lanes) = blocked::lanes(runtime)
        {
            rewritten = blocked::arrange(rewritten.as_ref().unwrap_or(&parsed), lanes).or(rewritten);
        }
        let session = match rewritten {
            Some(model) => compile(runtime, &model.to_bytes(), &options, Ok)?,
            None => compile(runtime, onnx_bytes, &options, Ok)?,
        };
        let input_names = session.inputs().iter().map(|input| input.name().to_owned()).collect();
        let output_names = session.outputs().iter().map(|output| output.name().to_owned()).collect();
        Ok(Self { session, input_names, output_names })
    }

    /// Names of the inputs. Giving them to [`run`](Self::run) in this order is fastest.
    pub fn input_names(&self) -> &[String] {
        &self.input_names
    }

    /// Names of the outputs.
    pub fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// Types of all inputs and outputs.
    pub fn types(&self) -> Types {
        outlet_types(self.session.inputs().iter().chain(self.session.outputs()))
    }

    /// Runs the model once on the calling thread. Every input has to be given, in any order; nothing is copied.
    pub fn run(&mut self, inputs: &[(&str, TensorView<'_>)]) -> Result<Outputs<'_>, BackendError> {
        let mut bound: Vec<SessionInputValue<'_>> = Vec::with_capacity(self.input_names.len());
        for (index, wanted) in self.input_names.iter().enumerate() {
            let (name, view) = match inputs.get(index) {
                Some(given) if given.0 == wanted => *given,
                _ => find_input(inputs, wanted)?,
            };
            bound.push(view.bind(name)?);
        }
        if inputs.len() != self.input_names.len() {
            return Err(self.surplus(inputs));
        }
        let values = self.session.run(&bound[..]).map_err(|source| run_error(&source))?;
        Ok(Outputs::new(values))
    }

    /// More inputs than the model has: one is unknown or given twice.
    fn surplus(&self, inputs: &[(&str, TensorView<'_>)]) -> BackendError {
        let unknown = inputs.iter().find(|(name, _)| !self.input_names.iter().any(|known| known == name));
        match unknown {
            Some((name, _)) => {
                BackendError::UnknownInput { name: (*name).to_owned(), known: self.input_names.join(", ") }
            }
            None => {
                let times = |wanted: &str| inputs.iter().filter(|(name, _)| *name == wanted).count();
                let name =
                    inputs.iter().map(|(name, _)| *name).find(|name| times(name) > 1).unwrap_or_default();
                BackendError::InputCount { name: name.to_owned(), times: times(name) }
            }
        }
    }
}

fn find_input<'n, 'v>(
    inputs: &[(&'n str, TensorView<'v>)],
    wanted: &str,
) -> Result<(&'n str, TensorView<'v>), BackendError> {
    let missing = || BackendError::InputCount { name: wanted.to_owned(), times: 0 };
    inputs.iter().find(|(name, _)| *name == wanted).copied().ok_or_else(missing)
}

/// Every node of a model and of its functions.
fn nodes(model: &ModelProto) -> impl Iterator<Item = &NodeProto> {
    let functions = model.functions.iter().flat_map(|function| &function.node);
    model.graph.iter().flat_map(|graph| &graph.node).chain(functions)
}

/// Loads a model with the settings that every session of Syncline shares.
pub(super) fn compile(
    runtime: &Runtime,
    onnx_bytes: &[u8],
    options: &ExecOptions,
    adjust: impl FnOnce(SessionBuilder) -> ort::Result<SessionBuilder>,
) -> Result<Session, BackendError> {
    let level = match options.optimize {
        Optimize::Off => GraphOptimizationLevel::Disable,
        Optimize::Basic => GraphOptimizationLevel::Level1,
        Optimize::All => GraphOptimizationLevel::All,
    };
    let build = || -> ort::Result<Session> {
        let builder = Session::builder(runtime.environment())?
            .with_optimization_level(level)?
            .with_intra_threads(options.intra_threads.max(1))?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(options.spin)?
            .with_inter_op_spinning(options.spin)?;
        adjust(builder)?.commit_from_memory(onnx_bytes)
    };
    build().map_err(|source| BackendError::Compile { reason: source.to_string() })
}

fn run_error(source: &ort::Error) -> BackendError {
    BackendError::Run { reason: source.to_string() }
}
