//! The gradient of any operator that only copies elements of its first input to places in its output.
//!
//! The operator is applied a second time, to the numbers 0, 1, 2, ... in the shape of x. That says for each
//! element of y from which element of x it came; dy is added up there. Right for every shape and attribute,
//! at the price of one scattered addition per element: rules use it where no block operation will do.

use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{attr_int, attr_string};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

/// The rule of operators that have no better one.
pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    Ok(vec![Some(scattered(n, dy, &n.node.attribute))])
}

/// dx for a node that copies elements. `attributes` and the inputs after the first are the node's own.
pub(super) fn scattered(n: &mut NodeGrad<'_>, dy: &str, attributes: &[AttributeProto]) -> String {
    let others: Vec<&str> = n.node.input.iter().skip(1).map(String::as_str).collect();
    scattered_with(n, dy, &others, attributes)
}

/// The same with other inputs after the first.
pub(super) fn scattered_with(
    n: &mut NodeGrad<'_>,
    dy: &str,
    others: &[&str],
    attributes: &[AttributeProto],
) -> String {
    let x = n.input(0);
    let shape = n.shape(x);
    let (zero, one, flat) = (n.emitter.int(0), n.emitter.int(1), n.emitter.ints(&[-1]));
    let size = n.call("Size", &[x]);
    let count = n.call("Range", &[&zero, &size, &one]);
    // A selection may be empty.
    let empty = [attr_int("allowzero", 1)];
    let numbers = n.emitter.op("Reshape", &[&count, &shape], &empty);
    let inputs = [&[numbers.as_str()], others].concat();
    let origins = n.emitter.op(&n.node.op_type, &inputs, attributes);
    let origins = n.call("Reshape", &[&origins, &flat]);
    let origins = n.call("Unsqueeze", &[&origins, &flat]);
    let updates = n.call("Reshape", &[dy, &flat]);
    let total = n.emitter.ints(&[1]);
    let list = n.call("Reshape", &[&size, &total]);
    let zeros = n.zeros(&list);
    let sums = scatter_add(n, &zeros, &origins, &updates);
    n.emitter.op("Reshape", &[&sums, &shape], &empty)
}

/// `data` with `updates` added at `indices`, each a row of leading coordinates. Indices may repeat.
pub(super) fn scatter_add(n: &mut NodeGrad<'_>, data: &str, indices: &str, updates: &str) -> String {
    n.emitter.op("ScatterND", &[data, indices, updates], &[attr_string("reduction", "add")])
}

/// Indices as int64, which scattering asks for.
pub(super) fn wide(n: &mut NodeGrad<'_>, indices: &str) -> String {
    use syncline_onnx::ElementType::I64;
    match n.types.get(indices) {
        Some(ty) if ty.element == I64 => indices.to_owned(),
        _ => n.emitter.cast(indices, I64),
    }
}

/// The same as [`scatter_add`] for indices along one axis, as `GatherElements` has them.
pub(super) fn scatter_add_along(
    n: &mut NodeGrad<'_>,
    data: &str,
    indices: &str,
    updates: &str,
    axis: i64,
) -> String {
    n.emitter.op(
        "ScatterElements",
        &[data, indices, updates],
        &[attr_int("axis", axis), attr_string("reduction", "add")],
    )
}
