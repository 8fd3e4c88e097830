//! Reductions over axes that are counted from the front.
//!
//! ONNX Runtime reduces a tensor without elements, as of a selection of nothing, over no axis at all where
//! they are counted from the end (seen in 1.31.1; 1.32 is right): the result has another shape than inferred,
//! and what reads it fails.

use syncline_onnx::Types;
use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto};

use super::int_constants::IntConstants;
use crate::axis::from_front;
use crate::emitter::Emitter;

/// Writes the axes of every reduction so that are known, of a value of known rank.
pub(super) fn count_axes_from_front(graph: GraphProto, types: &Types) -> GraphProto {
    let constants = IntConstants::of(&graph);
    let axes = |node: &NodeProto| axes_from_front(node, &constants, types);
    if !graph.node.iter().any(|node| axes(node).is_some()) {
        return graph;
    }
    Emitter::write_out(graph, |e, node| {
        let axes = axes(node)?;
        let mut node = node.clone();
        match axes_attribute(&mut node) {
            Some(attribute) => attribute.ints = axes,
            None => node.input[1] = e.ints(&axes),
        }
        Some(node)
    })
}

/// The axes of a reduction counted from the front; `None` if they are so, or not known.
fn axes_from_front(node: &NodeProto, constants: &IntConstants, types: &Types) -> Option<Vec<i64>> {
    if !node.op_type.starts_with("Reduce") || !node.domain.is_empty() {
        return None;
    }
    let axes = node.ints("axes").or_else(|| constants.get(node.input.get(1)?))?;
    if axes.iter().all(|axis| *axis >= 0) {
        return None;
    }
    let rank = types.get(node.input.first()?)?.dims.len();
    axes.iter().map(|axis| from_front(*axis, rank).map(|axis| axis as i64)).collect()
}

fn axes_attribute(node: &mut NodeProto) -> Option<&mut AttributeProto> {
    node.attribute.iter_mut().find(|attribute| attribute.name == "axes")
}
