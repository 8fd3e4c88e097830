//! The complementary error function, which ONNX does not have, as 1 - Erf.
//!
//! TensorFlow has an operator `Erfc`, of which it makes the exact GELU, and tf2onnx leaves what it does not
//! know as it is: no runtime loads such a file.

use syncline_onnx::ElementType;
use syncline_onnx::proto::{GraphProto, NodeProto};

use crate::emitter::Emitter;

/// Writes every Erfc as a difference; the graph is left alone if there is none.
pub(super) fn write_out_erfcs(graph: GraphProto) -> GraphProto {
    let is_erfc = |node: &NodeProto| node.op_type == "Erfc" && node.domain.is_empty();
    if !graph.node.iter().any(is_erfc) {
        return graph;
    }
    Emitter::write_out(graph, |e, node| if is_erfc(node) { difference(e, node) } else { None })
}

/// Writes everything but the last node, which it returns under the name of the node it replaces.
fn difference(e: &mut Emitter, node: &NodeProto) -> Option<NodeProto> {
    let [x] = node.input.as_slice() else { return None };
    let one = e.float(ElementType::F32, 1.0);
    let erf = e.op("Erf", &[x], &[]);
    Some(NodeProto {
        output: node.output.clone(),
        name: node.label().to_owned(),
        ..NodeProto::unnamed("Sub", &[&one, &erf], &[])
    })
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{ElementType, GraphBuilder};

    use crate::parse_forward;

    #[test]
    fn an_erfc_becomes_one_minus_erf() {
        let mut graph = GraphBuilder::new("erfc");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let y = graph.named("y", "Erfc", &[&x], &[]);
        graph.output(&y);
        let model = parse_forward(&graph.finish().to_bytes()).unwrap();
        let graph = model.graph.unwrap();
        let ops: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(ops, ["Erf", "Sub"]);
        assert_eq!(graph.node[0].input, [x]);
        assert_eq!((&graph.node[1].input[1], &graph.node[1].output[0]), (&graph.node[0].output[0], &y));
    }
}
