//! Loops on the way from a weight to the loss, found in the file as it is.
//!
//! What no gradient flows through is refused in any case. Here it is refused before ONNX Runtime loads the
//! model, as far as that is certain without the types that only the library knows: 1.31.1 ends the process at
//! some of them (the Loop that PyTorch's exporter writes for an EmbeddingBag). An `If` may still be folded
//! away, and is left to the backward pass.

use std::collections::HashSet;

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{ElementType, TensorType, captured};

use super::stop_gradient::{detaches, stops_gradient};
use crate::catalogue::{NONE_NEEDED, refusal};
use crate::error::AutodiffError;

/// Refuses the graph if a loop stands between a value in `trained` and the output that the loss looks at:
/// the one named, or the first if that is declared float.
pub(super) fn refuse_nondifferentiable(
    graph: &GraphProto,
    trained: &HashSet<String>,
    output: Option<&String>,
) -> Result<(), AutodiffError> {
    let first = || {
        let first = graph.output.first()?;
        let float = TensorType::from_value_info(first).is_some_and(|ty| ty.element == ElementType::F32);
        float.then_some(&first.name)
    };
    let Some(output) = output.or_else(first) else { return Ok(()) };
    let active = depends_on(graph, trained);
    let mut reached: HashSet<&str> = HashSet::from([output.as_str()]);
    for node in graph.node.iter().rev() {
        if !node.output.iter().any(|output| reached.contains(output.as_str())) || !passes(node) {
            continue;
        }
        let reads_active = operands(node).any(|input| active.contains(input));
        if let Some(reason) = refusal(&node.op_type).filter(|_| reads_active && node.op_type != "If") {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(AutodiffError::UnsupportedUse { op, node, reason: reason.to_owned() });
        }
        reached.extend(operands(node));
    }
    Ok(())
}

/// The values that depend on `sources` through operands that may be floats.
pub(super) fn depends_on<'g>(graph: &'g GraphProto, sources: &'g HashSet<String>) -> HashSet<&'g str> {
    let mut active: HashSet<&str> = sources.iter().map(String::as_str).collect();
    for node in graph.node.iter().filter(|node| passes(node)) {
        if operands(node).any(|input| active.contains(input)) {
            active.extend(node.output.iter().map(String::as_str));
        }
    }
    active
}

/// Whether the results of a node may depend on its operands as smooth functions do.
fn passes(node: &NodeProto) -> bool {
    let target = i32::try_from(node.int("to", 0)).map(ElementType::from_code);
    let to_integer = node.op_type == "Cast" && !target.is_ok_and(ElementType::is_float);
    let stops = detaches(node) || stops_gradient(node);
    !to_integer && !stops && !NONE_NEEDED.contains(&node.op_type.as_str())
}

/// Everything that a node reads and that is no index, shape or setting, inside its subgraphs as well.
fn operands(node: &NodeProto) -> impl Iterator<Item = &str> {
    let inputs = node.input.iter().enumerate();
    let inputs = inputs.filter(|(position, _)| !is_setting(&node.op_type, *position));
    inputs.map(|(_, input)| input.as_str()).chain(captured(node)).filter(|input| !input.is_empty())
}

fn is_setting(op: &str, position: usize) -> bool {
    match op {
        "ConstantOfShape" | "OneHot" | "Range" => true,
        "Where" => position == 0,
        // The number of rounds, and whether there is one.
        "Loop" => position < 2,
        "BatchNormalization" => position > 2,
        // The lengths of the samples.
        "GRU" | "LSTM" | "RNN" => position == 4,
        "GatherElements" | "GatherND" | "Gather" | "Reshape" | "Expand" | "Tile" | "Slice" | "Squeeze"
        | "Unsqueeze" | "Split" | "TopK" | "Trilu" | "CumSum" | "Dropout" | "Resize" | "CastLike" => {
            position > 0
        }
        "ScatterElements" | "ScatterND" => position == 1,
        "Pad" => position != 0 && position != 2,
        _ => op.starts_with("Reduce") && position > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::proto::StringStringEntryProto;
    use syncline_onnx::{GraphBuilder, attr_int};

    /// A loop over a weight that ends in `last(loop, y)`.
    fn looping(last: fn(&mut GraphBuilder, String, String) -> String) -> GraphProto {
        let mut graph = GraphBuilder::new("looping");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight("w", &[2], &[0.5; 2]);
        let state = graph.named("state", "Scan", &[&w, &x], &[attr_int("num_scan_inputs", 1)]);
        let y = last(&mut graph, state, x);
        graph.output(&y);
        let mut graph = graph.finish().graph.unwrap_or_default();
        graph.output[0] =
            TensorType::new(ElementType::F32, vec!["batch".into()]).to_value_info(&graph.output[0].name);
        graph
    }

    fn refused(graph: &GraphProto, trained: &[&str]) -> Option<String> {
        let trained = trained.iter().map(|name| (*name).to_owned()).collect();
        refuse_nondifferentiable(graph, &trained, None).err().map(|error| error.to_string())
    }

    #[test]
    fn a_loop_is_refused_only_between_a_weight_and_the_loss() {
        let between = looping(|graph, state, _| graph.op("Tanh", &[&state], &[]));
        let error = refused(&between, &["w"]).unwrap();
        assert!(error.starts_with("[E311] no gradient for this use of Scan (node `state`)"), "{error}");
        assert_eq!(refused(&between, &[]), None, "frozen");
        let beside = looping(|graph, _, x| graph.op("Tanh", &[&x], &[]));
        assert_eq!(refused(&beside, &["w"]), None, "the loss does not see it");
        let index = looping(|graph, state, x| {
            let index = graph.op("ArgMax", &[&state], &[]);
            graph.op("Gather", &[&x, &index], &[])
        });
        assert_eq!(refused(&index, &["w"]), None, "nothing flows through a place");
        let mut detached = looping(|graph, state, _| graph.named("teacher", "Identity", &[&state], &[]));
        assert!(refused(&detached, &["w"]).is_some());
        let call = StringStringEntryProto { key: "call".to_owned(), value: "aten.detach.default".to_owned() };
        detached.node.iter_mut().filter(|node| node.name == "teacher").for_each(|node| {
            node.metadata_props.push(call.clone());
        });
        assert_eq!(refused(&detached, &["w"]), None, "nothing flows through what is detached");
    }
}
