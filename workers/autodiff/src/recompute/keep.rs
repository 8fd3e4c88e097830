//! Which values a training graph keeps from its forward pass for the backward one, and which it makes again.
//!
//! In: a training graph, the types of its values with all axes fixed, the gradient that the backward pass begins with.
//! Out: the nodes of the backward pass ("late": they depend on that gradient), and the values that late nodes read and
//! that are made again from what is kept, by operators that cost little beside products and convolutions.
//!
//! What is kept is the cheapest cut between everything that is dear to make and everything that late nodes read, where a
//! value costs its bytes. Values of residual connections, which the forward pass itself reads much later, are always
//! kept: to make one again would take the block before it again, and the one before that.
//! Source: He and Yu, Transcending runtime-memory tradeoffs in checkpointing by being fusion aware, MLSys 2023; the first
//! to trade time for memory so: Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Types, captured};

use super::min_cut::{Network, UNCUT};
use crate::estimate::bytes;

/// Values up to this size are always kept: statistics of a batch, shapes, masks of a length.
const SMALL_BYTES: u64 = 4096;
/// A value that is read behind this many products after it was made belongs to a residual connection.
const FAR: usize = 2;

/// What costs little: one or a few operations an element, or none.
#[rustfmt::skip]
const CHEAP: &[&str] = &[
    "Abs", "Add", "And", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Concat", "ConstantOfShape",
    "Cos", "DepthToSpace", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor",
    "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Max", "Min", "Mish", "Mul", "Neg", "Not", "Or",
    "PRelu", "Pad", "Pow", "RMSNormalization", "Reciprocal", "Relu", "Reshape", "Round", "Selu", "Sigmoid",
    "Sign", "Sin", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze",
    "Sub", "Sum", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
];

/// Products, by which the length of a way through the forward pass is counted.
const PRODUCTS: &[&str] = &["Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"];

/// What to do with each value and node.
#[derive(Debug)]
pub(crate) struct Plan<'g> {
    /// The node that makes a value.
    pub(crate) producer: HashMap<&'g str, usize>,
    /// For each node up to the one that makes the seed, whether it belongs to the forward pass.
    pub(crate) forward: Vec<bool>,
    /// For each node whether it belongs to the backward pass.
    pub(crate) late: Vec<bool>,
    /// Values to make again where a late node needs them.
    pub(crate) again: HashSet<&'g str>,
    /// Values that are kept, and worth being read late only.
    pub(crate) kept: HashSet<&'g str>,
    /// Values of the forward pass that are to go when it is done -> nodes that ask for their shape, perhaps later.
    pub(crate) measured: HashMap<&'g str, Vec<usize>>,
}

