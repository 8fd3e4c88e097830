//! Refuses models that ask for absurd memory before anything of them is computed.
//!
//! Folding constants runs nodes, and a node of a few bytes can make gigabytes of equal numbers.

use super::error::AutodiffError;
use super::idioms::Constants;
use crate::onnx::proto::{GraphProto, NodeProto};

/// Most elements of a value whose shape is a constant of the model; 1 GiB of float32.
const MOST_ELEMENTS: u64 = 1 << 28;

/// Looks at every node whose output has a shape that stands in the model.
pub(super) fn check_bounds(graph: &GraphProto) -> Result<(), AutodiffError> {
    let constants = Constants::of(graph);
    for node in &graph.node {
        let shape = match node.op_type.as_str() {
            "ConstantOfShape" => input(node, 0, &constants),
            "Expand" | "Tile" => input(node, 1, &constants),
            "RandomNormal" | "RandomUniform" => node.ints("shape"),
            _ => None,
        };
        let sizes = shape.unwrap_or_default().iter().map(|&size| u64::try_from(size).unwrap_or(1));
        let elements = sizes.fold(1u64, u64::saturating_mul);
        if elements > MOST_ELEMENTS {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(AutodiffError::TooLarge { op, node, elements, limit: MOST_ELEMENTS });
        }
    }
    Ok(())
}

fn input<'c>(node: &NodeProto, position: usize, constants: &'c Constants) -> Option<&'c [i64]> {
    constants.get(node.input.get(position)?)
}
