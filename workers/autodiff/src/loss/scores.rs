//! From the output that a loss was asked for to the scores that it looks at.
//!
//! Exporters for prediction (scikit-learn, Keras) put a Softmax or a Sigmoid behind the scores, and
//! scikit-learn a ZipMap behind that. Cross-entropy of the probabilities is what is meant there; computed
//! from the scores it is the same number, and stays finite. So softmax cross-entropy looks through a Softmax
//! over the axis of the classes, and binary cross-entropy through a Sigmoid. What only moves elements behind
//! them (`torch.sigmoid(x).squeeze(1)`) is applied to the scores instead. Probabilities of which no scores
//! can be had so, such as p and 1 - p, are refused. A model that takes the softmax of a softmax on purpose
//! names another loss. Softmax cross-entropy of a Sigmoid takes what that gives for scores, as PyTorch does,
//! and says so.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, Types};

use super::{Loss, LossOptions};
use crate::axis::from_front;
use crate::error::AutodiffError;
use crate::forward::{Forward, stops_gradient};

/// Operators that move, pick, repeat or convert elements of their first input and change none: a Sigmoid
/// before one is the same as behind it.
const MOVES: [&str; 10] =
    ["Cast", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"];
/// Operators after which probabilities still are some, and that cannot be applied to scores instead.
const OPAQUE: [&str; 2] = ["Clip", "Split"];

const SIGMOID: &str = "Sigmoid";

/// The value that the loss looks at when it was asked for `output`; it may be one that this has added to the
/// model.
pub(crate) fn scores(
    forward: &mut Forward,
    output: &str,
    loss: Loss,
    options: &LossOptions,
) -> Result<String, AutodiffError> {
    let makers = makers(&forward.graph);
    let trail = Trail::of(&makers, output);
    let Some(maker) = trail.maker else { return Ok(trail.unmoved.to_owned()) };
    let unusable = match (loss, maker.op_type.as_str()) {
        (Loss::SoftmaxCrossEntropy, "Concat") => {
            let mut parts = maker.input.iter().filter_map(|part| squash_of(&makers, part));
            parts.find(|squash| squash.op_type == SIGMOID)
        }
        (Loss::SoftmaxCrossEntropy | Loss::BinaryCrossEntropy, op) if OPAQUE.contains(&op) => {
            maker.input.first().and_then(|of| squash_of(&makers, of))
        }
        (Loss::BinaryCrossEntropy, "Softmax") => Some(maker),
        _ => None,
    };
    if let Some(squash) = unusable {
        return Err(refusal(loss, maker, output, squash));
    }
    let is_squashed = match (loss, maker.op_type.as_str()) {
        (Loss::SoftmaxCrossEntropy, "Softmax") => match trail.class_axis(&forward.types, options) {
            Some((axis, rank)) => from_front(maker.int("axis", -1), rank) == Some(axis),
            None if trail.moves.is_empty() => false,
            None => return Err(refusal(loss, maker, output, maker)),
        },
        (Loss::BinaryCrossEntropy, "Sigmoid") => true,
        _ => false,
    };
    let Some(source) = maker.input.first().filter(|_| is_squashed) else {
        return Ok(trail.unmoved.to_owned());
    };
    let source = Trail::of(&makers, source).unmoved.to_owned();
    let moves: Vec<NodeProto> = trail.moves.into_iter().rev().cloned().collect();
    Ok(forward.apply(&moves, source))
}

/// Outputs of a model that are probabilities: a Sigmoid makes their elements.
pub fn sigmoid_outputs(graph: &GraphProto) -> HashSet<String> {
    let makers = makers(graph);
    let names = graph.output.iter().map(|output| &output.name);
    names.filter(|name| Trail::of(&makers, name).is_of("Sigmoid")).cloned().collect()
}

/// The Sigmoid that makes the elements of a value.
pub(crate) fn sigmoid_of(graph: &GraphProto, value: &str) -> Option<String> {
    let makers = makers(graph);
    let maker = Trail::of(&makers, value).maker.filter(|node| node.op_type == "Sigmoid");
    maker.map(|node| node.label().to_owned())
}

/// What makes probabilities of scores, in front of nodes that move them.
fn squash_of<'g>(makers: &Makers<'g>, value: &'g str) -> Option<&'g NodeProto> {
    let maker = Trail::of(makers, value).maker;
    maker.filter(|node| [SIGMOID, "Softmax"].contains(&node.op_type.as_str()))
}

/// `squash`: the node that makes probabilities of scores, which may be `node` itself.
fn refusal(loss: Loss, node: &NodeProto, output: &str, squash: &NodeProto) -> AutodiffError {
    let (squash, scores) = (&squash.op_type, squash.input.first().map(String::as_str).unwrap_or_default());
    let (fits, labels) = match squash.as_str() {
        SIGMOID => (Loss::BinaryCrossEntropy, "0 or 1, or one of them for each class"),
        _ => (Loss::SoftmaxCrossEntropy, "the number of its class"),
    };
    let remedy = format!(
        "train on the scores before the {squash}: name `{scores}` as the output (`output` beside the loss of a job file, --output on \
         the command line), and {fits} as the loss, with {labels} as the label of a sample"
    );
    let (node, output) = (node.label().to_owned(), output.to_owned());
    AutodiffError::Probabilities { loss: loss.name(), node, output, remedy: remedy.into() }
}

type Makers<'g> = HashMap<&'g str, &'g NodeProto>;

fn makers(graph: &GraphProto) -> Makers<'_> {
    let made =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)));
    made.collect()
}

