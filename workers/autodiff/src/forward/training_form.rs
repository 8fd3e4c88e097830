//! Training form and evaluation form of a forward graph: what BatchNormalization and Dropout do in each.
//!
//! A model is most often exported for evaluation, where BatchNormalization uses statistics that were gathered
//! before and Dropout does nothing. In the training form:
//!
//! * Dropout is active, with a seed, so that a run can be repeated: [`activate_dropout`], before ONNX Runtime
//!   simplifies the model (which would take an idle Dropout away).
//! * BatchNormalization uses the statistics of the batch, written as `mean = sum(x) / n` and `variance =
//!   sum((x - mean)^2) / n` in front of the operator as it is for evaluation (in ONNX Runtime its own
//!   training mode is the slower one, and absent on GPUs): [`training_form`]. What it remembers of them
//!   follows as `new = running * momentum + batch * (1 - momentum)`, with the unbiased variance n / (n - 1),
//!   as every framework has it; see [`Statistic`]. A mean and a variance that the model computes of the batch
//!   are remembered by nobody: such a norm trains as it evaluates. One value alone in its channel, as of a
//!   last batch of one sample, has no variance, and a selection of no sample has no statistics at all: they
//!   stay as they are.
//!
//! [`evaluation_form`] goes the other way, for a model that was exported for training; [`evaluate`] does so
//! for one node, where a part of the model is to evaluate while the rest trains
//! ([`eval_parts`](super::eval_parts)). Source: Ioffe and Szegedy, Batch normalization, arXiv:1502.03167,
//! algorithms 1 and 2; the ONNX operator's text.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{
    FunctionProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto, metadata,
};
use syncline_onnx::{Dim, ElementType, TensorType, Types, attr_int, captured};

use super::random_masks::keep_all;
use crate::emitter::Emitter;
use crate::error::AutodiffError;

/// What follows the name of a running statistic in the name of its next value.
pub const NEXT_SUFFIX: &str = ".new";
/// What is kept of a running statistic at each step, if the node does not say.
const MOMENTUM: f32 = 0.9;

/// A running mean or variance that a training step changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistic {
    /// The tensor of the forward model that holds it.
    pub name: String,
    /// The value of the training form that takes its place after a step; to be published as `<name>.new`.
    pub(crate) next: String,
}

/// Names of the tensors that BatchNormalization nodes, those that `counts` is true of, read as mean and
/// variance: no weights, whatever their type.
pub(crate) fn statistics(graph: &GraphProto, counts: impl Fn(&NodeProto) -> bool) -> HashSet<String> {
    let made =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)));
    let producers: HashMap<&str, &NodeProto> = made.collect();
    let mut read = Vec::new();
    read_as_statistics(&graph.node, &counts, &mut read);
    read.into_iter().map(|value| origin(value, |value| producers.get(value).copied()).to_owned()).collect()
}

/// In branches too, which may be folded away.
fn read_as_statistics<'g>(
    nodes: &'g [NodeProto],
    counts: &impl Fn(&NodeProto) -> bool,
    read: &mut Vec<&'g str>,
) {
    for node in nodes {
        if is(node, "BatchNormalization") && counts(node) {
            read.extend(node.input.iter().skip(3).map(String::as_str));
        }
        node.subgraphs().for_each(|graph| read_as_statistics(&graph.node, counts, read));
    }
}

/// Refuses a function that could not be written out and holds what trains in another way than it evaluates.
pub(super) fn refuse_in_functions(functions: &[FunctionProto]) -> Result<(), AutodiffError> {
    refuse(functions.iter().find_map(|function| hidden(&function.node)), OF_OTHER_OPSET)
}

/// Refuses what would silently evaluate inside of a branch or a loop while the rest of the model trains.
pub(super) fn refuse_within(graph: &GraphProto) -> Result<(), AutodiffError> {
    refuse(graph.node.iter().flat_map(NodeProto::subgraphs).find_map(|inner| hidden(&inner.node)), WITHIN)
}

const OF_OTHER_OPSET: &str = "the function that holds it is for another version of the operators than the model, and can be \
     evaluated only; export the model with one version, or set eval_mode = true";
const WITHIN: &str =
    "inside of an If, Loop or Scan it can be evaluated only; move it out, or set eval_mode = true";

