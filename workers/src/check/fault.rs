//! Where a graph goes wrong, as far as its wrong gradients tell.
//!
//! Every way from a parameter to the loss whose gradient is right is right; the fault lies behind all the
//! others. A scatter that writes twice to one element is found by looking at its indices.

use std::collections::{HashMap, HashSet};

use syncline_autodiff::TrainingGraph;
use syncline_onnx::proto::{GraphProto, NodeProto, ValueInfoProto};
use syncline_onnx::{ElementType, Graph, ModelProto, SplitMix64, attr_int, captured};
use syncline_runtime::{ExecOptions, Executable, Optimize, Outputs, Runtime};

use super::differences::loss_alone;
use super::{CheckError, CheckOptions, feed};

/// Most nodes that are named.
const MOST_NAMED: usize = 4;

/// Says where, in words that go on behind a semicolon; empty if nothing is known. `graph` has fixed sizes.
pub(super) fn fault(
    runtime: &Runtime,
    graph: &TrainingGraph,
    wrong: &[String],
) -> Result<String, CheckError> {
    let model = loss_alone(syncline_onnx::parse(&graph.train_onnx)?);
    let inner = model.graph.clone().unwrap_or_default();
    let suspects = suspects(&inner, graph, wrong);
    // Words are worth no failure: what cannot be run is not looked at.
    let repeated = repeated_scatter(runtime, graph, &model, &suspects).ok().flatten();
    if let Some(node) = repeated {
        return Ok(format!(
            "; node `{}` ({}) writes to some places several times, and its `reduction` is none: exporters lose sums \
             (index_add, scatter_add) this way",
            node.label(),
            node.op_type
        ));
    }
    let names: Vec<String> = suspects
        .iter()
        .take(MOST_NAMED)
        .map(|node| format!("`{}` ({})", node.label(), node.op_type))
        .collect();
    let more = suspects.len().saturating_sub(MOST_NAMED);
    Ok(match (names.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!("; the fault lies at {}", names.join(", ")),
        (false, _) => format!("; the fault lies at {} or {more} nodes after them", names.join(", ")),
    })
}

/// Nodes that every wrong parameter passes and no right one does, in the order in which they run.
fn suspects<'g>(inner: &'g GraphProto, graph: &TrainingGraph, wrong: &[String]) -> Vec<&'g NodeProto> {
    let behind = |param: &str| -> HashSet<usize> {
        let mut values: HashSet<&str> = HashSet::from([param]);
        let mut nodes = HashSet::new();
        for (index, node) in inner.node.iter().enumerate() {
            let inputs = node.input.iter().map(String::as_str).chain(captured(node));
            if inputs.into_iter().any(|input| values.contains(input)) {
                nodes.insert(index);
                values.extend(node.output.iter().map(String::as_str));
            }
        }
        nodes
    };
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for param in wrong {
        behind(param).into_iter().for_each(|index| *counts.entry(index).or_default() += 1);
    }
    for param in graph.params.iter().filter(|param| !wrong.contains(&param.name)) {
        let right = behind(&param.name);
        counts.retain(|index, _| !right.contains(index));
    }
    let all = |index: &usize| counts.get(index) == Some(&wrong.len());
    (0..inner.node.len()).filter(all).map(|index| &inner.node[index]).collect()
}

/// The first of the nodes that writes several numbers to one element.
fn repeated_scatter<'n>(
    runtime: &Runtime,
    graph: &TrainingGraph,
    loss: &ModelProto,
    suspects: &[&'n NodeProto],
) -> Result<Option<&'n NodeProto>, CheckError> {
    let scatters = suspects.iter().copied().filter(|node| {
        ["ScatterElements", "ScatterND"].contains(&node.op_type.as_str())
            && node.string("reduction", "none") == "none"
    });
    let scatters: Vec<&NodeProto> = scatters.collect();
    if scatters.is_empty() {
        return Ok(None);
    }
    let inputs: Vec<&str> = scatters.iter().map(|node| node.input[1].as_str()).collect();
    values(runtime, graph, loss, &inputs, ElementType::I64, |outputs| {
        for (index, node) in scatters.into_iter().enumerate() {
            let (numbers, shape) = (outputs.i64(&value(index))?, outputs.shape(&value(index))?);
            let repeats = match node.op_type.as_str() {
                "ScatterND" => repeats(numbers.chunks(shape.last().copied().unwrap_or(1).max(1))),
                _ => along_axis_repeats(numbers, &shape, node.int("axis", 0)),
            };
            if repeats {
                return Ok(Some(node));
            }
        }
        Ok(None)
    })
}

