//! Products with a vector on the right, as products with a matrix of one column.
//!
//! ONNX Runtime takes a `Transpose` into the `MatMul` that reads it, and computes something else if the right
//! operand is a vector (seen in 1.31.1: `A^T v` comes out wrong and of the right shape; `v A^T` is right).
//! With a matrix it is right.

use std::collections::HashMap;

use syncline_onnx::TensorType;
use syncline_onnx::proto::{GraphProto, ModelProto, NodeProto};

use crate::emitter::Emitter;

/// Oldest operator set whose Unsqueeze takes the axes as an input.
const LEAST_OPSET: i64 = 13;

/// Writes every `MatMul` whose right operand has one axis, as `rank` says, with a column; returns whether
/// there is any.
pub(super) fn write_columns(graph: &mut GraphProto, rank: impl Fn(&str) -> Option<usize>) -> bool {
    let reads_vector = |node: &NodeProto| {
        let right = node.input.get(1).filter(|_| node.op_type == "MatMul" && node.domain.is_empty());
        right.is_some_and(|right| rank(right) == Some(1))
    };
    if !graph.node.iter().any(reads_vector) {
        return false;
    }
    let (mut emitter, nodes) = Emitter::rewriting(std::mem::take(graph));
    for node in nodes {
        let node = if reads_vector(&node) { with_column(&mut emitter, node) } else { node };
        emitter.push_node(node);
    }
    *graph = emitter.rewritten();
    true
}

/// Writes everything but the last node, which it returns under the name of the node it replaces.
fn with_column(e: &mut Emitter, node: NodeProto) -> NodeProto {
    let axis = e.ints(&[-1]);
    let column = e.op("Unsqueeze", &[&node.input[1], &axis], &[]);
    let product = e.op("MatMul", &[&node.input[0], &column], &[]);
    let name = node.label().to_owned();
    NodeProto { output: node.output, name, ..NodeProto::unnamed("Squeeze", &[&product, &axis], &[]) }
}

/// The same for a model that may not be looked into: of vectors that it declares, weights among them.
pub fn with_columns(mut model: ModelProto) -> ModelProto {
    if model.opset() < LEAST_OPSET {
        return model;
    }
    let Some(graph) = &mut model.graph else { return model };
    let declared = graph.input.iter().chain(&graph.value_info).chain(&graph.output);
    let declared = declared
        .filter_map(|value| Some((value.name.clone(), TensorType::from_value_info(value)?.dims.len())));
    let held = graph.initializer.iter().map(|tensor| (tensor.name.clone(), tensor.dims.len()));
    let ranks: HashMap<String, usize> = declared.chain(held).collect();
    write_columns(graph, |value| ranks.get(value).copied());
    model
}
