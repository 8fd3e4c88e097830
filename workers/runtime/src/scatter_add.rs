//! Sums of rows by index in an order that does not depend on threads.
//!
//! ONNX Runtime's CPU kernel of `ScatterND` splits the updates among its threads and lets them add to one
//! element at the same time: sums of repeated indices, such as the gradient of an embedding, come out wrong
//! (seen in 1.31.1). Its `ScatterElements` adds one after the other. It wants an index for each element,
//! which makes it several times slower (1024 rows of 128: 0.5 instead of 0.04 ms), but lets the rest of a
//! model have its threads.

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Graph, ModelProto, attr_int, attr_string};

/// Oldest operator set whose `ScatterElements` adds, which also has `Shape` of some axes.
const LEAST_OPSET: i64 = 16;

/// Whether a node, or one in its subgraphs, is a `ScatterND` that combines updates.
pub(super) fn is_scatter_add(node: &NodeProto) -> bool {
    let combines = node.op_type == "ScatterND" && node.string("reduction", "none") != "none";
    combines || node.subgraphs().flat_map(|graph| &graph.node).any(is_scatter_add)
}

/// The model with `ScatterElements` in the place of each `ScatterND` that adds whole rows; others stay as
/// they are.
pub(super) fn sequential_scatter_adds(model: &ModelProto) -> Option<ModelProto> {
    if model.opset() < LEAST_OPSET {
        return None;
    }
    let mut graph = Graph::from(model.graph.clone()?);
    if graph.has_subgraphs() {
        return None;
    }
    for node in graph.take_nodes() {
        if rows(&mut graph, &node).is_none() {
            graph.push(node);
        }
    }
    Some(ModelProto { graph: Some(graph.remove_dead()), ..model.clone() })
}

/// Writes a node in the other form, if it adds rows.
fn rows(graph: &mut Graph, node: &NodeProto) -> Option<()> {
    if node.op_type != "ScatterND" || node.string("reduction", "none") != "add" {
        return None;
    }
    let values: Option<Vec<_>> = node.input.iter().map(|name| graph.value(name)).collect();
    let &[data, indices, updates] = values?.as_slice() else { return None };
    let output = graph.value(node.output.first()?)?;
    // Rows are indexed by one number each, which stands on an axis of its own.
    let made = graph.producer(indices).filter(|made| graph.node(*made).op_type == "Unsqueeze")?;
    let &[numbers, axes] = graph.inputs(made) else { return None };
    if graph.constant(axes)?.to_i64()? != [-1] {
        return None;
    }
    let indices = graph.reshape(numbers, &[-1, 1]);
    let count = graph.op("Shape", &[indices], &[attr_int("start", 0), attr_int("end", 1)]);
    // Of no updates, as of a selection that is empty, a size could not be left open.
    let one = graph.ints(&[1]);
    let height = graph.op("Shape", &[data], &[attr_int("start", 0), attr_int("end", 1)]);
    let width = graph.op("Size", &[data], &[]);
    let divisor = graph.op("Max", &[height, one], &[]);
    let width = graph.op("Div", &[width, divisor], &[]);
    let flat = graph.op("Concat", &[count, width], &[attr_int("axis", 0)]);
    let updates = graph.op("Reshape", &[updates, flat], &[attr_int("allowzero", 1)]);
    let shape = graph.op("Shape", &[updates], &[]);
    let indices = graph.op("Expand", &[indices, shape], &[]);
    let whole = graph.op("Concat", &[height, width], &[attr_int("axis", 0)]);
    let table = graph.op("Reshape", &[data, whole], &[attr_int("allowzero", 1)]);
    let attributes = [attr_int("axis", 0), attr_string("reduction", "add")];
    let sums = graph.op("ScatterElements", &[table, indices, updates], &attributes);
    let shape = graph.op("Shape", &[data], &[]);
    graph.op_as(output, "", "Reshape", &[sums, shape], &[]);
    Some(())
}