/// Says which node takes a root, power or logarithm of zero, in words that go on behind a comma; empty if
/// none is found.
pub(super) fn zero_root(runtime: &Runtime, graph: &TrainingGraph, broken: &[String]) -> String {
    let found = || -> Result<Option<String>, CheckError> {
        let model = loss_alone(syncline_onnx::parse(&graph.train_onnx)?);
        let inner = model.graph.clone().unwrap_or_default();
        let roots = suspects(&inner, graph, broken);
        let roots: Vec<&NodeProto> =
            roots.into_iter().filter(|node| SINGULAR.contains(&node.op_type.as_str())).collect();
        // What each reads, and the exponents of powers.
        let read = |node: &'_ &NodeProto| {
            [0, usize::from(node.op_type == "Pow")].map(|input| node.input[input].clone())
        };
        let inputs: Vec<String> = roots.iter().flat_map(read).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        values(runtime, graph, &model, &inputs, ElementType::F32, |outputs| {
            for (index, node) in roots.iter().enumerate() {
                let (bases, exponents) =
                    (outputs.f32(&value(2 * index))?, outputs.f32(&value(2 * index + 1))?);
                let root = node.op_type != "Pow" || exponents.iter().any(|exponent| *exponent < 1.0);
                if root && bases.contains(&0.0) {
                    let (name, op) = (node.label(), &node.op_type);
                    return Ok(Some(format!(", at node `{name}` ({op}), which reads zeros")));
                }
            }
            Ok(None)
        })
    };
    // Words are worth no failure.
    found().ok().flatten().unwrap_or_default()
}

/// Operators that have no finite derivative at zero.
const SINGULAR: [&str; 7] =
    ["Sqrt", "Pow", "Log", "Reciprocal", "ReduceL2", "LpNormalization", "ReduceLogSum"];

/// Name of the `index`th of the values that are read off.
fn value(index: usize) -> String {
    format!("syncline/value_{index}")
}

/// Computes values of the loss graph on random numbers, as this type, and reads them.
fn values<T>(
    runtime: &Runtime,
    graph: &TrainingGraph,
    loss: &ModelProto,
    names: &[&str],
    element: ElementType,
    read: impl FnOnce(&Outputs<'_>) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let mut model = loss.clone();
    let inner = model.graph.get_or_insert_default();
    inner.output.clear();
    for (index, name) in names.iter().enumerate() {
        let to = attr_int("to", i64::from(element.code()));
        inner.node.push(NodeProto::named(&value(index), "Cast", &[name], &[to]));
        inner.output.push(ValueInfoProto { name: value(index), ..Default::default() });
    }
    *inner = Graph::from(std::mem::take(inner)).remove_dead_and_inputs();
    let fed = feed::draw(graph, &mut SplitMix64::new(CheckOptions::default().seed))?;
    let options = ExecOptions { optimize: Optimize::Off, ..ExecOptions::default() };
    let mut session = Executable::new(runtime, &model.to_bytes(), &options)?;
    let inputs: HashSet<String> = session.input_names().iter().cloned().collect();
    let narrow = feed::narrow(&fed);
    let views: Vec<_> = narrow.views().into_iter().filter(|(name, _)| inputs.contains(*name)).collect();
    read(&session.run(&views)?)
}

fn repeats<T: std::hash::Hash + Eq>(mut all: impl Iterator<Item = T>) -> bool {
    let mut seen = HashSet::new();
    all.any(|one| !seen.insert(one))
}

/// Whether an index stands twice on one line along the axis.
fn along_axis_repeats(numbers: &[i64], shape: &[usize], axis: i64) -> bool {
    let axis = usize::try_from(if axis < 0 { axis + shape.len() as i64 } else { axis }).unwrap_or(0);
    let inner: usize = shape.iter().skip(axis + 1).product::<usize>().max(1);
    let length = shape.get(axis).copied().unwrap_or(1).max(1);
    let line = |position: usize| (position / (inner * length), position % inner);
    repeats(numbers.iter().enumerate().map(|(position, index)| (line(position), *index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_repeats_only_on_its_own_line() {
        // Two rows of three, written along the second axis, then along the first.
        assert!(!along_axis_repeats(&[0, 1, 2, 0, 1, 2], &[2, 3], 1));
        assert!(along_axis_repeats(&[0, 1, 2, 0, 1, 1], &[2, 3], -1));
        assert!(along_axis_repeats(&[0, 1, 2, 0, 1, 2], &[2, 3], 0));
        assert!(!along_axis_repeats(&[0, 0, 0, 1, 1, 1], &[2, 3], 0));
    }
}
