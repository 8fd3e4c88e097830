//! Sums of rows by index in an order that does not depend on threads.
//!
//! ONNX Runtime's CPU kernel of `ScatterND` splits the updates among its threads and lets them add to one element at the
//! same time: sums of repeated indices, such as the gradient of an embedding, come out wrong (seen in 1.31.1). Its
//! `ScatterElements` adds one after the other. It wants an index for each element, which makes it several times slower
//! (1024 rows of 128: 0.5 instead of 0.04 ms), but lets the rest of a model have its threads.

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{ModelProto, attr_int, attr_string};

use crate::writer::{Writer, bare};

/// Oldest operator set whose `ScatterElements` adds, which also has `Shape` of some axes.
const LEAST_OPSET: i64 = 16;

/// Whether a node, or one in its subgraphs, is a `ScatterND` that combines updates.
pub(super) fn adds_by_index(node: &NodeProto) -> bool {
    let graphs = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    let combines = node.op_type == "ScatterND" && node.string("reduction", "none") != "none";
    combines || graphs.flat_map(|graph| &graph.node).any(adds_by_index)
}

/// The model with `ScatterElements` in the place of each `ScatterND` that adds whole rows; others stay as they are.
pub(super) fn add_one_after_the_other(model: &ModelProto) -> Option<ModelProto> {
    let graph = model.graph.as_ref()?;
    if model.opset() < LEAST_OPSET || Writer::is_nested(graph) {
        return None;
    }
    let mut writer = Writer::new(graph);
    for node in &graph.node {
        if rows(&mut writer, graph, node).is_none() {
            writer.keep(node.clone());
        }
    }
    let (node, initializer) = writer.finish(&graph.output);
    Some(ModelProto { graph: Some(GraphProto { node, initializer, ..graph.clone() }), ..model.clone() })
}

/// Writes a node in the other form, if it adds rows.
fn rows(writer: &mut Writer, graph: &GraphProto, node: &NodeProto) -> Option<()> {
    let [data, indices, updates] = node.input.as_slice() else {
        return None;
    };
    if node.op_type != "ScatterND" || node.string("reduction", "none") != "add" {
        return None;
    }
    // Rows are indexed by one number each, which stands on an axis of its own.
    let made = graph.node.iter().find(|other| other.output.first() == Some(indices))?;
    let axes = graph.initializer.iter().find(|tensor| Some(&tensor.name) == made.input.get(1))?;
    if made.op_type != "Unsqueeze" || axes.to_i64()? != [-1] {
        return None;
    }
    let indices = writer.reshaped(made.input.first()?, &[-1, 1]);
    let count = writer.op("Shape", &[&indices], &[attr_int("start", 0), attr_int("end", 1)]);
    let rest = writer.ints(&[-1]);
    let flat = writer.op("Concat", &[&count, &rest], &[attr_int("axis", 0)]);
    let updates = writer.op("Reshape", &[updates, &flat], &[]);
    let shape = writer.op("Shape", &[&updates], &[]);
    let indices = writer.op("Expand", &[&indices, &shape], &[]);
    let table = writer.reshaped(data, &[0, -1]);
    let attributes = [attr_int("axis", 0), attr_string("reduction", "add")];
    let sums = writer.op("ScatterElements", &[&table, &indices, &updates], &attributes);
    let shape = writer.op("Shape", &[data], &[]);
    writer.finish_with(bare("", "Reshape", &[&sums, &shape], &[]), node.output.first()?);
    Some(())
}
