//! A graph that draws random numbers, with the numbers of one run in the place of the drawing: all later runs
//! compute the same function, whose differences can be taken.
//!
//! The numbers are ONNX Runtime's own, from the seeds that the nodes have: what a first run draws is read
//! back. A Dropout becomes the product with what it would make of ones, and its mask the places where that is
//! not zero. A value at which gradients stop is kept like those: to its gradient the loss depends on nothing
//! behind it, and differences have to agree.

use std::collections::HashSet;

use syncline_autodiff::{TrainingGraph, stops_gradient};
use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto};
use syncline_onnx::{ElementType, Graph, ModelProto, attr_int};
use syncline_runtime::{ExecOptions, Executable, Optimize, Runtime};

use super::error::CheckError;
use super::feed::{self, Fed};

/// The graph with fixed numbers wherever it draws or stops a gradient; `fed` is what the first run is fed
/// with.
pub(super) fn freeze(
    runtime: &Runtime,
    graph: TrainingGraph,
    fed: &[Fed],
) -> Result<TrainingGraph, CheckError> {
    let mut model = syncline_onnx::parse(&graph.train_onnx)?;
    let inner = model.graph.get_or_insert_default();
    refuse_hidden(inner)?;
    let kinds = [NodeProto::draws, stops_gradient];
    if !inner.node.iter().any(|node| kinds.iter().any(|kept| kept(node))) {
        return Ok(graph);
    }
    // Where gradients stop, the numbers may follow from those that are drawn.
    for kept in kinds {
        keep(runtime, &mut model, fed, kept)?;
    }
    Ok(TrainingGraph { train_onnx: model.to_bytes(), ..graph })
}

/// Puts numbers into the place of some nodes.
fn keep(
    runtime: &Runtime,
    model: &mut ModelProto,
    fed: &[Fed],
    kept: fn(&NodeProto) -> bool,
) -> Result<(), CheckError> {
    if !model.graph.iter().flat_map(|graph| &graph.node).any(kept) {
        return Ok(());
    }
    let mut numbers = numbers_of(runtime, model, fed, kept)?.into_iter();
    let inner = model.graph.get_or_insert_default();
    let mut nodes = Vec::with_capacity(inner.node.len());
    for node in std::mem::take(&mut inner.node) {
        if !kept(&node) {
            nodes.push(node);
            continue;
        }
        let Some(tensor) = numbers.next() else { continue };
        replace(&node, tensor, inner, &mut nodes);
    }
    inner.node = nodes;
    Ok(())
}

/// What is drawn inside a loop or a branch cannot be read back.
fn refuse_hidden(graph: &GraphProto) -> Result<(), CheckError> {
    let mut inside: Vec<&GraphProto> = graph.node.iter().flat_map(NodeProto::subgraphs).collect();
    while let Some(graph) = inside.pop() {
        if let Some(node) = graph.node.iter().find(|node| node.draws()) {
            let (op, node) = (node.op_type.clone(), node.label().to_owned());
            return Err(CheckError::CheckRandom { op, node });
        }
        inside.extend(graph.node.iter().flat_map(NodeProto::subgraphs));
    }
    Ok(())
}

fn number_name(node: &NodeProto) -> String {
    format!("syncline/kept/{}", node.output.concat())
}

/// What each node that is `kept` makes in one run, in the order of the nodes; for a Dropout, what it makes of
/// ones.
fn numbers_of(
    runtime: &Runtime,
    model: &ModelProto,
    fed: &[Fed],
    kept: fn(&NodeProto) -> bool,
) -> Result<Vec<TensorProto>, CheckError> {
    let mut model = model.clone();
    let graph = model.graph.get_or_insert_default();
    let mut nodes = Vec::with_capacity(graph.node.len());
    let mut names = Vec::new();
    for mut node in std::mem::take(&mut graph.node) {
        if !kept(&node) {
            nodes.push(node);
            continue;
        }
        let number = number_name(&node);
        if node.op_type == "Dropout" {
            let [shape, ones] = ["shape", "ones"].map(|part| format!("{number}/{part}"));
            let one = AttributeProto {
                name: "value".to_owned(),
                t: Some(TensorProto::from_f32("", &[1], &[1.0])),
                kind: 4,
                ..Default::default()
            };
            nodes.push(NodeProto::named(&shape, "Shape", &[&node.input[0]], &[]));
            nodes.push(NodeProto::named(&ones, "ConstantOfShape", &[&shape], &[one]));
            node.input[0] = ones;
            // One whose mask nobody reads is taken away when the model is loaded.
            if node.output.len() < 2 || node.output[1].is_empty() {
                node.output.resize(2, String::new());
                node.output[1] = format!("{number}/mask");
            }
            graph.output.push(ValueInfoProto { name: node.output[1].clone(), ..Default::default() });
        }
        let cast = attr_int("to", i64::from(ElementType::F32.code()));
        let made = NodeProto::named(&number, "Cast", &[&node.output[0]], &[cast]);
        nodes.extend([node, made]);
        names.push(number);
    }
    let masks: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let masks: Vec<String> = masks
        .into_iter()
        .filter(|name| nodes.iter().any(|n| n.op_type == "Dropout" && n.output.get(1) == Some(name)))
        .collect();
    graph.node = nodes;
    graph.output = names
        .iter()
        .chain(&masks)
        .map(|name| ValueInfoProto { name: name.clone(), ..Default::default() })
        .collect();
    *graph = Graph::from(std::mem::take(graph)).remove_dead_and_inputs();
    let options = ExecOptions { optimize: Optimize::Off, ..ExecOptions::default() };
    let mut session = Executable::new(runtime, &model.to_bytes(), &options)?;
    let inputs: HashSet<String> = session.input_names().iter().cloned().collect();
    let narrow = feed::narrow(fed);
    let views: Vec<_> = narrow.views().into_iter().filter(|(name, _)| inputs.contains(*name)).collect();
    let outputs = session.run(&views)?;
    let tensor = |name: &String| Ok(TensorProto::from_f32(name, &outputs.shape(name)?, outputs.f32(name)?));
    names.iter().map(tensor).collect()
}

/// Puts what was drawn, or was the value, into the place of the node.
fn replace(node: &NodeProto, numbers: TensorProto, graph: &mut GraphProto, nodes: &mut Vec<NodeProto>) {
    let drawn = numbers.name.clone();
    graph.initializer.push(numbers);
    let output = |index: usize| node.output.get(index).filter(|name| !name.is_empty());
    if node.op_type == "Dropout" {
        if let Some(y) = output(0) {
            nodes.push(NodeProto::named(y, "Mul", &[&node.input[0], &drawn], &[]));
        }
        if let Some(mask) = output(1) {
            let to_bool = attr_int("to", i64::from(ElementType::Bool.code()));
            nodes.push(NodeProto::named(mask, "Cast", &[&drawn], &[to_bool]));
        }
        return;
    }
    let Some(name) = output(0) else { return };
    if stops_gradient(node) {
        nodes.push(NodeProto::named(name, "CastLike", &[&drawn, &node.input[0]], &[]));
        return;
    }
    let default = match node.op_type.as_str() {
        "Multinomial" => ElementType::I32,
        _ => ElementType::F32,
    };
    let to = node.int("dtype", i64::from(default.code()));
    nodes.push(NodeProto::named(name, "Cast", &[&drawn], &[attr_int("to", to)]));
}
