//! Turns a user's graph into a checked spec and the blobs it names.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};
use syncline_ps::content::digest_of;

use syncline_autodiff::{AutodiffError, Loss, Param, Precision, TrainedNames, TrainingGraph};
use syncline_scheduler::{
    core::MOST_COUNTED_CLASSES,
    ids::{ContentDigest, NodeName},
    spec::{DataSpec, JobSpec, Layout, Metric, ModelSpec, Node, NodeKind, Parameter, TrainSpec},
};

use super::{
    DataParts, SubmitError,
    data::{inspect, signature},
    graph::{JobGraph, NodeWork},
    groups::put_in_groups,
    model::Model,
    other_output::name_what_fits,
    ready,
    resume::read_resume,
    submitted::submitted,
    training::{Settings, Training},
};
use crate::data::{expand, label_places};

/// A job that is ready to be uploaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PreparedJob {
    /// What the engine is given; it names blobs by their digests.
    pub spec: JobSpec,
    /// Contents by digest; clones share them, and so do [variants](super::JobVariants) of a job those that
    /// are equal.
    pub blobs: Arc<BTreeMap<ContentDigest, Arc<Vec<u8>>>>,
    /// Why no CPU can compute it, if none can.
    pub missing_cpu_kernel: Option<MissingKernel>,
    /// What is doubtful about the model, and what settles it, a sentence each.
    pub warnings: Vec<String>,
    /// Training samples, validate and test, and what their label is.
    pub data: DataParts,
    /// `None` where nothing trains.
    measured: Option<Measured>,
}

impl PreparedJob {
    /// What its training needs so that an evaluation of it measures this; `None` where one does, or nothing
    /// trains.
    #[doc(hidden)]
    pub fn lacks_for(&self, metric: Metric) -> Option<&'static str> {
        self.measured?.lacks_for(metric)
    }
}

/// An operator that the CPU does not have in this precision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingKernel {
    /// Operator, as ONNX Runtime names it.
    pub op: String,
    /// Precision that the job asks for, one of 16 bits.
    pub precision: Precision,
}

/// Checks and describes a graph whose model is a training graph already. Touches neither the engine nor the
/// parameter server, and needs no ONNX Runtime: the training graph is taken by the types that it declares.
///
/// # Errors
/// E367 for a forward model, and all that [`SubmitError`] lists of settings and data.
pub fn prepare_ready(graph: &JobGraph) -> Result<PreparedJob, SubmitError> {
    assemble(graph, |training, _, _| ready::by_declared_types(&training.model, &training.settings))
}

/// A training graph, and what it was made from.
pub(super) struct PreparedModel<'a> {
    /// The forward model, or the training graph as it was given.
    pub onnx: Cow<'a, [u8]>,
    pub graph: TrainingGraph,
    pub missing_kernel: Option<MissingKernel>,
}

/// A training node as the engine is told of it, and what comes along.
#[derive(Debug, Clone)]
pub(super) struct DescribedTraining {
    pub spec: TrainSpec,
    pub blobs: Arc<BTreeMap<ContentDigest, Arc<Vec<u8>>>>,
    pub missing_cpu_kernel: Option<MissingKernel>,
    /// What is doubtful about model, data and settings.
    pub warnings: Vec<String>,
    pub parts: DataParts,
    pub measured: Measured,
}

/// Describes a graph; `prepare_model` says what becomes of the model of a training node on this data, and
/// what is doubtful about it.
pub(super) fn assemble(
    graph: &JobGraph,
    prepare_model: impl for<'t> Fn(
        &'t Training,
        &DataSpec,
        &mut Vec<String>,
    ) -> Result<PreparedModel<'t>, SubmitError>,
) -> Result<PreparedJob, SubmitError> {
    assemble_of(graph, |node, training| {
        let mut described = describe(node, training, &prepare_model)?;
        described.warnings.extend(doubts(training));
        Ok(described)
    })
}

