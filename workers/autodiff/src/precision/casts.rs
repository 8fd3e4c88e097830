//! Casts between the nodes that compute in 16 bits and those that compute in 32.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{ElementType, Graph, Types, ValueId, attr_int};

use super::autocast::{element, operands};

/// The graph with the nodes of which `low` says so in 16 bits.
pub(super) fn with_casts(graph: GraphProto, types: &Types, low: &[bool]) -> GraphProto {
    let mut graph = Graph::from(graph);
    let captured = graph.nodes().flat_map(|(node, _)| graph.captures(node));
    let fixed = graph.graph_outputs().chain(captured.copied()).collect();
    let nodes = graph.take_nodes();
    let mut writer = Writer { types, fixed, graph, halves: HashMap::new() };
    for (node, &low) in nodes.into_iter().zip(low) {
        if low { writer.low(node) } else { writer.full(node) }
    }
    writer.graph.into()
}

struct Writer<'t> {
    types: &'t Types,
    /// Values that must keep their name and type: outputs, and what subgraphs read.
    fixed: HashSet<ValueId>,
    graph: Graph,
    /// Value that was made in 16 bits -> where it is in 16 bits: itself, unless it is fixed.
    halves: HashMap<ValueId, ValueId>,
}

impl Writer<'_> {
    fn low(&mut self, mut node: NodeProto) {
        let operands: HashSet<String> = operands(&node, self.types).cloned().collect();
        for input in node.input.iter_mut().filter(|input| operands.contains(*input)) {
            let value = self.graph.intern(input);
            let half = self.halves.get(&value).copied();
            let half = half.unwrap_or_else(|| self.cast(value, ElementType::F16));
            self.graph.name(half).clone_into(input);
        }
        let mut published = Vec::new();
        let types = self.types;
        let is_float = |output: &&mut String| element(types, Some(output)) == Some(ElementType::F32);
        for output in node.output.iter_mut().filter(is_float) {
            let value = self.graph.intern(output);
            let mut half = value;
            if self.fixed.contains(&value) {
                half = self.graph.fresh("low");
                let inner = self.graph.name(half).to_owned();
                // The cast takes the name over.
                node.name.clone_from(&inner);
                published.push(cast(&inner, ElementType::F32, output));
                *output = inner;
            }
            self.halves.insert(value, half);
        }
        self.graph.push(node);
        for cast in published {
            self.graph.push(cast);
        }
    }

    fn full(&mut self, mut node: NodeProto) {
        for input in &mut node.input {
            let value = self.graph.intern(input);
            if self.halves.get(&value) == Some(&value) {
                let full = self.cast(value, ElementType::F32);
                self.graph.name(full).clone_into(input);
            }
        }
        self.graph.push(node);
    }

    fn cast(&mut self, value: ValueId, to: ElementType) -> ValueId {
        self.graph.op("Cast", &[value], &[attr_int("to", i64::from(to.code()))])
    }
}

fn cast(value: &str, to: ElementType, output: &str) -> NodeProto {
    NodeProto::named(output, "Cast", &[value], &[attr_int("to", i64::from(to.code()))])
}
