//! Refuses models that ask for absurd memory before anything of them is computed.
//!
//! Folding constants runs nodes, and a node of a few bytes can make gigabytes of equal numbers. Afterwards
//! the rules compute with the sizes and attributes that are left here, without fear of overflow.

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, TensorType, Types};

use super::int_constants::IntConstants;
use crate::error::AutodiffError;

/// Most elements of a value whose shape is a constant of the model; 1 GiB of float32.
const MOST_ELEMENTS: u64 = 1 << 28;
/// Most elements of any value, apart from its open axes; no machine holds them.
const MOST_CONCEIVABLE: u64 = 1 << 40;
/// Largest number in the geometry of a window, either way.
const LARGEST_GEOMETRY: i64 = 1 << 31;

/// Looks at every node whose output has a shape that stands in the model, at its geometry, and at the inputs.
pub(crate) fn check_bounds(graph: &GraphProto) -> Result<(), AutodiffError> {
    let constants = IntConstants::of(graph);
    for input in &graph.input {
        if let Some(ty) = TensorType::from_value_info(input) {
            check_elements("an input", &input.name, elements(&ty.dims), MOST_CONCEIVABLE)?;
        }
    }
    for node in &graph.node {
        check_geometry(node)?;
        let shape = match node.op_type.as_str() {
            "ConstantOfShape" => input(node, 0, &constants),
            "Expand" | "Tile" => input(node, 1, &constants),
            "RandomNormal" | "RandomUniform" => node.ints("shape"),
            _ => None,
        };
        let sizes = shape.unwrap_or_default().iter().map(|&size| u64::try_from(size).unwrap_or(1));
        check_elements(&node.op_type, node.label(), sizes.fold(1, u64::saturating_mul), MOST_ELEMENTS)?;
    }
    Ok(())
}

/// Looks at the shape of every value that a node makes.
pub(crate) fn check_types(graph: &GraphProto, types: &Types) -> Result<(), AutodiffError> {
    for node in &graph.node {
        for ty in node.output.iter().filter_map(|output| types.get(output)) {
            check_elements(&node.op_type, node.label(), elements(&ty.dims), MOST_CONCEIVABLE)?;
        }
    }
    Ok(())
}

fn check_elements(op: &str, node: &str, elements: u64, limit: u64) -> Result<(), AutodiffError> {
    if elements > limit {
        return Err(AutodiffError::TooLarge { op: op.to_owned(), node: node.to_owned(), elements, limit });
    }
    Ok(())
}

/// The product of the sizes that are known; an axis of no elements counts as one, so that any part of it is
/// bounded.
fn elements(dims: &[Dim]) -> u64 {
    let sizes = dims.iter().filter_map(Dim::fixed).map(|size| (size as u64).max(1));
    sizes.fold(1, u64::saturating_mul)
}

fn check_geometry(node: &NodeProto) -> Result<(), AutodiffError> {
    for name in ["dilations", "kernel_shape", "output_padding", "output_shape", "pads", "strides"] {
        let numbers = node.ints(name).unwrap_or_default();
        let allowed = -LARGEST_GEOMETRY..=LARGEST_GEOMETRY;
        if let Some(number) = numbers.iter().find(|number| !allowed.contains(number)) {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(AutodiffError::UnsupportedUse {
                op,
                node,
                reason: format!("its {name} hold {number}"),
            });
        }
    }
    Ok(())
}

fn input<'c>(node: &NodeProto, position: usize, constants: &'c IntConstants) -> Option<&'c [i64]> {
    constants.get(node.input.get(position)?)
}