impl<'g> Plan<'g> {
    pub(crate) fn of(graph: &'g GraphProto, types: &Types, seed: &str) -> Self {
        let producer = producers(graph);
        let late = late(graph, seed);
        let is_late = |value: &str| value == seed || producer.get(value).is_some_and(|&node| late[node]);
        let forward = producer.get(seed).map_or_else(Vec::new, |&node| ancestors(graph, &producer, node));
        let far = far(graph, &producer, &forward);
        let outputs: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();

        let mut network = Network::new();
        let mut vertices: HashMap<&str, (usize, usize)> = HashMap::new();
        let worth = |value: &str| {
            let known = types.contains_key(value);
            producer.contains_key(value) && !(known && bytes(types, value) <= SMALL_BYTES)
        };
        let repeatable = |value: &str| {
            let node = &graph.node[*producer.get(value)?];
            (is_cheap(node) && types.contains_key(value) && !far.contains(value)).then_some(node)
        };
        let late_nodes = graph.node.iter().zip(&late).filter(|(_, late)| **late).map(|(node, _)| node);
        let needed: HashSet<&str> = late_nodes
            .flat_map(|node| node.input.iter().map(String::as_str).chain(captured(node)))
            .filter(|value| !is_late(value) && worth(value))
            .collect();
        let mut open: Vec<&str> = needed.iter().copied().collect();
        while let Some(value) = open.pop() {
            if vertices.contains_key(value) {
                continue;
            }
            let (entry, exit) = (network.vertex(), network.vertex());
            vertices.insert(value, (entry, exit));
            // An output is there anyway.
            let price = if outputs.contains(value) { 0 } else { bytes(types, value).max(1) };
            network.edge(entry, exit, price);
            if needed.contains(value) {
                network.edge(exit, Network::SINK, UNCUT);
            }
            match repeatable(value) {
                Some(node) => open.extend(node.input.iter().map(String::as_str).filter(|input| worth(input))),
                None => network.edge(Network::SOURCE, entry, UNCUT),
            }
        }
        for (&value, &(entry, _)) in &vertices {
            let inputs = repeatable(value).into_iter().flat_map(|node| &node.input);
            let inputs = inputs.filter_map(|input| vertices.get(input.as_str()));
            inputs.for_each(|&(_, exit)| network.edge(exit, entry, UNCUT));
        }
        let sink_side = network.sink_side();
        let on = |vertex: usize| sink_side[vertex];
        let again: HashSet<&str> =
            vertices.iter().filter(|(_, at)| on(at.0)).map(|(value, _)| *value).collect();
        let kept: HashSet<&str> =
            vertices.iter().filter(|(_, at)| !on(at.0) && on(at.1)).map(|(value, _)| *value).collect();
        let goes = |value: &str| {
            let made = producer.get(value).is_some_and(|&maker| forward.get(maker) == Some(&true));
            made && worth(value) && !kept.contains(value) && !outputs.contains(value)
        };
        let measured = measured(graph, goes);
        Self { producer, forward, late, again, kept, measured }
    }
}

fn producers(graph: &GraphProto) -> HashMap<&str, usize> {
    let mut producers = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            producers.insert(output.as_str(), index);
        }
    }
    producers
}

/// Values that go, with the nodes that ask for their shape.
fn measured(graph: &GraphProto, goes: impl Fn(&str) -> bool) -> HashMap<&str, Vec<usize>> {
    let mut measured: HashMap<&str, Vec<usize>> = HashMap::new();
    let measures = |node: &NodeProto| matches!(node.op_type.as_str(), "Shape" | "Size");
    for (index, node) in graph.node.iter().enumerate().filter(|(_, node)| measures(node)) {
        if let Some(value) = node.input.first().filter(|value| goes(value)) {
            measured.entry(value).or_default().push(index);
        }
    }
    measured
}

/// For each node whether it depends on the seed.
fn late(graph: &GraphProto, seed: &str) -> Vec<bool> {
    let mut values: HashSet<&str> = HashSet::from([seed]);
    let mut late = Vec::with_capacity(graph.node.len());
    for node in &graph.node {
        let reads = node.input.iter().map(String::as_str).chain(captured(node));
        let depends = reads.into_iter().any(|value| values.contains(value));
        if depends {
            values.extend(node.output.iter().filter(|output| !output.is_empty()).map(String::as_str));
        }
        late.push(depends);
    }
    late
}

/// For each node up to `last` whether the node at `last` depends on it.
pub(crate) fn ancestors(graph: &GraphProto, producer: &HashMap<&str, usize>, last: usize) -> Vec<bool> {
    let mut found = vec![false; last + 1];
    found[last] = true;
    for index in (0..=last).rev() {
        if found[index] {
            let node = &graph.node[index];
            let reads = node.input.iter().map(String::as_str).chain(captured(node));
            reads.filter_map(|value| producer.get(value)).for_each(|&maker| found[maker] = true);
        }
    }
    found
}