fn refuse(hidden: Option<&NodeProto>, reason: &str) -> Result<(), AutodiffError> {
    let Some(node) = hidden else { return Ok(()) };
    let (op, node) = (node.op_type.clone(), node.label().to_owned());
    Err(AutodiffError::UnsupportedUse { op, node, reason: reason.to_owned() })
}

fn hidden(nodes: &[NodeProto]) -> Option<&NodeProto> {
    nodes.iter().find_map(|node| {
        let found = is(node, "BatchNormalization") || is(node, "Dropout");
        found.then_some(node).or_else(|| node.subgraphs().find_map(|graph| hidden(&graph.node)))
    })
}

/// Makes every Dropout of the graph drop, in branches too, each with a seed of its own, but those of the
/// names in `evaluated`. `param` is an input that is never empty.
///
/// ONNX Runtime 1.31 takes away every Dropout whose mask nobody reads, even one that is told to train by a
/// constant or an input. So they are told by a value that only the run knows to be true: b or not b, for the
/// first number of `param`.
pub(crate) fn activate_dropout(graph: &mut GraphProto, seed: i64, param: &str, evaluated: &HashSet<String>) {
    let [list, first, flat, number, truth, lie, active] =
        ["list", "first", "flat", "number", "truth", "lie", "active"]
            .map(|part| format!("syncline/dropout_{part}"));
    let mut next = seed;
    activate(&mut graph.node, &active, &mut next, evaluated);
    if next == seed {
        return;
    }
    graph.initializer.push(TensorProto::from_i64(&list, &[1], &[-1]));
    graph.initializer.push(TensorProto::from_i64(&first, &[], &[0]));
    let to_bool = attr_int("to", i64::from(ElementType::Bool.code()));
    let nodes = [
        NodeProto::named(&flat, "Reshape", &[param, &list], &[]),
        NodeProto::named(&number, "Gather", &[&flat, &first], &[]),
        NodeProto::named(&truth, "Cast", &[&number], &[to_bool]),
        NodeProto::named(&lie, "Not", &[&truth], &[]),
        NodeProto::named(&active, "Or", &[&truth, &lie], &[]),
    ];
    graph.node.splice(0..0, nodes);
}

fn activate(nodes: &mut [NodeProto], active: &str, seed: &mut i64, evaluated: &HashSet<String>) {
    for node in nodes {
        if is(node, "Dropout") && !evaluated.contains(&node.name) {
            node.input.resize(3, String::new());
            active.clone_into(&mut node.input[2]);
            node.attribute.retain(|attribute| attribute.name != "seed");
            node.attribute.push(attr_int("seed", *seed));
            *seed = seed.wrapping_add(1);
        }
        node.subgraphs_mut().for_each(|graph| activate(&mut graph.node, active, seed, evaluated));
    }
}

/// The graph as it evaluates: no Dropout, even where it is written as random numbers, and BatchNormalization
/// with the statistics that it remembers.
pub(crate) fn evaluation_form(graph: &GraphProto) -> GraphProto {
    let mut graph = graph.clone();
    keep_all(&mut graph);
    let mut remembered = Vec::new();
    graph.node.iter_mut().for_each(|node| evaluate(node, &mut remembered));
    // In front, where statistics that come from outside are known; what reads them may be anywhere.
    graph.node.splice(0..0, remembered);
    graph
}

/// Makes a node of it that evaluates, if it is a Dropout or a BatchNormalization; nodes that hand on what the
/// latter would remember go to `remembered`.
pub(super) fn evaluate(node: &mut NodeProto, remembered: &mut Vec<NodeProto>) {
    if is(node, "Dropout") {
        // Without its third input it passes everything; one with a mask stays for the sake of the mask.
        node.input.truncate(2);
        if node.output.len() <= 1 {
            node.input.truncate(1);
            node.attribute.clear();
            "Identity".clone_into(&mut node.op_type);
        }
    }
    if is(node, "BatchNormalization") {
        node.attribute.retain(|attribute| attribute.name != "training_mode");
        let statistics = node.input.iter().skip(3).zip(node.output.iter().skip(1));
        remembered
            .extend(statistics.filter(|(_, next)| !next.is_empty()).map(|(old, next)| identity(old, next)));
        node.output.truncate(1);
    }
}

