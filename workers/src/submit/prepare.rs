//! Turns a user's graph into a checked spec and the blobs it names.

use std::{borrow::Cow, collections::BTreeMap};

use syncline_autodiff::{
    self as autodiff, AutodiffError, DeriveOptions, LossOptions, Param, Precision, TrainingGraph, names_of,
    parse_forward,
};
use syncline_engine::input;
use syncline_onnx::Dim;
use syncline_scheduler::{
    ids::Name,
    spec::{DataSpec, JobSpec, Layout, ModelSpec, Node, NodeKind, Parameter, TrainSpec},
};

use super::{
    SubmitError,
    data::{inspect, signature},
    graph::{ByteSource, JobGraph, Model, NodeWork, ParamList, Settings, Training},
    model_file::read_model,
};
use crate::{
    apart::{DynamicBatch, ModelChecks, ModelHost},
    data::{DataError, is_url},
};

/// Attempts after the first that a node without training gets.
const NODE_RETRIES: u32 = 2;

/// A job that is ready to be uploaded.
#[derive(Debug, Clone)]
pub struct PreparedJob {
    pub spec: JobSpec,
    /// Contents by digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Why no CPU can compute it, if none can.
    pub missing_cpu_kernel: Option<MissingKernel>,
    /// What is doubtful about the model, and what settles it, a sentence each.
    pub warnings: Vec<String>,
}

/// An operator that the CPU does not have in this precision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingKernel {
    pub op: String,
    pub precision: Precision,
}

/// Derives, checks and describes. Touches neither the engine nor the parameter server.
///
/// `models`: where the model is loaded; of a [`Runtime`](syncline_runtime::Runtime) what [`ModelHost::of`] says.
pub fn prepare(models: impl Into<ModelHost>, graph: &JobGraph) -> Result<PreparedJob, SubmitError> {
    let host = models.into();
    let mut blobs = BTreeMap::new();
    let (mut missing_cpu_kernel, mut warnings) = (None, Vec::new());
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let kind = match &node.work {
            NodeWork::Train(training) => {
                let spec;
                (spec, missing_cpu_kernel) = prepare_training(&host, training, &mut blobs, &mut warnings)?;
                NodeKind::Train(Box::new(spec))
            }
            NodeWork::Evaluate => NodeKind::Evaluate,
            NodeWork::Snapshot => NodeKind::Snapshot,
        };
        let after = node.after.iter().map(|a| a.parse()).collect::<Result<Vec<Name>, _>>()?;
        nodes.push(Node { name: node.name.parse()?, after, retries: NODE_RETRIES, kind });
    }
    let spec = JobSpec { id: graph.id.parse()?, nodes };
    spec.validate()?;
    check_test_split(&spec)?;
    Ok(PreparedJob { spec, blobs, missing_cpu_kernel, warnings })
}

fn check_test_split(spec: &JobSpec) -> Result<(), SubmitError> {
    let evaluates = spec.nodes.iter().find(|n| matches!(n.kind, NodeKind::Evaluate));
    let Some((node, (_, train))) = evaluates.zip(spec.train()) else { return Ok(()) };
    if train.model.inputs.is_empty() || train.data.has_test() {
        return Ok(());
    }
    Err(SubmitError::NoTest { node: node.name.to_string() })
}

/// A training graph, and what it was made from.
struct Source<'a> {
    /// The forward model, or the training graph as it was given.
    onnx: Cow<'a, [u8]>,
    graph: TrainingGraph,
    missing_kernel: Option<MissingKernel>,
}

fn prepare_training(
    host: &ModelHost,
    training: &Training,
    blobs: &mut BTreeMap<String, Vec<u8>>,
    warnings: &mut Vec<String>,
) -> Result<(TrainSpec, Option<MissingKernel>), SubmitError> {
    let Source { onnx, graph, missing_kernel } = match &training.model {
        Model::Forward { onnx, loss, options, output } => {
            let options = derive_options(&training.settings, options, output)?;
            derive_graph(host, onnx, loss, &options, training.settings.check, warnings)?
        }
        Model::Ready { onnx, weights } => accept_graph(host, onnx, weights.as_ref(), &training.settings)?,
    };
    let signature = signature(&graph, &training.model)?;
    let data = inspect(&training.data, &signature)?;
    let mut keep = |bytes: Vec<u8>| {
        let digest = blake3::hash(&bytes).to_hex().to_string();
        blobs.insert(digest.clone(), bytes);
        digest
    };
    let initial = (graph.params.iter().chain(&graph.state))
        .flat_map(|p| bytemuck::cast_slice::<f32, u8>(&p.initial).iter().copied())
        .collect();
    let layout = layout(&graph);
    let model = ModelSpec {
        training_graph: keep(graph.train_onnx),
        evaluation_graph: keep(graph.eval_onnx),
        forward: keep(onnx.into_owned()),
        initial: keep(initial),
        layout,
        inputs: data.inputs,
        label: signature.label.as_ref().map(|label| label.name.clone()),
        classes: signature.classes(),
        ignored_label: training.model.ignored_label(),
        label_shape: data.label_shape,
    };
    Ok((train_spec(model, data.spec, &training.settings), missing_kernel))
}

