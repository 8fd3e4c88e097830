//! Which values a training graph keeps from its forward pass for the backward one, and which it makes again.
//!
//! In: a training graph, the types of its values with all axes fixed, the gradient that the backward pass
//! begins with. Out: the nodes of the backward pass (they depend on that gradient), and the values that those
//! read and that are made again from what is kept, by operators that cost little beside products and
//! convolutions.
//!
//! What is kept is the cheapest cut between everything that is dear to make and everything that late nodes
//! read, where a value costs its bytes. Values of residual connections, which the forward pass itself reads
//! much later, are always kept: to make one again would take the block before it again, and the one before
//! that. So is where a value equals what was chosen from it: ONNX Runtime may have fused nodes on the way to
//! the choice, or left out a cast. Made again the value would be rounded otherwise, and equal nothing.
//! Source: He and Yu, Transcending runtime-memory tradeoffs in checkpointing by being fusion aware, MLSys
//! 2023; the first to trade time for memory so: Chen et al., Training deep nets with sublinear memory cost,
//! arXiv:1604.06174.

use std::collections::{BTreeSet, HashMap, HashSet};

use syncline_onnx::proto::NodeProto;
use syncline_onnx::{Graph, NodeId, Types, ValueId};

use super::min_cut::{Network, UNCUT};
use crate::estimate::bytes;

/// Values up to this size are always kept: statistics of a batch, shapes, masks of a length.
const SMALL_BYTES: u64 = 4096;
/// A value that is read behind this many products after it was made belongs to a residual connection.
const FAR: usize = 2;

/// What costs little: one or a few operations an element, or none. Not `Equal`: what is rounded otherwise equals nothing,
/// while an order of the two, asked of two copies, always has a largest one.
#[rustfmt::skip]
const CHEAP: &[&str] = &[
    "Abs", "Add", "And", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Concat", "ConstantOfShape",
    "Cos", "DepthToSpace", "Div", "Dropout", "Elu", "Erf", "Exp", "Expand", "Flatten", "Floor",
    "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Max", "Min", "Mish", "Mul", "Neg", "Not", "Or",
    "PRelu", "Pad", "Pow", "RMSNormalization", "Reciprocal", "Relu", "Reshape", "Round", "Selu", "Sigmoid",
    "Sign", "Sin", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze",
    "Sub", "Sum", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
];

/// Products, by which the length of a way through the forward pass is counted.
const PRODUCTS: &[&str] =
    &["Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"];

/// What to do with each value and node.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For each node whether it belongs to the forward pass.
    pub(crate) forward: Vec<bool>,
    /// For each node whether it belongs to the backward pass.
    pub(crate) backward: Vec<bool>,
    /// Values to make again where a node of the backward pass needs them.
    pub(crate) recomputed: HashSet<ValueId>,
    /// Values that are kept, and worth being read late only.
    pub(crate) kept: HashSet<ValueId>,
    /// Values of the forward pass that are to go when it is done -> nodes that ask for their shape, perhaps
    /// later.
    pub(crate) measured: HashMap<ValueId, Vec<NodeId>>,
}

impl Plan {
    /// `cotangent`: the gradient that the backward pass begins with.
    pub(crate) fn of(graph: &Graph, types: &Types, cotangent: ValueId) -> Self {
        let backward = dependents(graph, cotangent);
        let forward = graph.producer(cotangent);
        let forward = forward.map_or_else(|| vec![false; backward.len()], |node| ancestors(graph, node));
        let outputs: HashSet<ValueId> = graph.graph_outputs().collect();
        let is_worth = |value: ValueId| {
            let name = graph.name(value);
            let is_small = types.contains_key(name) && bytes(types, name) <= SMALL_BYTES;
            graph.producer(value).is_some() && !is_small
        };
        let is_backward = |value: ValueId| {
            value == cotangent || graph.producer(value).is_some_and(|node| backward[node.index()])
        };
        let nodes = graph.nodes().filter(|(node, _)| backward[node.index()]);
        let needed = nodes.flat_map(|(node, _)| graph.reads(node));
        let needed = needed.filter(|value| !is_backward(*value) && is_worth(*value)).collect();
        let far = far(graph, &forward);
        let (recomputed, kept) = cut(graph, types, &needed, &outputs, &far, is_worth);
        let goes = |value: ValueId| {
            let made = graph.producer(value).is_some_and(|node| forward[node.index()]);
            made && is_worth(value) && !kept.contains(&value) && !outputs.contains(&value)
        };
        let measured = measured(graph, goes);
        Self { forward, backward, recomputed, kept, measured }
    }
}