/// The graph with every BatchNormalization in training form, but those of the names in `evaluated`, and what
/// becomes of the running statistics.
///
/// `types` has the types of the graph's values and receives those of the new ones. A statistic that is no
/// input of the graph is a constant of the model, and stays one. `data_inputs`: names of the inputs that hold
/// a batch.
pub(crate) fn training_form(
    graph: &GraphProto,
    types: &mut Types,
    evaluated: &HashSet<String>,
    data_inputs: &[String],
) -> Result<(GraphProto, Vec<Statistic>), AutodiffError> {
    let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    let known: HashSet<&str> = graph.node.iter().flat_map(|node| &node.output).map(String::as_str).collect();
    let (mut emitter, nodes) = Emitter::rewriting(graph.clone());
    let mut statistics: Vec<Statistic> = Vec::new();
    let mut of_batch: HashSet<String> = data_inputs.iter().cloned().collect();
    for mut node in nodes {
        let mut given = node.input.iter().skip(3);
        let measured = given
            .any(|value| of_batch.contains(origin(value, |value| emitter.producer(value))))
            // The operator itself measures the batch then, whatever it is given.
            && node.int("training_mode", 0) == 0;
        let mut reads = node.input.iter().map(String::as_str).chain(captured(&node));
        // The shape of a batch says nothing of its numbers.
        if node.op_type != "Shape" && reads.any(|value| of_batch.contains(value)) {
            of_batch.extend(node.output.iter().filter(|output| !output.is_empty()).cloned());
        }
        if !is(&node, "BatchNormalization") || evaluated.contains(&node.name) || measured {
            emitter.push_node(node);
            continue;
        }
        let batch = Batch::emit(&mut emitter, &node, types)?;
        types.extend(
            batch.has_several.iter().map(|is| (is.clone(), TensorType::new(ElementType::Bool, Vec::new()))),
        );
        let (mean, variance) = (batch.mean.clone(), batch.variance.clone());
        let nexts = [(&mean, 3, 1), (&batch.unbiased, 4, 2)];
        for (seen, input, output) in nexts {
            let from = origin(&node.input[input], |value| emitter.producer(value)).to_owned();
            // Every call of a layer moves them, and begins where the last one ended: exporters write the
            // tensor again, or what the last call made of it.
            let found = statistics.iter().position(|known| known.name == from || known.next == from);
            let running = found.map_or(&node.input[input], |at| &statistics[at].next);
            let next = batch.next(&mut emitter, [running, seen], types);
            if let Some(name) = node.output.get(output).filter(|name| !name.is_empty()) {
                emitter.push_node(identity(&next, name));
            }
            match found {
                Some(at) => statistics[at].next = next,
                None if inputs.contains(from.as_str()) => statistics.push(Statistic { name: from, next }),
                None => {}
            }
        }
        node.output.truncate(1);
        node.attribute.retain(|attribute| attribute.name == "epsilon");
        node.input[3] = mean;
        node.input[4] = variance;
        node.metadata_props =
            vec![StringStringEntryProto { key: CENTERED.to_owned(), value: batch.centered }];
        emitter.push_node(node);
    }
    let written = emitter.rewritten();
    let made = written.node.iter().flat_map(|node| &node.output);
    for value in made.filter(|value| !known.contains(value.as_str())) {
        // Only that the others are float tensors matters; no rule looks at them.
        types.entry(value.clone()).or_insert_with(|| TensorType::new(ElementType::F32, Vec::new()));
    }
    Ok((written, statistics))
}

/// What [`training_form`] notes of a BatchNormalization: which value is its batch less the mean.
const CENTERED: &str = "syncline.centered";

/// The batch less its mean, if [`training_form`] has given the node the statistics of its batch.
pub(crate) fn centered(node: &NodeProto) -> Option<&str> {
    metadata(&node.metadata_props, CENTERED)
}

/// Statistics of one batch, per channel.
struct Batch {
    mean: String,
    /// The batch less its mean.
    centered: String,
    variance: String,
    unbiased: String,
    /// Whether a channel has several values; `None`: it always has.
    has_several: Option<String>,
    momentum: f32,
    /// What the norm computes in.
    element: ElementType,
}

