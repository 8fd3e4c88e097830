//! Gradients that pass where a condition holds, as those of Relu: `dy * Cast(condition)`.
//!
//! On the CPU a product is faster than a choice. On a GPU the numbers that the condition is cast to are
//! written and read for nothing. Where nothing passes, the result is 0 even for a gradient that is no number.

use syncline_onnx::proto::{NodeProto, TensorProto};
use syncline_onnx::{ElementType, Graph};

/// Operators that make truth values out of numbers.
const CONDITIONS: [&str; 3] = ["Greater", "GreaterOrEqual", "Less"];

/// Chooses between the other factor and zero.
pub(super) fn write(graph: &mut Graph, node: &NodeProto) -> Option<()> {
    let [a, b] = node.input.as_slice() else { return None };
    let (a, b) = (graph.value(a)?, graph.value(b)?);
    let output = graph.value(node.output.first()?)?;
    let condition = |mask| {
        let cast = graph.node(graph.producer(mask)?);
        let to_float = cast.op_type == "Cast" && cast.int("to", 0) == i64::from(ElementType::F32.code());
        let condition = graph.value(cast.input.first().filter(|_| to_float)?)?;
        let made = graph.node(graph.producer(condition)?);
        CONDITIONS.contains(&made.op_type.as_str()).then_some(condition)
    };
    let (condition, dy) = match (condition(b), condition(a)) {
        (Some(condition), _) => (condition, a),
        (_, Some(condition)) => (condition, b),
        _ => return None,
    };
    let zero = graph.add_constant(TensorProto::from_f32("zero", &[], &[0.0]));
    graph.op_as(output, "", "Where", &[condition, dy, zero], &[]);
    Some(())
}
