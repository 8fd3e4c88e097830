//! The loss of a float16 training graph, scaled so that small gradients do not vanish.
//!
//! float16 has no numbers below 6e-8. So the gradient that the backward pass begins with is multiplied by the input
//! `loss_scale`, and each parameter's gradient divided by it again, in float32. The input has a default, so that the graph
//! runs as it is; who trains lowers it when a gradient is not finite. The output `loss` is not scaled.
//! Source: Micikevicius et al., Mixed precision training, ICLR 2018, arXiv:1710.03740.

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{ElementType, TensorType};

use crate::{GRAD_SUFFIX, LOSS_SCALE};

/// What the loss is multiplied by at first.
pub const FIRST_LOSS_SCALE: f32 = 65536.0;

/// Multiplies the gradient `seed` by the input `loss_scale`, and divides those of the parameters by it. Returns the
/// gradient that the backward pass now begins with.
pub(crate) fn scale_loss(graph: &mut GraphProto, seed: &str) -> String {
    let scaled = "syncline/scaled_loss".to_owned();
    let inverse = "syncline/loss_unscale".to_owned();
    let made = graph.node.iter().position(|node| node.output.iter().any(|output| output == seed));
    for input in graph.node.iter_mut().flat_map(|node| &mut node.input).filter(|input| *input == seed) {
        input.clone_from(&scaled);
    }
    let position = made.map_or(0, |made| made + 1);
    graph.node.insert(position, NodeProto::named(&scaled, "Mul", &[seed, LOSS_SCALE], &[]));
    graph.node.push(NodeProto::named(&inverse, "Reciprocal", &[LOSS_SCALE], &[]));
    let outputs = graph.output.iter().map(|output| output.name.clone());
    let grads: Vec<String> = outputs.filter(|name| name.ends_with(GRAD_SUFFIX)).collect();
    for grad in grads {
        let inner = format!("syncline/scaled/{grad}");
        let mentions = graph.node.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        mentions.filter(|name| **name == grad).for_each(|name| name.clone_from(&inner));
        graph.node.iter_mut().filter(|node| node.name == grad).for_each(|node| node.name.clone_from(&inner));
        graph.node.push(NodeProto::named(&grad, "Mul", &[&inner, &inverse], &[]));
    }
    let scalar = TensorType::new(ElementType::F32, Vec::new());
    graph.input.push(scalar.to_value_info(LOSS_SCALE));
    graph.initializer.push(TensorProto::from_f32(LOSS_SCALE, &[], &[FIRST_LOSS_SCALE]));
    scaled
}