impl Batch {
    fn emit(e: &mut Emitter, node: &NodeProto, types: &Types) -> Result<Self, AutodiffError> {
        let refuse = |reason: &str| AutodiffError::UnsupportedUse {
            op: node.op_type.clone(),
            node: node.label().to_owned(),
            reason: reason.to_owned(),
        };
        let [x, _, _, _, _] = node.input.as_slice() else {
            return Err(refuse("it does not have five inputs"));
        };
        let ty = types.get(x).ok_or_else(|| refuse("the shape of its input is not known"))?;
        let channels = ty.dims.get(1).and_then(Dim::fixed);
        let channels = channels.ok_or_else(|| refuse("its number of channels is not known"))?;
        let axes: Vec<i64> = (0..ty.dims.len() as i64).filter(|axis| *axis != 1).collect();
        let column: Vec<i64> =
            std::iter::once(channels as i64).chain(axes.iter().skip(1).map(|_| 1)).collect();
        let axes = e.ints(&axes);
        let all = e.op("Size", &[x], &[]);
        let all = e.cast(&all, ty.element);
        let channels = e.float(ty.element, channels as f64);
        let seen = e.op("Div", &[&all, &channels], &[]);
        let one = e.float(ty.element, 1.0);
        // A selection may be empty: its statistics are 0, and so is what flows back through them.
        let count = e.op("Max", &[&seen, &one], &[]);
        let mean_of = |e: &mut Emitter, value: &str| {
            let total = e.op("ReduceSum", &[value, &axes], &[attr_int("keepdims", 0)]);
            e.op("Div", &[&total, &count], &[])
        };
        let mean = mean_of(e, x);
        // The mean of squares minus the square of the mean would be one pass less, and nothing but rounding
        // errors where the mean is a thousand times the deviation, as that of a year or an air
        // pressure is.
        let column = e.ints(&column);
        let level = e.op("Reshape", &[&mean, &column], &[]);
        let centered = e.op("Sub", &[x, &level], &[]);
        let square = e.op("Mul", &[&centered, &centered], &[]);
        let variance = mean_of(e, &square);
        let rest = e.op("Sub", &[&count, &one], &[]);
        let rest = e.op("Max", &[&rest, &one], &[]);
        let factor = e.op("Div", &[&count, &rest], &[]);
        let unbiased = e.op("Mul", &[&variance, &factor], &[]);
        let sizes = ty.dims.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, dim)| dim.fixed());
        let always = sizes.product::<Option<usize>>().is_some_and(|values| values > 1);
        let has_several = (!always).then(|| e.op("Greater", &[&seen, &one], &[]));
        let momentum = node.float("momentum", MOMENTUM);
        Ok(Self { mean, centered, variance, unbiased, has_several, momentum, element: ty.element })
    }

    /// running * momentum + seen * (1 - momentum), or running where the batch has no variance, or nothing; in
    /// float32, as statistics are kept, whatever the norm computes in.
    fn next(&self, e: &mut Emitter, [running, seen]: [&str; 2], types: &Types) -> String {
        let kept_as = |e: &mut Emitter, value: &str, element: Option<ElementType>| match element {
            Some(element) if element != ElementType::F32 => e.cast(value, ElementType::F32),
            _ => value.to_owned(),
        };
        let running = &kept_as(e, running, types.get(running).map(|ty| ty.element));
        let seen = &kept_as(e, seen, Some(self.element));
        let (kept, added) = (
            e.float(ElementType::F32, self.momentum.into()),
            e.float(ElementType::F32, 1.0 - f64::from(self.momentum)),
        );
        let (old, new) = (e.op("Mul", &[running, &kept], &[]), e.op("Mul", &[seen, &added], &[]));
        let next = e.op("Add", &[&old, &new], &[]);
        match &self.has_several {
            Some(has_several) => e.op("Where", &[has_several, &next, running], &[]),
            None => next,
        }
    }
}

pub(super) fn is(node: &NodeProto, op: &str) -> bool {
    node.op_type == op && node.domain.is_empty()
}

fn identity(from: &str, to: &str) -> NodeProto {
    NodeProto::named(to, "Identity", &[from], &[])
}

/// Where a value comes from, behind nodes that do not change its numbers (exporters write casts and reshapes
/// around the statistics).
fn origin<'a>(value: &'a str, producer: impl Fn(&str) -> Option<&'a NodeProto>) -> &'a str {
    const SAME_NUMBERS: [&str; 6] = ["Identity", "Cast", "CastLike", "Expand", "Reshape", "Squeeze"];
    let mut origin = value;
    // The graph has no cycles: each step goes to an earlier node.
    while let Some(node) = producer(origin)
        && SAME_NUMBERS.contains(&node.op_type.as_str())
        && let Some(input) = node.input.first()
    {
        origin = input;
    }
    origin
}
