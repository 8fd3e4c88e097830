//! Turns a user's graph into a checked spec and the blobs it names.

use std::{borrow::Cow, collections::BTreeMap, mem};

use syncline_engine::input;
use syncline_scheduler::{
    ids::Name,
    spec::{JobSpec, Layout, ModelSpec, Node, NodeKind, Parameter, TrainSpec},
};

use super::{
    SubmitError,
    data::{describe, wanted},
    graph::{Bytes, JobGraph, Model, NodeWork, ParamList, Training},
    model_file::read_model,
};
use crate::{
    apart::{Care, Models, Opened},
    autodiff::{
        self, AutodiffError, DeriveOptions, Param, Precision, TrainingGraph, names_of, parse_forward,
    },
    data::{DataError, is_url},
    onnx::Dim,
};

/// Attempts after the first that a node without training gets.
const RETRIES: u32 = 2;

/// A job that is ready to be uploaded.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub spec: JobSpec,
    /// Contents by digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Why no CPU can compute it, if none can.
    pub cpu_lacks: Option<NoKernel>,
    /// What is doubtful about the model, and what settles it, a sentence each.
    pub warnings: Vec<String>,
}

/// An operator that the CPU does not have in this precision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKernel {
    pub op: String,
    pub precision: Precision,
}

/// Derives, checks and describes. Touches neither the engine nor the parameter server.
///
/// `models`: where the model is loaded; of a [`Runtime`](crate::backend::Runtime) what [`Models::of`] says.
pub fn prepare(models: impl Into<Models>, graph: &JobGraph) -> Result<Prepared, SubmitError> {
    let models = models.into();
    let mut blobs = BTreeMap::new();
    let (mut cpu_lacks, mut warnings) = (None, Vec::new());
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let kind = match &node.work {
            NodeWork::Train(training) => {
                let spec;
                (spec, cpu_lacks) = prepare_training(&models, training, &mut blobs, &mut warnings)?;
                NodeKind::Train(Box::new(spec))
            }
            NodeWork::Evaluate => NodeKind::Evaluate,
            NodeWork::Snapshot => NodeKind::Snapshot,
        };
        let after = node.after.iter().map(|a| a.parse()).collect::<Result<Vec<Name>, _>>()?;
        nodes.push(Node { name: node.name.parse()?, after, retries: RETRIES, kind });
    }
    let spec = JobSpec { id: graph.id.parse()?, nodes };
    spec.validate()?;
    check_tests(&spec)?;
    Ok(Prepared { spec, blobs, cpu_lacks, warnings })
}

fn check_tests(spec: &JobSpec) -> Result<(), SubmitError> {
    let evaluates = spec.nodes.iter().find(|n| matches!(n.kind, NodeKind::Evaluate));
    let Some((node, (_, train))) = evaluates.zip(spec.train()) else { return Ok(()) };
    if train.model.inputs.is_empty() || train.data.has_test() {
        return Ok(());
    }
    Err(SubmitError::NoTest { node: node.name.to_string() })
}

fn prepare_training(
    models: &Models,
    training: &Training,
    blobs: &mut BTreeMap<String, Vec<u8>>,
    warnings: &mut Vec<String>,
) -> Result<(TrainSpec, Option<NoKernel>), SubmitError> {
    let settings = &training.settings;
    let mut cpu_lacks = None;
    let (forward, mut graph) = match &training.model {
        Model::Forward { onnx, loss, options, output } => {
            let mut bytes = read(onnx)?;
            let options = DeriveOptions {
                output: output.clone(),
                loss: options.clone(),
                params: settings.params.as_ref().map(names).transpose()?,
                freeze: settings.freeze.clone(),
                eval_mode: settings.eval_mode,
                precision: settings.precision,
                recompute: settings.recompute,
                seed: settings.seed as i64,
                ..DeriveOptions::default()
            };
            let model = parse_forward(&bytes).map_err(AutodiffError::from)?;
            warnings.extend(autodiff::warnings(&model, &options)?);
            let care = Care { look: settings.check, any_batch: true };
            let derived = models.derive(&onnx.name(), &bytes, loss.parse()?, &options, care)?;
            let precision = settings.precision;
            cpu_lacks = derived.cpu_lacks.map(|op| NoKernel { op, precision });
            if let Some(Opened { from, onnx }) = derived.opened {
                warnings
                    .push(format!("the model was exported for batches of {from} samples; it takes any now"));
                bytes = Cow::Owned(onnx);
            }
            (bytes, derived.graph)
        }
        Model::Ready { onnx, weights } => {
            if let settings @ [_, ..] = settings.of_deriving().as_slice() {
                return Err(SubmitError::ReadySettings { settings: settings.join(", ") });
            }
            let bytes = read(onnx)?;
            let weights = weights.as_ref().map(read).transpose()?;
            let look = settings.check;
            let graph = models.accept_ready(&onnx.name(), &bytes, weights.as_deref(), look)?.graph;
            check_open(&graph)?;
            (bytes, graph)
        }
    };
    let wanted = wanted(&graph, &training.model)?;
    let data = describe(&training.data, &wanted)?;
    let mut keep = |bytes: Vec<u8>| {
        let digest = blake3::hash(&bytes).to_hex().to_string();
        blobs.insert(digest.clone(), bytes);
        digest
    };
    let initial: Vec<u8> = (graph.params.iter())
        .chain(&graph.state)
        .flat_map(|p| bytemuck::cast_slice::<f32, u8>(&p.initial).iter().copied())
        .collect();
    let model = ModelSpec {
        training_graph: keep(mem::take(&mut graph.train_onnx)),
        evaluation_graph: keep(mem::take(&mut graph.eval_onnx)),
        forward: keep(forward.into_owned()),
        initial: keep(initial),
        layout: layout(&graph),
        inputs: data.inputs,
        label: wanted.label.as_ref().map(|label| label.name.clone()),
        classes: wanted.classes(),
        ignored_label: training.model.ignored_label(),
        label_shape: data.label_shape,
    };
    let spec = TrainSpec {
        model,
        data: data.spec,
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
    };
    Ok((spec, cpu_lacks))
}

/// A ready-made graph is not changed, so that its batch axis has to be open.
fn check_open(graph: &TrainingGraph) -> Result<(), AutodiffError> {
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

fn read(bytes: &Bytes) -> Result<Cow<'_, [u8]>, SubmitError> {
    match bytes {
        Bytes::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        Bytes::File(path) if path.to_str().is_some_and(is_url) => {
            Err(DataError::Remote { url: path.display().to_string() }.into())
        }
        Bytes::File(path) => match read_model(path) {
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