/// The same from training nodes that `describe`, which is given their names, describes.
pub(super) fn assemble_of<'a>(
    graph: &'a JobGraph,
    mut describe: impl FnMut(&'a str, &'a Training) -> Result<DescribedTraining, SubmitError>,
) -> Result<PreparedJob, SubmitError> {
    let (mut blobs, mut missing_cpu_kernel) = (Arc::default(), None);
    let (mut warnings, mut data, mut measured) = (Vec::new(), DataParts::default(), None);
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let kind = match &node.work {
            NodeWork::Train(training) => {
                let described = describe(&node.name, training)?;
                (blobs, missing_cpu_kernel) = (described.blobs, described.missing_cpu_kernel);
                warnings.extend(described.warnings);
                (data, measured) = (described.parts, Some(described.measured));
                NodeKind::Train(Box::new(described.spec))
            }
            NodeWork::Evaluate => NodeKind::Evaluate,
            NodeWork::Snapshot => NodeKind::Snapshot,
        };
        let after = node.after.iter().map(|a| a.parse()).collect::<Result<Vec<NodeName>, _>>()?;
        nodes.push(Node { name: node.name.parse()?, after, retries: node.retries, kind });
    }
    let spec = JobSpec { id: graph.id.parse()?, nodes };
    spec.validate()?;
    check_test_split(&spec)?;
    Ok(PreparedJob { spec, blobs, missing_cpu_kernel, warnings, data, measured })
}

fn check_test_split(spec: &JobSpec) -> Result<(), SubmitError> {
    let Some((trains, train)) = spec.train() else { return Ok(()) };
    let evaluates = spec.nodes.iter().find(|n| matches!(n.kind, NodeKind::Evaluate)).map(|node| &node.name);
    let has_validation = train.data.has_validation();
    let trains = train.evaluate.filter(|_| !has_validation).map(|_| &trains.name);
    let Some(node) = evaluates.or(trains) else { return Ok(()) };
    if train.model.inputs.is_empty() || train.data.has_test() {
        return Ok(());
    }
    let lacks = match evaluates {
        Some(_) => "test set; set `split`, or `test`",
        None => "part for that; set `validation_percent`, `validation`, `split`, or `test`",
    };
    Err(SubmitError::NoTest { node: node.to_string(), lacks })
}

/// Which figures beside the loss the evaluations of a training measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    accuracy: bool,
    top_k_accuracy: bool,
    perplexity: bool,
    /// F1, precision and recall, as the mean of all classes.
    of_classes: bool,
    /// Those of the positive class.
    of_positive: bool,
}

impl Measured {
    /// `label_shape`: of a sample.
    fn of(model: &Model, graph: &TrainingGraph, label_shape: &[u32]) -> Self {
        let shape: Vec<usize> = label_shape.iter().map(|&size| size as usize).collect();
        // How many classes are counted, and how many where one is the positive one.
        let (classes, of_two) = match model {
            Model::Forward { loss: Loss::SoftmaxCrossEntropy, .. } => (graph.classes, 2),
            Model::Forward { loss: Loss::BinaryCrossEntropy, .. } => (Some(label_places(&shape).0), 1),
            Model::Forward { .. } | Model::Ready { .. } => (None, 0),
        };
        let classes = classes.filter(|classes| *classes <= MOST_COUNTED_CLASSES);
        Self {
            accuracy: graph.has_correct,
            top_k_accuracy: graph.has_correct_top,
            perplexity: graph.has_perplexity,
            of_classes: classes.is_some(),
            of_positive: classes == Some(of_two),
        }
    }

    /// What a training needs so that this is measured; `None` where it is.
    fn lacks_for(self, metric: Metric) -> Option<&'static str> {
        let (is_measured, needs) = match metric {
            Metric::Loss => return None,
            Metric::Accuracy => (self.accuracy, "a loss of classes"),
            Metric::TopKAccuracy => (
                self.top_k_accuracy,
                "softmax-cross-entropy with `loss_options = { top_k = 5 }`, or another k",
            ),
            Metric::Perplexity => {
                (self.perplexity, "softmax-cross-entropy with `loss_options = { perplexity = true }`")
            }
            Metric::MacroF1 | Metric::MacroPrecision | Metric::MacroRecall => {
                (self.of_classes, "a loss of classes, 1000 at most")
            }
            Metric::PositiveF1 | Metric::PositivePrecision | Metric::PositiveRecall => {
                (self.of_positive, "two classes, or one label that is there or not")
            }
        };
        (!is_measured).then_some(needs)
    }
}

