//! scikit-learn's StandardScaler in plain operators.
//!
//! It is exported as `ai.onnx.ml.Scaler`, y = (x - offset) * scale, of which ONNX Runtime does not infer a
//! shape, so that nothing behind it would have one. Offset and scale are attributes, one number for all
//! features or one for each. They stay constants: preprocessing is no parameter.

use syncline_onnx::ElementType;
use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

use crate::emitter::Emitter;

/// Writes every Scaler as a difference and a product; the graph is left alone if there is none.
pub(crate) fn write_out_scalers(graph: GraphProto) -> GraphProto {
    let is_scaler = |node: &NodeProto| node.op_type == "Scaler" && node.domain == "ai.onnx.ml";
    if !graph.node.iter().any(is_scaler) {
        return graph;
    }
    Emitter::write_out(graph, |e, node| if is_scaler(node) { parts(e, node) } else { None })
}

/// Writes everything but the last node, which it returns under the name of the node it replaces.
fn parts(e: &mut Emitter, node: &NodeProto) -> Option<NodeProto> {
    let [x] = node.input.as_slice() else { return None };
    let numbers = |name: &str| node.attribute(name).map(|attribute| attribute.floats.clone());
    let (offset, scale) = (numbers("offset")?, numbers("scale")?);
    let mut constant = |numbers: &[f32]| e.constant(TensorProto::from_f32("", &[numbers.len()], numbers));
    let (offset, scale) = (constant(&offset), constant(&scale));
    // The operator takes any numbers and gives float32.
    let x = e.cast(x, ElementType::F32);
    let centered = e.op("Sub", &[&x, &offset], &[]);
    Some(NodeProto {
        output: node.output.clone(),
        name: node.label().to_owned(),
        ..NodeProto::unnamed("Mul", &[&centered, &scale], &[])
    })
}
