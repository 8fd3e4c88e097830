//! One model, ready to run on one thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session, SessionInputValue};

use super::error::BackendError;
use super::hazards;
use super::infer::{Types, outlet_types};
use super::outputs::Outputs;
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
    /// Everything, including fusions into ONNX Runtime's own operators.
    #[default]
    All,
}

/// How to run a model.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// Threads inside one operator, the calling thread included. Default 1: several workers share a machine best with
    /// one thread each. A model that adds up by index gets one in any case, see [`Executable::new`].
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
    /// ONNX Runtime's CPU kernel of `ScatterND` splits the updates among its threads and lets them add to one element
    /// at the same time: sums of repeated indices, such as the gradient of an embedding, come out wrong (seen in
    /// 1.31.1). A model with such a node therefore runs on one thread.
    pub fn new(runtime: &Runtime, onnx_bytes: &[u8], options: &ExecOptions) -> Result<Self, BackendError> {
        let model = onnx::parse(onnx_bytes)?;
        let nodes = model.graph.iter().flat_map(|graph| &graph.node);
        let serial =
            nodes.chain(model.functions.iter().flat_map(|function| &function.node)).any(adds_by_index);
        let threads = if serial { 1 } else { options.intra_threads };
        let options = ExecOptions { intra_threads: threads, ..options.clone() };
        let session = compile(runtime, &model, onnx_bytes, &options, Ok)?;
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

/// Whether a node, or one in its subgraphs, is a `ScatterND` that combines updates.
fn adds_by_index(node: &NodeProto) -> bool {
    let graphs = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    let combines = node.op_type == "ScatterND" && node.string("reduction", "none") != "none";
    combines || graphs.flat_map(|graph| &graph.node).any(adds_by_index)
}

/// Largest tensor that constant folding may make, in bytes: a node of a few bytes can ask for gigabytes.
const MOST_FOLDED_BYTES: u32 = 1 << 28;

/// Loads a model with the settings that every session of Syncline shares. `onnx_bytes` are those of `model`.
pub(super) fn compile(
    runtime: &Runtime,
    model: &ModelProto,
    onnx_bytes: &[u8],
    options: &ExecOptions,
    adjust: impl FnOnce(SessionBuilder) -> ort::Result<SessionBuilder>,
) -> Result<Session, BackendError> {
    let level = match options.optimize {
        Optimize::Off => GraphOptimizationLevel::Disable,
        Optimize::Basic => GraphOptimizationLevel::Level1,
        Optimize::All => GraphOptimizationLevel::All,
    };
    hazards::check(model)?;
    let build = || -> ort::Result<Session> {
        let builder = Session::builder(runtime.environment())?
            .with_optimization_level(level)?
            .with_intra_threads(options.intra_threads.max(1))?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(options.spin)?
            .with_inter_op_spinning(options.spin)?
            .with_config_entry(
                "optimization.constant_folding_max_output_size_in_bytes",
                MOST_FOLDED_BYTES.to_string(),
            )?;
        adjust(builder)?.commit_from_memory(onnx_bytes)
    };
    let failed = |reason: String| BackendError::Compile { reason };
    // `ort` panics at outputs of negative size, as an image smaller than the kernel over it has.
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(built) => built.map_err(|source| failed(source.to_string())),
        Err(_) => Err(failed("an output has a negative size".to_owned())),
    }
}

fn run_error(source: &ort::Error) -> BackendError {
    BackendError::Run { reason: source.to_string() }
}