pub(super) fn check_monitor(node: &str, training: &Training, measured: Measured) -> Result<(), SubmitError> {
    let Some(monitor) = training.settings.evaluate.map(|evaluate| evaluate.monitor) else { return Ok(()) };
    let node = node.to_owned();
    match (monitor, measured.lacks_for(monitor)) {
        (_, None) => Ok(()),
        (Metric::Accuracy, Some(_)) => Err(SubmitError::NoAccuracy { node }),
        (_, Some(needs)) => Err(SubmitError::NotCounted { node, monitor: monitor.name(), needs }),
    }
}

/// What is doubtful about settings that neither the training graph nor the data depend on.
pub(super) fn doubts(training: &Training) -> impl Iterator<Item = String> {
    chosen_by_tests(training).into_iter().chain(idle_micro_batch(&training.settings))
}

/// Where test samples decide when training ends, or with which parameters, they do not say any more what it
/// is worth.
fn chosen_by_tests(training: &Training) -> Option<String> {
    let decides = training.settings.evaluate.is_some_and(|evaluate| evaluate.decides());
    (decides && !training.data.has_validation()).then(|| {
        "the test samples decide when training ends, which parameters are the best, or when the learning rate falls, so that they flatter what comes of it; \
         `validation_percent = 10` in the data holds out samples for that"
            .to_owned()
    })
}

/// Where no batch is larger than a piece of one may be. Policies that balance the load may make some larger
/// than the job's.
fn idle_micro_batch(settings: &Settings) -> Option<String> {
    let Settings { batch, micro_batch, policy, .. } = settings;
    let most = micro_batch.filter(|most| most >= batch && !policy.sizes_batches())?;
    Some(format!(
        "micro_batch {most} has no effect, but on workers with a smaller `--max-batch`: a batch has {batch} samples, which others compute at once"
    ))
}

/// The node as the engine is told of it; what is large goes to the blobs.
pub(super) fn describe(
    node: &str,
    training: &Training,
    prepare_model: impl for<'t> Fn(
        &'t Training,
        &DataSpec,
        &mut Vec<String>,
    ) -> Result<PreparedModel<'t>, SubmitError>,
) -> Result<DescribedTraining, SubmitError> {
    let (mut blobs, mut files) = (BTreeMap::new(), training.data.clone());
    let mut warnings = expand(&mut files)?;
    let (unbalanced, mut doubts) = (training.unbalanced(), Vec::new());
    let mut prepared = prepare_model(unbalanced.as_ref().unwrap_or(training), &files, &mut doubts)?;
    let signature = signature(&prepared.graph, &training.model)?;
    let seed = training.settings.seed;
    let weights = training.model.class_weights();
    let mut data = inspect(files.clone(), &signature, weights, seed).map_err(|error| {
        name_what_fits(error, unbalanced.as_ref().unwrap_or(training), &prepared.graph, |other| {
            let prepared = prepare_model(other, &files, &mut Vec::new())?;
            let signature = super::data::signature(&prepared.graph, &other.model)?;
            inspect(files.clone(), &signature, other.model.class_weights(), seed).map(|_| ())
        })
    })?;
    let measured = Measured::of(&training.model, &prepared.graph, &data.label_shape);
    check_monitor(node, training, measured)?;
    let balanced;
    if unbalanced.is_some() {
        balanced = training.balanced(&mut data, &signature)?;
        doubts.clear();
        prepared = prepare_model(&balanced, &files, &mut doubts)?;
    }
    let PreparedModel { onnx, graph, missing_kernel } = prepared;
    warnings.extend(doubts);
    warnings.append(&mut data.warnings);
    for input in &mut data.inputs {
        input.row_group = group_of(&graph.row_tables.inputs, &input.name);
    }
    let mut keep = |bytes: Vec<u8>| {
        let digest = digest_of(&bytes);
        blobs.insert(digest, Arc::new(bytes));
        digest
    };
    let initial = || (graph.params.iter().chain(&graph.state)).map(|p| bytemuck::cast_slice(&p.initial));
    let layout = grouped_layout(&training.settings, &onnx, &graph, &mut warnings)?;
    let resume = &training.settings.resume;
    let model = ModelSpec {
        training_graph: keep(graph.train_onnx),
        evaluation_graph: keep(graph.eval_onnx),
        forward: keep(onnx.into_owned()),
        initial: match resume {
            // Known below, from the checkpoint.
            Some(_) => ContentDigest::LOWEST,
            None => keep(initial().collect::<Vec<&[u8]>>().concat()),
        },
        layout,
        inputs: data.inputs,
        label: signature.label.as_ref().map(|label| label.name.clone()),
        classes: signature.classes(),
        ignored_label: training.model.ignored_label(),
        label_shape: data.label_shape,
    };
    let mut train = train_spec(model, data.spec, training);
    if let Some(path) = resume {
        let resumed = read_resume(path, &train)?;
        train.model.initial = keep(resumed.file);
        train.resume = Some(resumed.at);
        warnings.extend(resumed.warnings);
    }
    Ok(DescribedTraining {
        spec: train,
        blobs: Arc::new(blobs),
        missing_cpu_kernel: missing_kernel,
        warnings,
        parts: data.parts,
        measured,
    })
}

