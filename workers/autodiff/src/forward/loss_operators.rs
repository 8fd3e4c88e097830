//! ONNX's own loss operators in plain ones, for models that compute their loss themselves.
//!
//! With log p along axis 1, label t and weights w, NegativeLogLikelihoodLoss has -w_t log p_t of each label,
//! or 0 where the label is ignored; its mean is the sum of these over the sum of the weights.
//! SoftmaxCrossEntropyLoss is that of LogSoftmax. Source: the definitions of both in ONNX's operator set 13.

use syncline_onnx::ElementType;
use syncline_onnx::attr_int;
use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

use crate::emitter::Emitter;

const SOFTMAX_CROSS_ENTROPY: &str = "SoftmaxCrossEntropyLoss";
const NEGATIVE_LOG_LIKELIHOOD: &str = "NegativeLogLikelihoodLoss";

/// Writes out every loss operator; the graph is left alone if there is none.
pub(crate) fn write_out_losses(graph: GraphProto) -> GraphProto {
    if !graph.node.iter().any(is_loss) {
        return graph;
    }
    Emitter::write_out(graph, |e, node| if is_loss(node) { parts(e, node) } else { None })
}

fn is_loss(node: &NodeProto) -> bool {
    node.domain.is_empty() && [SOFTMAX_CROSS_ENTROPY, NEGATIVE_LOG_LIKELIHOOD].contains(&&*node.op_type)
}

/// Writes everything but the last node, which it returns under the name of the node it replaces.
fn parts(e: &mut Emitter, node: &NodeProto) -> Option<NodeProto> {
    let (scores, labels, table) = match node.input.as_slice() {
        [scores, labels] => (scores, labels, None),
        [scores, labels, table] => (scores, labels, Some(table).filter(|table| !table.is_empty())),
        _ => return None,
    };
    let log_p = match node.op_type == SOFTMAX_CROSS_ENTROPY {
        true => e.op("LogSoftmax", &[scores], &[attr_int("axis", 1)]),
        false => scores.clone(),
    };
    if let Some(second) = node.output.get(1).filter(|output| !output.is_empty()) {
        e.push_node(NodeProto {
            output: vec![second.clone()],
            ..NodeProto::unnamed("Identity", &[&log_p], &[])
        });
    }
    let mut index = e.cast(labels, ElementType::I64);
    let mut counts = None;
    if node.attribute("ignore_index").is_some() {
        let ignored = e.constant(TensorProto::from_i64("", &[], &[node.int("ignore_index", 0)]));
        let zero = e.constant(TensorProto::from_i64("", &[], &[0]));
        let is_ignored = e.op("Equal", &[&index, &ignored], &[]);
        index = e.op("Where", &[&is_ignored, &zero, &index], &[]);
        let counted = e.op("Not", &[&is_ignored], &[]);
        counts = Some((is_ignored, e.cast(&counted, ElementType::F32)));
    }
    let axis = e.ints(&[1]);
    let places = e.op("Unsqueeze", &[&index, &axis], &[]);
    let picked = e.op("GatherElements", &[&log_p, &places], &[attr_int("axis", 1)]);
    let picked = e.op("Squeeze", &[&picked, &axis], &[]);
    let mut losses = e.op("Neg", &[&picked], &[]);
    let mut weights = table.map(|table| e.op("Gather", &[table, &index], &[]));
    if let Some((is_ignored, counted)) = counts {
        // Not a product: log p may be minus infinity there.
        let nothing = e.float(ElementType::F32, 0.0);
        losses = e.op("Where", &[&is_ignored, &nothing, &losses], &[]);
        weights = Some(match weights {
            Some(weights) => e.op("Mul", &[&weights, &counted], &[]),
            None => counted,
        });
    }
    if let Some(weights) = &weights {
        losses = e.op("Mul", &[&losses, weights], &[]);
    }
    let last = |op: &str, inputs: &[&str], attributes: &[AttributeProto]| NodeProto {
        output: node.output.iter().take(1).cloned().collect(),
        name: node.label().to_owned(),
        ..NodeProto::unnamed(op, inputs, attributes)
    };
    let keepdims = [attr_int("keepdims", 0)];
    let reduction = node.string("reduction", "mean");
    Some(match (reduction, weights) {
        ("none", _) => last("Identity", &[&losses], &[]),
        ("sum", _) => last("ReduceSum", &[&losses], &keepdims),
        (_, None) => last("ReduceMean", &[&losses], &keepdims),
        (_, Some(weights)) => {
            let (sum, weight) =
                (e.op("ReduceSum", &[&losses], &keepdims), e.op("ReduceSum", &[&weights], &keepdims));
            last("Div", &[&sum, &weight], &[])
        }
    })
}
