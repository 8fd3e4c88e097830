//! Models at which ONNX Runtime ends the whole process instead of returning an error.
//!
//! The library is native code with assertions that abort, so that a hostile model could take its reader down.
//! What was found, by the fuzz targets, in 1.31.1 is refused before the library sees it, as far as constants,
//! attributes and declared shapes tell: an Einsum whose dots stand for different numbers of axes of inner
//! values, or a quotient of numbers that are computed, still ends the process. This is no sandbox: somebody
//! who must not trust a model at all loads it in a process of its own.

use std::collections::HashMap;

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use syncline_onnx::{ModelProto, TensorType};

use crate::error::BackendError;

/// Refuses a model that holds a node of that kind, in a subgraph or function as well.
pub(super) fn check(model: &ModelProto) -> Result<(), BackendError> {
    model.graph.iter().try_for_each(check_graph)?;
    model.functions.iter().try_for_each(|function| check_nodes(&function.node, &Known::default()))
}

/// What the model itself says of its values.
#[derive(Default)]
struct Known<'m> {
    constants: HashMap<&'m str, &'m TensorProto>,
    /// Numbers of axes that are declared.
    ranks: HashMap<&'m str, usize>,
    /// Whether a constant holds the smallest integer of its type.
    smallest: bool,
}

fn check_graph(graph: &GraphProto) -> Result<(), BackendError> {
    let tensors = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor));
    let made = graph.node.iter().filter(|node| node.op_type == "Constant");
    let made = made.filter_map(|node| {
        let value = node.attribute.iter().find(|attribute| attribute.name == "value")?;
        Some((node.output.first()?.as_str(), value.t.as_ref()?))
    });
    let constants: HashMap<&str, &TensorProto> = tensors.chain(made).collect();
    let declared = graph.input.iter().chain(&graph.value_info).chain(&graph.output);
    let declared =
        declared.filter_map(|info| Some((info.name.as_str(), TensorType::from_value_info(info)?.dims.len())));
    let held = constants.iter().map(|(name, tensor)| (*name, tensor.dims.len()));
    let ranks = declared.chain(held).collect();
    let smallest = constants.values().any(|tensor| holds(tensor, &[i64::MIN, i32::MIN.into()]));
    check_nodes(&graph.node, &Known { constants, ranks, smallest })
}

fn check_nodes(nodes: &[NodeProto], known: &Known<'_>) -> Result<(), BackendError> {
    for node in nodes {
        if let Some(reason) = reason_to_refuse(node, known) {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(BackendError::Hazard { op, node, reason });
        }
        node.subgraphs().try_for_each(check_graph)?;
    }
    Ok(())
}

/// Inputs of which the library reads the first number without asking whether there is one.
const READ_AS_ONE_NUMBER: &[(&str, usize)] = &[("OneHot", 1)];

/// Attributes by which the library divides without looking; each is 1 at least.
const DIVISORS: &[&str] = &["blocksize", "group", "kv_num_heads", "num_groups", "num_outputs", "q_num_heads"];

fn reason_to_refuse(node: &NodeProto, known: &Known<'_>) -> Option<String> {
    let constants = &known.constants;
    let constant = |input: usize| constants.get(node.input.get(input)?.as_str()).copied();
    let empty = |(op, input): &&(&str, usize)| {
        node.op_type == *op && constant(*input).is_some_and(|tensor| tensor.dims.contains(&0))
    };
    if let Some((_, input)) = READ_AS_ONE_NUMBER.iter().find(empty) {
        return Some(format!("its input {} holds no number", input + 1));
    }
    if let Some(name) = DIVISORS.iter().find(|name| node.int(name, 1) < 1) {
        return Some(format!("its {name} is {}", node.int(name, 1)));
    }
    let valued = |attribute: &AttributeProto| attribute.name.starts_with("value");
    if node.op_type == "Constant" && !node.attribute.iter().all(valued) {
        return Some("it has an attribute that is no value".to_owned());
    }
    if node.int("batch_dims", 0) < 0 {
        return Some("it has a negative number of batch axes".to_owned());
    }
    if node.op_type == "Einsum" && uneven_ellipses(node, &known.ranks) {
        return Some("its dots stand for different numbers of axes".to_owned());
    }
    if node.op_type == "Split" {
        let stated = node.int("num_outputs", node.output.len() as i64);
        if stated != node.output.len() as i64 {
            return Some(format!("it has {} outputs, its attribute says {stated}", node.output.len()));
        }
    }
    let divides = node.op_type == "Div" || node.op_type == "Mod";
    if divides && known.smallest && constant(1).is_some_and(|divisor| holds(divisor, &[-1])) {
        return Some("it divides by -1, and the model holds the smallest integer".to_owned());
    }
    if node.op_type == "SplitToSequence" {
        let lengths = constant(1).filter(|lengths| lengths.dims.is_empty()).and_then(TensorProto::to_i64);
        if let Some([length @ ..=0]) = lengths.as_deref() {
            return Some(format!("it makes parts of {length} elements"));
        }
    }
    None
}

/// Whether an integer constant holds one of these numbers.
fn holds(tensor: &TensorProto, numbers: &[i64]) -> bool {
    tensor.to_i64().is_some_and(|held| held.iter().any(|number| numbers.contains(number)))
}

/// Whether the dots of two operands of an Einsum stand for different numbers of axes, as far as ranks are
/// declared.
fn uneven_ellipses(node: &NodeProto, ranks: &HashMap<&str, usize>) -> bool {
    let operands = node.string("equation", "").split("->").next().unwrap_or_default();
    let axes = |(term, input): (&str, &String)| {
        let letters = term.chars().filter(|c| c.is_ascii_alphabetic()).count();
        term.contains("...").then_some(())?;
        ranks.get(input.as_str())?.checked_sub(letters)
    };
    let mut counts = operands.split(',').zip(&node.input).filter_map(axes);
    counts.next().is_some_and(|first| counts.any(|other| other != first))
}
