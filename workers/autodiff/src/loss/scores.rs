//! From the output that a loss was asked for to the scores that it looks at.
//!
//! Exporters for prediction (scikit-learn, Keras) put a Softmax or a Sigmoid behind the scores, and scikit-learn a ZipMap
//! behind that. Cross-entropy of the probabilities is what is meant there; computed from the scores it is the same
//! number, and stays finite. So softmax cross-entropy looks through a Softmax over the axis of the classes, and binary
//! cross-entropy through a Sigmoid. Two classes that are p and 1 - p, with p from a Sigmoid, are refused. A model that takes the softmax of a softmax on purpose names another loss.

use std::collections::HashMap;

use syncline_onnx::Types;
use syncline_onnx::proto::{GraphProto, NodeProto};

use super::{Loss, LossOptions};
use crate::error::AutodiffError;

/// The value that the loss looks at when it was asked for `output`.
pub(crate) fn scores(
    graph: &GraphProto,
    types: &Types,
    output: &str,
    loss: Loss,
    options: &LossOptions,
) -> Result<String, AutodiffError> {
    let made =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)));
    let producers: HashMap<&str, &NodeProto> = made.collect();
    let producer = |value: &str| producers.get(value).map(|node| (*node, &node.input));
    let mut value = output;
    let mut squashed = false;
    while let Some((node, [source, ..])) = producer(value).map(|(node, inputs)| (node, inputs.as_slice())) {
        let passes = match (node.domain.as_str(), node.op_type.as_str()) {
            ("", "Identity") => true,
            ("ai.onnx.ml", "ZipMap") => value == output,
            ("", "Softmax") if loss == Loss::SoftmaxCrossEntropy => {
                !squashed && over_classes(node, types, options)
            }
            ("", "Sigmoid") if loss == Loss::BinaryCrossEntropy => !squashed,
            _ => false,
        };
        if !passes {
            break;
        }
        squashed |= node.op_type == "Softmax" || node.op_type == "Sigmoid";
        value = source;
    }
    let made_by = |value: &str, op: &str| producer(value).filter(|(node, _)| node.op_type == op);
    if let (Some((node, parts)), Loss::SoftmaxCrossEntropy) = (made_by(value, "Concat"), loss)
        && parts.iter().any(|part| made_by(part, "Sigmoid").is_some())
    {
        let (node, output) = (node.label().to_owned(), output.to_owned());
        return Err(AutodiffError::Probabilities { loss: loss.name(), node, output });
    }
    Ok(value.to_owned())
}

fn over_classes(node: &NodeProto, types: &Types, options: &LossOptions) -> bool {
    let Some(rank) = node.input.first().and_then(|input| types.get(input)).map(|ty| ty.dims.len() as i64)
    else {
        return false;
    };
    let front = |axis: i64| if axis < 0 { axis.saturating_add(rank) } else { axis };
    front(node.int("axis", -1)) == front(options.class_axis(rank))
}
