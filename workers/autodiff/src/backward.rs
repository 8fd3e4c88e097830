//! The backward pass: from the gradient of the loss to the gradients of the parameters.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Types, captured};

use crate::catalogue::refusal;
use crate::emitter::Emitter;
use crate::error::AutodiffError;
use crate::forward::stops_gradient;
use crate::vjp::{self, NodeGrad};

/// Walks the forward nodes backwards and returns the gradient of every value in `wanted` that the cotangent
/// reaches.
///
/// `nodes` are in topological order. `cotangent` is a value with its gradient. Only values that depend on a
/// wanted value through float tensors get gradients at all, so that an operator without a rule does no harm
/// elsewhere. `rounded`: whether the graph is to be lowered to 16 bits.
pub(super) fn backward(
    emitter: &mut Emitter,
    nodes: &[NodeProto],
    types: &Types,
    wanted: &[String],
    cotangent: (String, String),
    rounded: bool,
) -> Result<HashMap<String, String>, AutodiffError> {
    let active = depends_on(nodes, types, wanted);
    let mut grads: HashMap<String, Vec<String>> = HashMap::from([(cotangent.0, vec![cotangent.1])]);
    for node in nodes.iter().rev() {
        let reached = node.output.iter().any(|output| grads.contains_key(output));
        if !reached || stops_gradient(node) || !reads(node).any(|input| active.contains(input)) {
            continue;
        }
        if let Some(reason) = refusal(&node.op_type) {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(AutodiffError::UnsupportedUse { op, node, reason: reason.to_owned() });
        }
        // All readers of these outputs have been passed: their gradients are complete.
        let outputs =
            node.output.iter().map(|output| grads.remove(output).map(|parts| add_up(emitter, &parts)));
        let outputs: Vec<Option<String>> = outputs.collect();
        let needs: Vec<bool> = node.input.iter().map(|input| active.contains(input)).collect();
        let mut node_grad = NodeGrad { emitter, node, types, outputs: &outputs, needs: &needs, rounded };
        let inputs = vjp::apply(&mut node_grad)?;
        for ((input, grad), needed) in node.input.iter().zip(inputs).zip(&needs) {
            if let (Some(grad), true) = (grad, needed) {
                grads.entry(input.clone()).or_default().push(grad);
            }
        }
    }
    let mut found = HashMap::new();
    for name in wanted {
        if let Some(parts) = grads.remove(name) {
            found.insert(name.clone(), add_up(emitter, &parts));
        }
    }
    Ok(found)
}

/// The values that depend on `sources` through float tensors, the sources included.
fn depends_on(nodes: &[NodeProto], types: &Types, sources: &[String]) -> HashSet<String> {
    let mut active: HashSet<String> = sources.iter().cloned().collect();
    for node in nodes.iter().filter(|node| !stops_gradient(node)) {
        if reads(node).any(|input| active.contains(input)) {
            let float = |name: &&String| types.get(*name).is_none_or(|ty| ty.element.is_float());
            active.extend(node.output.iter().filter(|name| !name.is_empty()).filter(float).cloned());
        }
    }
    active
}

/// Everything that a node reads, inside its subgraphs as well.
fn reads(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.input.iter().map(String::as_str).chain(captured(node))
}

fn add_up(emitter: &mut Emitter, parts: &[String]) -> String {
    match parts {
        [one] => one.clone(),
        [one, two] => emitter.op("Add", &[one, two], &[]),
        many => emitter.op("Sum", &many.iter().map(String::as_str).collect::<Vec<_>>(), &[]),
    }
}
