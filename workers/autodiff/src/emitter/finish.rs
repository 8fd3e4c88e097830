//! The end of writing: what the outputs need, as a model.

use syncline_onnx::proto::{ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
use syncline_onnx::{TensorType, attr_string};

use super::Emitter;

/// Operator set of a finished graph, unless the model's own is newer. Rules need ScatterND with reduction
/// (16) and Shape of one axis (15). What sets 13 to 16 define means the same in 17, with one exception, see
/// [`write_old_mode`].
const LEAST_OPSET: i64 = 17;

/// Version of the file format that came with [`LEAST_OPSET`].
const LEAST_IR_VERSION: i64 = 8;

impl Emitter {
    /// The part of the graph that these outputs need, as a model like `template`.
    pub(crate) fn finish(
        mut self,
        template: &ModelProto,
        inputs: &[(String, TensorType)],
        outputs: &[String],
    ) -> ModelProto {
        for (name, ty) in inputs {
            self.graph.push_input(ty.to_value_info(name));
        }
        for name in outputs {
            self.graph.push_output(ValueInfoProto::untyped(name.clone()));
        }
        let graph = Some(self.graph.remove_dead());
        let mut model = ModelProto { graph, producer_name: "syncline".to_owned(), ..template.clone() };
        // Up to version 3 a constant that is an input as well cannot be fed.
        model.ir_version = model.ir_version.max(LEAST_IR_VERSION);
        raise_opset(&mut model);
        model
    }
}

/// Operator set from which on RoiAlign takes its coordinates to be half a pixel off unless it says otherwise.
const HALF_PIXEL_OPSET: i64 = 16;

/// Lets an old model use [`LEAST_OPSET`]. Functions that are left say their operator sets themselves.
fn raise_opset(model: &mut ModelProto) {
    if model.opset() < HALF_PIXEL_OPSET {
        model.graph.iter_mut().for_each(|graph| write_old_mode(&mut graph.node));
    }
    let standard = |set: &&mut OperatorSetIdProto| set.domain.is_empty() || set.domain == "ai.onnx";
    for set in model.opset_import.iter_mut().filter(standard) {
        set.version = set.version.max(LEAST_OPSET);
    }
}

/// Lets every RoiAlign say how it read its coordinates before [`HALF_PIXEL_OPSET`], within branches and loops
/// too.
fn write_old_mode(nodes: &mut [NodeProto]) {
    for node in nodes {
        if node.op_type == "RoiAlign" && node.domain.is_empty() {
            node.attribute.push(attr_string("coordinate_transformation_mode", "output_half_pixel"));
        }
        node.subgraphs_mut().for_each(|graph| write_old_mode(&mut graph.node));
    }
}
