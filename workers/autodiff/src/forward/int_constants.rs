//! Integer constants of a graph, which say shapes, axes and positions.

use std::collections::HashMap;

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

/// Integer constants by name: single numbers and lists. A table of several axes is no list, whatever its
/// numbers.
pub(crate) struct IntConstants(HashMap<String, Vec<i64>>);

impl IntConstants {
    pub(crate) fn of(graph: &GraphProto) -> Self {
        let tensors = graph.initializer.iter().map(|tensor| (tensor.name.clone(), tensor));
        let value = |node: &'_ NodeProto| -> Option<TensorProto> {
            node.attribute.iter().find(|attribute| attribute.name == "value")?.t.clone()
        };
        let nodes = graph.node.iter().filter(|node| node.op_type == "Constant");
        let list = |tensor: &TensorProto| tensor.to_i64().filter(|_| tensor.dims.len() <= 1);
        let made = nodes.filter_map(|node| Some((node.output.first()?.clone(), list(&value(node)?)?)));
        Self(tensors.filter_map(|(name, tensor)| Some((name, list(tensor)?))).chain(made).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).map(Vec::as_slice)
    }
}