/// Of the forward values that lead to the `needed` ones, those to make again and those to keep: the cheapest
/// cut.
fn cut(
    graph: &Graph,
    types: &Types,
    needed: &BTreeSet<ValueId>,
    outputs: &HashSet<ValueId>,
    far: &HashSet<ValueId>,
    is_worth: impl Fn(ValueId) -> bool,
) -> (HashSet<ValueId>, HashSet<ValueId>) {
    let mut network = Network::new();
    let mut vertices: HashMap<ValueId, (usize, usize)> = HashMap::new();
    let repeatable = |value: ValueId| {
        let node = graph.producer(value)?;
        let known = types.contains_key(graph.name(value));
        (is_cheap(graph.node(node)) && known && !far.contains(&value)).then(|| graph.inputs(node))
    };
    let mut open: Vec<ValueId> = needed.iter().copied().collect();
    while let Some(value) = open.pop() {
        if vertices.contains_key(&value) {
            continue;
        }
        let (entry, exit) = (network.vertex(), network.vertex());
        vertices.insert(value, (entry, exit));
        // An output is there anyway.
        let price = if outputs.contains(&value) { 0 } else { bytes(types, graph.name(value)).max(1) };
        network.edge(entry, exit, price);
        if needed.contains(&value) {
            network.edge(exit, Network::SINK, UNCUT);
        }
        match repeatable(value) {
            Some(inputs) => open.extend(inputs.iter().filter(|input| is_worth(**input))),
            None => network.edge(Network::SOURCE, entry, UNCUT),
        }
    }
    for (&value, &(entry, _)) in &vertices {
        let inputs = repeatable(value).into_iter().flatten();
        let inputs = inputs.filter_map(|input| vertices.get(input));
        inputs.for_each(|&(_, exit)| network.edge(exit, entry, UNCUT));
    }
    let sink_side = network.sink_side();
    let on = |vertex: usize| sink_side[vertex];
    let recomputed = vertices.iter().filter(|(_, at)| on(at.0)).map(|(value, _)| *value);
    let kept = vertices.iter().filter(|(_, at)| !on(at.0) && on(at.1)).map(|(value, _)| *value);
    (recomputed.collect(), kept.collect())
}

/// Values that go, with the nodes that ask for their shape.
fn measured(graph: &Graph, goes: impl Fn(ValueId) -> bool) -> HashMap<ValueId, Vec<NodeId>> {
    let mut measured: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
    let measures = |node: &NodeProto| matches!(node.op_type.as_str(), "Shape" | "Size");
    for (id, _) in graph.nodes().filter(|(_, node)| measures(node)) {
        if let Some(&value) = graph.inputs(id).first().filter(|value| goes(**value)) {
            measured.entry(value).or_default().push(id);
        }
    }
    measured
}

/// For each node whether it depends on a value.
fn dependents(graph: &Graph, value: ValueId) -> Vec<bool> {
    let mut depends = vec![false; graph.value_count()];
    depends[value.index()] = true;
    let mut found = Vec::with_capacity(graph.nodes().len());
    for (node, _) in graph.nodes() {
        let reads = graph.reads(node).any(|value| depends[value.index()]);
        if reads {
            graph.outputs(node).iter().for_each(|output| depends[output.index()] = true);
        }
        found.push(reads);
    }
    found
}

/// For each node whether the node `last` depends on it, itself included.
pub(crate) fn ancestors(graph: &Graph, last: NodeId) -> Vec<bool> {
    let mut found = vec![false; graph.nodes().len()];
    found[last.index()] = true;
    for (node, _) in graph.nodes().rev() {
        if found[node.index()] {
            let makers = graph.reads(node).filter_map(|value| graph.producer(value));
            makers.for_each(|maker| found[maker.index()] = true);
        }
    }
    found
}

/// Values that the forward pass reads much later than it makes them.
fn far(graph: &Graph, forward: &[bool]) -> HashSet<ValueId> {
    let (mut products, mut far) = (0, HashSet::new());
    // Products so far, when each node has run.
    let mut behind = Vec::with_capacity(forward.len());
    for (id, node) in graph.nodes() {
        if forward[id.index()] {
            let made = |input: &ValueId| graph.producer(*input).map(|maker: NodeId| behind[maker.index()]);
            let late = |input: &&ValueId| made(input).is_some_and(|made: usize| products >= made + FAR);
            far.extend(graph.inputs(id).iter().filter(late));
            products += usize::from(PRODUCTS.contains(&node.op_type.as_str()));
        }
        behind.push(products);
    }
    far
}