/// Values that the forward pass reads much later than it makes them.
fn far<'g>(graph: &'g GraphProto, producer: &HashMap<&str, usize>, forward: &[bool]) -> HashSet<&'g str> {
    let (mut products, mut far) = (0, HashSet::new());
    // Products so far, when each node has run.
    let mut behind = Vec::with_capacity(forward.len());
    for (node, forward) in graph.node.iter().zip(forward) {
        if *forward {
            let makers = |input: &&String| producer.get(input.as_str()).map(|&maker| behind[maker]);
            let late = |input: &&String| makers(input).is_some_and(|made: usize| products >= made + FAR);
            far.extend(node.input.iter().filter(late).map(String::as_str));
            products += usize::from(PRODUCTS.contains(&node.op_type.as_str()));
        }
        behind.push(products);
    }
    far
}

/// Whether a second run of the node costs little and gives the same.
fn is_cheap(node: &NodeProto) -> bool {
    let standard = node.domain.is_empty() || node.domain == "ai.onnx";
    // A seed makes two Dropout nodes draw the same numbers, run for run.
    let repeats = node.op_type != "Dropout" || node.attribute("seed").is_some();
    standard && repeats && CHEAP.contains(&node.op_type.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder, TensorType};

    /// Forward values of a graph with these nodes (operator, inputs; node `n` makes `vn`), and late ones behind `seed`.
    fn planned(nodes: &[(&str, &[&str])], late: &[(&str, &[&str])]) -> (Vec<String>, Vec<String>) {
        let mut builder = GraphBuilder::new("plan");
        builder.input("x", ElementType::F32, &[64.into(), 64.into()]);
        for (index, (op, inputs)) in nodes.iter().enumerate() {
            builder.named(&format!("v{index}"), op, inputs, &[]);
        }
        let last = format!("v{}", nodes.len() - 1);
        builder.named("seed", "Loss", &[&last], &[]);
        for (index, (op, inputs)) in late.iter().enumerate() {
            let value = builder.named(&format!("d{index}"), op, inputs, &[]);
            builder.output(&value);
        }
        let graph = builder.finish().graph.unwrap();
        let ty = TensorType::new(ElementType::F32, vec![64.into(), 64.into()]);
        let made = graph.node.iter().flat_map(|node| node.output.clone());
        let types: Types = made.map(|name| (name, ty.clone())).collect();
        let plan = Plan::of(&graph, &types, "seed");
        let sorted = |values: &HashSet<&str>| {
            let mut values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            values.sort();
            values
        };
        (sorted(&plan.kept), sorted(&plan.again))
    }

    #[test]
    fn of_a_chain_one_value_is_kept_and_what_is_kept_anyway_is_used() {
        #[rustfmt::skip]
        #[allow(clippy::type_complexity, reason = "a table")]
        let cases: &[(&str, &[(&str, &[&str])], &[(&str, &[&str])], (&[&str], &[&str]))] = &[
            ("one reader: keep what it reads",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["seed", "v2"])],
             (&["v2"], &[])),
            ("two readers: make both of one",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["seed", "v2"]), ("Mul", &["seed", "v1"])],
             (&["v1"], &["v2"])),
            ("the product is read too",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["seed", "v2"]), ("Mul", &["seed", "v0"])],
             (&["v0"], &["v1", "v2"])),
            ("from an input nothing is kept",
             &[("Exp", &["x"]), ("Tanh", &["v0"])],
             &[("Mul", &["seed", "v1"]), ("Mul", &["seed", "v0"])],
             (&[], &["v0", "v1"])),
            ("products are kept",
             &[("MatMul", &["x", "x"]), ("MatMul", &["v0", "v0"])],
             &[("Mul", &["seed", "v0"]), ("Mul", &["seed", "v1"])],
             (&["v0", "v1"], &[])),
            ("what skips two products is kept",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("MatMul", &["v1", "x"]), ("MatMul", &["v2", "x"]),
               ("Add", &["v1", "v3"])],
             &[("Mul", &["seed", "v0"]), ("Mul", &["seed", "v1"])],
             (&["v0", "v1"], &[])),
        ];
        for (name, nodes, late, (kept, again)) in cases {
            let (found_kept, found_again) = planned(nodes, late);
            assert_eq!(found_kept, *kept, "{name}");
            assert_eq!(found_again, *again, "{name}");
        }
    }
}
