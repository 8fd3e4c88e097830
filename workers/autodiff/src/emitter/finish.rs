//! The end of writing: what the outputs need, as a model.

use std::collections::HashSet;

use syncline_onnx::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
use syncline_onnx::{TensorType, captured};

use super::Emitter;

/// Operator set of a finished graph, unless the model's own is newer. Rules need ScatterND with reduction (16) and
/// Shape of one axis (15). What sets 13 to 16 define means the same in 17, with one exception, see [`raise_opset`].
const LEAST_OPSET: i64 = 17;

impl Emitter {
    /// The part of the graph that these outputs need, as a model like `template`.
    pub(crate) fn finish(
        &self,
        template: &ModelProto,
        inputs: &[(String, TensorType)],
        outputs: &[String],
    ) -> ModelProto {
        let mut needed: HashSet<&str> = outputs.iter().map(String::as_str).collect();
        let mut nodes: Vec<NodeProto> = Vec::new();
        for node in self.nodes.iter().rev() {
            if node.output.iter().any(|output| needed.contains(output.as_str())) {
                needed.extend(node.input.iter().map(String::as_str));
                needed.extend(captured(node));
                nodes.push(self.without_unneeded_extras(node, &needed));
            }
        }
        nodes.reverse();
        let constants = self.constants.iter().filter(|tensor| needed.contains(tensor.name.as_str()));
        let graph = GraphProto {
            name: "syncline".to_owned(),
            node: nodes,
            initializer: constants.cloned().collect(),
            input: inputs.iter().map(|(name, ty)| ty.to_value_info(name)).collect(),
            output: outputs.iter().map(|name| ValueInfoProto::untyped(name.clone())).collect(),
            ..GraphProto::default()
        };
        let mut model =
            ModelProto { graph: Some(graph), producer_name: "syncline".to_owned(), ..template.clone() };
        raise_opset(&mut model);
        model
    }

    fn without_unneeded_extras(&self, node: &NodeProto, needed: &HashSet<&str>) -> NodeProto {
        let mut node = node.clone();
        let unneeded = |output: &String| self.extras.contains(output) && !needed.contains(output.as_str());
        if node.output.iter().any(unneeded) {
            node.output.iter_mut().filter(|output| unneeded(output)).for_each(String::clear);
            let kept = node.output.iter().rposition(|output| !output.is_empty()).map_or(0, |last| last + 1);
            node.output.truncate(kept);
        }
        node
    }
}

/// Lets an old model speak [`LEAST_OPSET`]. A model with RoiAlign, whose default mode changed in 16, stays as it is.
fn raise_opset(model: &mut ModelProto) {
    if model.graph.iter().flat_map(|graph| &graph.node).any(|node| node.op_type == "RoiAlign") {
        return;
    }
    let standard = |set: &&mut OperatorSetIdProto| set.domain.is_empty() || set.domain == "ai.onnx";
    for set in model.opset_import.iter_mut().filter(standard) {
        set.version = set.version.max(LEAST_OPSET);
    }
}