fn derive_options(
    settings: &Settings,
    loss: &LossOptions,
    output: &Option<String>,
) -> Result<DeriveOptions, SubmitError> {
    Ok(DeriveOptions {
        output: output.clone(),
        loss: loss.clone(),
        params: settings.params.as_ref().map(names).transpose()?,
        freeze: settings.freeze.clone(),
        eval_mode: settings.eval_mode,
        precision: settings.precision,
        recompute: settings.recompute,
        seed: settings.seed as i64,
        ..DeriveOptions::default()
    })
}

fn derive_graph<'a>(
    host: &ModelHost,
    model: &'a ByteSource,
    loss: &str,
    options: &DeriveOptions,
    check_gradients: bool,
    warnings: &mut Vec<String>,
) -> Result<Source<'a>, SubmitError> {
    let onnx = read(model)?;
    let parsed = parse_forward(&onnx).map_err(AutodiffError::from)?;
    warnings.extend(autodiff::warnings(&parsed, options)?);
    let checks = ModelChecks { gradients: check_gradients, batch_axis: true };
    let derived = host.derive(&model.name(), &onnx, loss.parse()?, options, checks)?;
    let precision = options.precision;
    let missing_kernel = derived.missing_cpu_kernel.map(|op| MissingKernel { op, precision });
    let onnx = match derived.dynamic_batch {
        Some(DynamicBatch { exported_size, onnx }) => {
            warnings.push(format!(
                "the model was exported for batches of {exported_size} samples; it takes any now"
            ));
            Cow::Owned(onnx)
        }
        None => onnx,
    };
    Ok(Source { onnx, graph: derived.graph, missing_kernel })
}

fn accept_graph<'a>(
    host: &ModelHost,
    model: &'a ByteSource,
    weights: Option<&ByteSource>,
    settings: &Settings,
) -> Result<Source<'a>, SubmitError> {
    if let settings @ [_, ..] = settings.derivation_settings().as_slice() {
        return Err(SubmitError::ReadySettings { settings: settings.join(", ") });
    }
    let onnx = read(model)?;
    let weights = weights.map(read).transpose()?;
    let graph = host.accept_ready(&model.name(), &onnx, weights.as_deref(), settings.check)?.graph;
    check_dynamic_batch(&graph)?;
    Ok(Source { onnx, graph, missing_kernel: None })
}

fn train_spec(model: ModelSpec, data: DataSpec, settings: &Settings) -> TrainSpec {
    TrainSpec {
        model,
        data,
        optimizer: settings.optimizer,
        learning_rate: settings.rate(),
        policy: settings.policy,
        batch: settings.batch,
        epochs: settings.epochs,
        drop_last: settings.drop_last,
        seed: settings.seed,
        on_nan: settings.on_nan,
        clip_norm: settings.clip_norm,
        min_workers: settings.min_workers,
        max_workers: settings.max_workers.unwrap_or(u32::MAX),
        ahead: settings.ahead,
    }
}

/// A ready-made graph is not changed, so that its batch axis has to be open.
fn check_dynamic_batch(graph: &TrainingGraph) -> Result<(), AutodiffError> {
    for io in graph.data_inputs.iter().chain(&graph.label) {
        if let Some(size) = io.dims.first().and_then(Dim::fixed) {
            let reason = format!(
                "the first axis of input `{}` is fixed, and a training graph stays as it is",
                io.name
            );
            return Err(AutodiffError::FixedBatch { size, reason });
        }
    }
    Ok(())
}

fn read(bytes: &ByteSource) -> Result<Cow<'_, [u8]>, SubmitError> {
    match bytes {
        ByteSource::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        ByteSource::File(path) if path.to_str().is_some_and(is_url) => {
            Err(DataError::Remote { url: path.display().to_string() }.into())
        }
        ByteSource::File(path) => match read_model(path) {
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(source) => Err(SubmitError::Read { path: path.clone(), source }),
        },
    }
}

/// A list of names that somebody's program printed.
const MAX_LIST_BYTES: u64 = 64 << 20;

fn names(list: &ParamList) -> Result<Vec<String>, SubmitError> {
    match list {
        ParamList::Names(names) => Ok(names.clone()),
        ParamList::File(path) => match input::read_text(path, MAX_LIST_BYTES) {
            Ok(text) => Ok(names_of(&text)),
            Err(source) => Err(SubmitError::Read { path: path.clone(), source }),
        },
    }
}

/// Trained parameters, then running statistics.
fn layout(graph: &TrainingGraph) -> Layout {
    let shape = |param: &Param| param.shape.iter().map(|&d| d as u64).collect();
    let trained = graph.params.iter().map(|param| Parameter::trained(&param.name, shape(param)));
    let buffers = graph.state.iter().map(|param| Parameter::buffer(&param.name, shape(param)));
    Layout(trained.chain(buffers).collect())
}
