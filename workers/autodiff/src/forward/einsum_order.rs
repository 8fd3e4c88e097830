//! Einsums whose operands have their axes in the order in which the equation names them first, see [`in_order`].

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Types, attr_string};

use crate::einsum::{Equation, equation_text, in_order, is_in_order};
use crate::emitter::Emitter;

/// Writes a `Transpose` for each operand of an `Einsum` that has its axes in another order; returns whether there is any.
pub(super) fn transpose_operands(graph: &mut GraphProto, types: &Types) -> bool {
    if !graph.node.iter().any(|node| out_of_order(node, types).is_some()) {
        return false;
    }
    *graph = Emitter::write_out(std::mem::take(graph), |e, node| {
        let equation = out_of_order(node, types)?;
        let terms = equation.terms.iter().map(Vec::as_slice);
        let operands: Vec<(&[char], &str)> = terms.zip(node.input.iter().map(String::as_str)).collect();
        let (terms, input) = in_order(e, &operands);
        let text = equation_text(terms.iter().map(Vec::as_slice), &equation.result);
        Some(NodeProto { input, attribute: vec![attr_string("equation", &text)], ..node.clone() })
    });
    true
}

/// The equation of a node that has an operand in another order. One that ONNX Runtime will refuse is left to it.
fn out_of_order(node: &NodeProto, types: &Types) -> Option<Equation> {
    if node.op_type != "Einsum" || !node.domain.is_empty() {
        return None;
    }
    let ranks: Option<Vec<usize>> =
        node.input.iter().map(|input| types.get(input).map(|ty| ty.dims.len())).collect();
    let equation = Equation::parse(node.string("equation", ""), &ranks?).ok()?;
    (!is_in_order(&equation.terms)).then_some(equation)
}
