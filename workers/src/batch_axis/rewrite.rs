//! Sizes that an exporter has computed from the size of the batch, in the places where they are found.
//!
//! A `Reshape` of data gets a shape whose first axis follows from the rest; an `Expand` to the batch asks the
//! data how large it is. Everything else stays, and shows in the proof if it depends on the batch.

use std::collections::HashSet;

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{Dim, Types};

/// `types`: those of the model before. `inputs`: the data. `size`: of the batch.
pub(super) fn rewrite(graph: &mut GraphProto, types: &Types, inputs: &HashSet<String>, size: usize) {
    let Some(first) = graph.input.iter().map(|input| input.name.clone()).find(|name| inputs.contains(name))
    else {
        return;
    };
    let mut of_data = inputs.clone();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for (index, mut node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        let reached = node.input.iter().any(|input| of_data.contains(input));
        let shape_known = node.input.get(1).is_some_and(|shape| !of_data.contains(shape));
        let change = match node.op_type.as_str() {
            "Reshape" if reached && shape_known => reshaped(&node, types, size).map(Change::Constant),
            "Expand" if shape_known => expanded(&node, types, size),
            _ => None,
        };
        if let Some(change) = change {
            let name = format!("syncline/opened_{index}");
            let constant = |name: &str, sizes: &[i64]| TensorProto::from_i64(name, &[sizes.len()], sizes);
            match change {
                Change::Constant(sizes) => graph.initializer.push(constant(&name, &sizes)),
                Change::Batch(rest) => {
                    let [shape, at, count, tail] =
                        ["shape", "at", "count", "tail"].map(|part| format!("{name}_{part}"));
                    graph.initializer.push(constant(&at, &[0]));
                    graph.initializer.push(constant(&tail, &rest));
                    nodes.push(NodeProto::named(&shape, "Shape", &[&first], &[]));
                    nodes.push(NodeProto::named(&count, "Gather", &[&shape, &at], &[]));
                    let axis = syncline_onnx::attr_int("axis", 0);
                    nodes.push(NodeProto::named(&name, "Concat", &[&count, &tail], &[axis]));
                    of_data.extend(node.output.iter().cloned());
                }
            }
            node.attribute.retain(|attribute| attribute.name != "allowzero");
            node.input[1] = name;
        }
        if reached {
            of_data.extend(node.output.iter().cloned());
        }
        nodes.push(node);
    }
    graph.node = nodes;
}

/// A new shape of a node.
enum Change {
    Constant(Vec<i64>),
    /// The size of the batch, and these behind it.
    Batch(Vec<i64>),
}

fn sizes(types: &Types, name: Option<&String>) -> Option<Vec<usize>> {
    types.get(name?)?.dims.iter().map(Dim::fixed).collect()
}

fn rest(sizes: &[usize]) -> Option<Vec<i64>> {
    sizes.iter().skip(1).map(|&size| i64::try_from(size).ok().filter(|size| *size > 0)).collect()
}

/// The first axis is copied where it is the batch on both sides, and otherwise what is left for it.
fn reshaped(node: &NodeProto, types: &Types, size: usize) -> Option<Vec<i64>> {
    let (from, to) = (sizes(types, node.input.first())?, sizes(types, node.output.first())?);
    let leading = match (from.first()?, to.first()?) {
        (before, after) if *before == size && *after == size => 0,
        _ => -1,
    };
    Some([vec![leading], rest(&to)?].concat())
}

fn expanded(node: &NodeProto, types: &Types, size: usize) -> Option<Change> {
    let to = sizes(types, node.output.first())?;
    if to.first() != Some(&size) {
        return None;
    }
    // A constant is not among the types, and has no batch.
    let from = sizes(types, node.input.first()).unwrap_or_default();
    let batched = from.len() == to.len() && from.first() == Some(&size) && size > 1;
    let rest = rest(&to)?;
    Some(if batched { Change::Constant([vec![1], rest].concat()) } else { Change::Batch(rest) })
}
