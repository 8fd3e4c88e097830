//! Values through which no gradient flows: `x.detach()` of PyTorch.
//!
//! ONNX has no operator for it. PyTorch's exporter (`dynamo=True`) writes an `Identity`, and `aten.detach`
//! into its metadata. Its node gets a name here by which the backward pass and checks of gradients know it.
//! ONNX Runtime, when it simplifies a model, takes an `Identity` away, or moves its neighbors past it; so
//! meanwhile the value is the only element of a sequence, into which none of its rewrites looks.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

use super::nondifferentiable::depends_on;

/// PyTorch's operator that lets no gradient through, as metadata of nodes name it.
const DETACH: &str = "aten.detach";
/// How the name of a node ends that stops gradients: it is in no model of a user.
const MARK: &str = "/stop_gradient";
/// The place of the only element of a sequence.
const ONLY: &str = "syncline/only_element";

/// Whether a node of a training graph hands its input on, and no gradient back.
pub fn stops_gradient(node: &NodeProto) -> bool {
    node.op_type == "Identity" && node.name.ends_with(MARK)
}

/// Whether a node of a file is a `detach()`.
pub(super) fn detaches(node: &NodeProto) -> bool {
    node.op_type == "Identity" && node.metadata_props.iter().any(|entry| entry.value.contains(DETACH))
}

/// Marks every `detach()` of what depends on a value in `trained`; any other stops nothing, and may be
/// folded.
pub(super) fn mark_stops(graph: &mut GraphProto, trained: &HashSet<String>) {
    if !graph.node.iter().any(detaches) {
        return;
    }
    let active = depends_on(graph, trained);
    let reads_active = |node: &NodeProto| node.input.iter().any(|input| active.contains(input.as_str()));
    let stops: Vec<bool> = graph.node.iter().map(|node| detaches(node) && reads_active(node)).collect();
    for (node, _) in graph.node.iter_mut().zip(stops).filter(|(_, stops)| *stops) {
        node.name = format!("{}{MARK}", node.label());
    }
}

/// Makes a sequence of each value at which gradients stop, and takes its element.
pub(super) fn hide_stops(graph: &mut GraphProto) {
    if !graph.node.iter().any(stops_gradient) {
        return;
    }
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        if stops_gradient(&node) {
            let sequence = format!("syncline/{}/sequence", node.output[0]);
            let inputs: Vec<&str> = node.input.iter().map(String::as_str).collect();
            nodes.push(NodeProto::named(&sequence, "SequenceConstruct", &inputs, &[]));
            "SequenceAt".clone_into(&mut node.op_type);
            node.input = vec![sequence, ONLY.to_owned()];
        }
        nodes.push(node);
    }
    graph.node = nodes;
    graph.initializer.push(TensorProto::from_i64(ONLY, &[], &[0]));
}

/// The way back from [`hide_stops`]. Its constant stays: ONNX Runtime may have others read it that read an
/// equal one.
pub(super) fn reveal_stops(graph: &mut GraphProto) {
    let is_element = |node: &NodeProto| node.op_type == "SequenceAt" && node.name.ends_with(MARK);
    let sequences: HashSet<String> = graph
        .node
        .iter()
        .filter(|node| is_element(node))
        .filter_map(|node| node.input.first().cloned())
        .collect();
    let is_sequence = |node: &NodeProto| node.output.iter().any(|output| sequences.contains(output));
    let (made, mut nodes): (Vec<_>, Vec<_>) =
        std::mem::take(&mut graph.node).into_iter().partition(is_sequence);
    let elements: HashMap<&str, &Vec<String>> =
        made.iter().map(|node| (node.output[0].as_str(), &node.input)).collect();
    for node in nodes.iter_mut().filter(|node| is_element(node)) {
        if let Some(&inputs) = elements.get(node.input[0].as_str()) {
            inputs.clone_into(&mut node.input);
            "Identity".clone_into(&mut node.op_type);
        }
    }
    graph.node = nodes;
}