/// A training of this model on this data, as it is to be trained.
pub(super) fn train_spec(model: ModelSpec, data: DataSpec, training: &Training) -> TrainSpec {
    let settings = &training.settings;
    TrainSpec {
        model,
        data,
        optimizer: settings.optimizer,
        learning_rate: settings.rate(),
        policy: settings.policy,
        batch: settings.batch,
        micro_batch: settings.micro_batch,
        epochs: settings.epochs,
        drop_last: settings.drop_last,
        shuffle: settings.shuffle,
        seed: settings.seed,
        on_nan: settings.on_nan,
        clip_norm: settings.clip_norm,
        min_workers: settings.min_workers,
        max_workers: settings.max_workers.unwrap_or(u32::MAX),
        ahead: settings.ahead,
        queue_limit_ms: settings.queue_limit_s.map(|seconds| seconds.saturating_mul(1_000)),
        checkpoint: settings.checkpoint,
        evaluate: settings.evaluate,
        resume: None,
        compression: settings.compression,
        pull_compression: settings.pull_compression,
        tf32: settings.precision == Precision::Tf32,
        precision: settings.precision.name().to_owned(),
        submitted: submitted(training),
    }
}

/// The group of tables that a name belongs to.
fn group_of(groups: &[(String, u32)], name: &str) -> Option<u32> {
    groups.iter().find(|(known, _)| known == name).map(|(_, group)| *group)
}

/// The layout, with the settings that parameters have by their groups.
fn grouped_layout(
    settings: &Settings,
    onnx: &[u8],
    graph: &TrainingGraph,
    warnings: &mut Vec<String>,
) -> Result<Layout, SubmitError> {
    let mut layout = layout(graph);
    if !settings.groups.is_empty() {
        let model = syncline_onnx::parse(onnx).map_err(AutodiffError::from)?;
        let trained = graph.params.iter().map(|param| param.name.as_str()).collect();
        let names = TrainedNames::new(&model, trained);
        warnings.extend(put_in_groups(&settings.groups, &settings.optimizer, &names, &mut layout)?);
    }
    Ok(layout)
}

/// Trained parameters, then running statistics.
fn layout(graph: &TrainingGraph) -> Layout {
    let shape = |param: &Param| param.shape.iter().map(|&d| d as u64).collect();
    let trained = graph.params.iter().map(|param| match group_of(&graph.row_tables.tables, &param.name) {
        Some(group) => Parameter::rows(&param.name, shape(param), group),
        None => Parameter::trained(&param.name, shape(param)),
    });
    let buffers = graph.state.iter().map(|param| Parameter::buffer(&param.name, shape(param)));
    Layout(trained.chain(buffers).collect())
}