/// The way back from a value to where its elements are made.
struct Trail<'g> {
    /// Nodes that move the elements, the last one first.
    moves: Vec<&'g NodeProto>,
    /// The value behind all of them.
    unmoved: &'g str,
    /// The node of the standard that makes the elements; `None` where they are an input or a constant, or
    /// another domain makes them.
    maker: Option<&'g NodeProto>,
}

impl<'g> Trail<'g> {
    fn of(makers: &Makers<'g>, output: &'g str) -> Self {
        let (mut value, mut moves, mut unmoved) = (output, Vec::new(), output);
        // No longer than the graph, whatever it is.
        for _ in 0..=makers.len() {
            let Some(node) = makers.get(value) else { break };
            let Some(source) = node.input.first() else { break };
            match (node.domain.as_str(), node.op_type.as_str()) {
                ("", "Identity") if !stops_gradient(node) => {}
                ("ai.onnx.ml", "ZipMap") if value == output => {}
                ("", op) if MOVES.contains(&op) => moves.push(*node),
                _ => break,
            }
            value = source;
            if moves.is_empty() {
                unmoved = value;
            }
        }
        let maker = makers.get(value).copied().filter(|node| node.domain.is_empty());
        Self { moves, unmoved, maker }
    }

    fn is_of(&self, op: &str) -> bool {
        self.maker.is_some_and(|node| node.op_type == op)
    }

    /// The axis of the classes in what the maker gives, and how many axes that has; `None` where the moves do
    /// not keep the classes together, or where sizes are not known.
    fn class_axis(&self, types: &Types, options: &LossOptions) -> Option<(usize, usize)> {
        let dims = |value: &str| types.get(value).map(|ty| ty.dims.as_slice());
        let mut moved = dims(self.unmoved)?;
        let mut axis = from_front(options.class_axis(moved.len()), moved.len())?;
        for node in &self.moves {
            let before = dims(node.input.first()?)?;
            axis = match node.op_type.as_str() {
                "Transpose" => match node.ints("perm") {
                    Some(perm) => usize::try_from(*perm.get(axis)?).ok()?,
                    None => before.len().checked_sub(axis + 1)?,
                },
                "Cast" => axis,
                // The elements stay in their order: the classes lie where as many elements are behind each of
                // them.
                "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => {
                    let behind = elements(&moved[axis + 1..])?;
                    let is_same = |at: &usize| {
                        before[*at].same(&moved[axis])
                            && elements(&before[*at + 1..]).as_ref() == Some(&behind)
                    };
                    (0..before.len()).find(is_same)?
                }
                _ => return None,
            };
            moved = before;
            moved.get(axis)?;
        }
        Some((axis, moved.len()))
    }
}

/// How many elements axes have: a number, times sizes that are open. `None` if one is not known.
fn elements(dims: &[Dim]) -> Option<(usize, Vec<&str>)> {
    let (mut fixed, mut open) = (1usize, Vec::new());
    for dim in dims {
        match dim {
            Dim::Fixed(size) => fixed = fixed.saturating_mul(*size),
            Dim::Symbol(symbol) => open.push(symbol.as_str()),
            Dim::Unknown => return None,
        }
    }
    open.sort_unstable();
    Some((fixed, open))
}