/// Whether a second run of the node costs little and gives the same.
fn is_cheap(node: &NodeProto) -> bool {
    let standard = node.domain.is_empty();
    // A seed makes two Dropout nodes draw the same numbers, run for run.
    let repeats = node.op_type != "Dropout" || node.attribute("seed").is_some();
    standard && repeats && CHEAP.contains(&node.op_type.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder, TensorType};

    /// Forward values of a graph with these nodes (operator, inputs; node `n` makes `vn`), and late ones
    /// behind `cotangent`.
    fn planned(nodes: &[(&str, &[&str])], late: &[(&str, &[&str])]) -> (Vec<String>, Vec<String>) {
        let mut builder = GraphBuilder::new("plan");
        builder.input("x", ElementType::F32, &[64.into(), 64.into()]);
        for (index, (op, inputs)) in nodes.iter().enumerate() {
            builder.named(&format!("v{index}"), op, inputs, &[]);
        }
        let last = format!("v{}", nodes.len() - 1);
        builder.named("cotangent", "Loss", &[&last], &[]);
        for (index, (op, inputs)) in late.iter().enumerate() {
            let value = builder.named(&format!("d{index}"), op, inputs, &[]);
            builder.output(&value);
        }
        let graph = Graph::from(builder.finish().graph.unwrap());
        let ty = TensorType::new(ElementType::F32, vec![64.into(), 64.into()]);
        let made = graph.nodes().flat_map(|(_, node)| node.output.clone());
        let types: Types = made.map(|name| (name, ty.clone())).collect();
        let plan = Plan::of(&graph, &types, graph.value("cotangent").unwrap());
        let sorted = |values: &HashSet<ValueId>| {
            let mut values: Vec<String> = values.iter().map(|&value| graph.name(value).to_owned()).collect();
            values.sort();
            values
        };
        (sorted(&plan.kept), sorted(&plan.recomputed))
    }

    #[test]
    fn of_a_chain_one_value_is_kept_and_what_is_kept_anyway_is_used() {
        #[rustfmt::skip]
        let cases: &[(&str, &[(&str, &[&str])], &[(&str, &[&str])], (&[&str], &[&str]))] = &[
            ("one reader: keep what it reads",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["cotangent", "v2"])],
             (&["v2"], &[])),
            ("two readers: make both of one",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["cotangent", "v2"]), ("Mul", &["cotangent", "v1"])],
             (&["v1"], &["v2"])),
            ("the product is read too",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("Tanh", &["v1"])],
             &[("Mul", &["cotangent", "v2"]), ("Mul", &["cotangent", "v0"])],
             (&["v0"], &["v1", "v2"])),
            ("from an input nothing is kept",
             &[("Exp", &["x"]), ("Tanh", &["v0"])],
             &[("Mul", &["cotangent", "v1"]), ("Mul", &["cotangent", "v0"])],
             (&[], &["v0", "v1"])),
            ("products are kept",
             &[("MatMul", &["x", "x"]), ("MatMul", &["v0", "v0"])],
             &[("Mul", &["cotangent", "v0"]), ("Mul", &["cotangent", "v1"])],
             (&["v0", "v1"], &[])),
            ("where a value equals the largest is kept",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("ReduceMax", &["v1"]), ("Equal", &["v1", "v2"])],
             &[("Where", &["v3", "cotangent", "x"]), ("Mul", &["cotangent", "v0"]), ("Mul", &["cotangent", "v1"])],
             (&["v0", "v3"], &["v1"])),
            ("what skips two products is kept",
             &[("MatMul", &["x", "x"]), ("Exp", &["v0"]), ("MatMul", &["v1", "x"]), ("MatMul", &["v2", "x"]),
               ("Add", &["v1", "v3"])],
             &[("Mul", &["cotangent", "v0"]), ("Mul", &["cotangent", "v1"])],
             (&["v0", "v1"], &[])),
        ];
        for (name, nodes, late, (kept, again)) in cases {
            let (found_kept, found_again) = planned(nodes, late);
            assert_eq!(found_kept, *kept, "{name}");
            assert_eq!(found_again, *again, "{name}");
        }
    }
}
