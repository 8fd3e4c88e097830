//! Where a rearranged graph is written. Equal nodes are made once, and what no output needs is left out.

use std::collections::{HashMap, HashSet};

use prost::Message;

use syncline_onnx::attr_ints;
use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto};

pub(super) struct Writer {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// Encoded node or constant without its name -> the value that holds it.
    made: HashMap<Vec<u8>, String>,
    taken: HashSet<String>,
}

impl Writer {
    pub(super) fn new(graph: &GraphProto) -> Self {
        let inputs = graph.input.iter().map(|input| &input.name);
        let constants = graph.initializer.iter().map(|tensor| &tensor.name);
        let made = graph.node.iter().flat_map(|node| &node.output);
        Self {
            nodes: Vec::with_capacity(graph.node.len()),
            constants: graph.initializer.clone(),
            made: HashMap::new(),
            taken: inputs.chain(constants).chain(made).cloned().collect(),
        }
    }

    /// Whether nodes hold graphs of their own: what those read is not known here, so that such a graph has to stay.
    pub(super) fn is_nested(graph: &GraphProto) -> bool {
        graph.node.iter().flat_map(|node| &node.attribute).any(|a| a.g.is_some() || !a.graphs.is_empty())
    }

    /// Whether the graph has a value of this name.
    pub(super) fn has(&self, value: &str) -> bool {
        self.taken.contains(value)
    }

    /// Takes over a node as it is.
    pub(super) fn keep(&mut self, node: NodeProto) {
        self.nodes.push(node);
    }

    /// Applies an operator of the standard.
    pub(super) fn op(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        self.write("", op, inputs, attributes)
    }

    /// Applies an operator of another domain.
    pub(super) fn foreign(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
    ) -> String {
        self.write(domain, op, inputs, attributes)
    }

    pub(super) fn reshaped(&mut self, value: &str, shape: &[i64]) -> String {
        let shape = self.ints(shape);
        self.op("Reshape", &[value, &shape], &[])
    }

    pub(super) fn transposed(&mut self, value: &str, order: &[i64]) -> String {
        self.op("Transpose", &[value], &[attr_ints("perm", order)])
    }

    /// Gives the result of a node the name that the rest of the graph knows.
    pub(super) fn finish_with(&mut self, node: NodeProto, output: &str) {
        self.nodes.push(NodeProto { name: output.to_owned(), output: vec![output.to_owned()], ..node });
    }

    /// A constant list of integers.
    pub(super) fn ints(&mut self, values: &[i64]) -> String {
        let tensor = TensorProto::from_i64("", &[values.len()], values);
        let key = tensor.encode_to_vec();
        if let Some(value) = self.made.get(&key) {
            return value.clone();
        }
        let name = self.fresh(key);
        self.constants.push(TensorProto { name: name.clone(), ..tensor });
        name
    }

    /// Nodes and constants that the outputs need.
    pub(super) fn finish(self, outputs: &[ValueInfoProto]) -> (Vec<NodeProto>, Vec<TensorProto>) {
        let mut needed: HashSet<String> = outputs.iter().map(|output| output.name.clone()).collect();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.into_iter().rev() {
            if node.output.iter().any(|output| needed.contains(output)) {
                needed.extend(node.input.iter().cloned());
                nodes.push(node);
            }
        }
        nodes.reverse();
        let constants = self.constants.into_iter().filter(|tensor| needed.contains(&tensor.name));
        (nodes, constants.collect())
    }

    fn write(&mut self, domain: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let node = bare(domain, op, inputs, attributes);
        let key = node.encode_to_vec();
        if let Some(value) = self.made.get(&key) {
            return value.clone();
        }
        let name = self.fresh(key);
        self.finish_with(node, &name);
        name
    }

    fn fresh(&mut self, key: Vec<u8>) -> String {
        let mut number = self.made.len();
        let mut name = format!("syncline/rewritten_{number}");
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("syncline/rewritten_{number}");
        }
        self.made.insert(key, name.clone());
        name
    }
}

/// A node without names.
pub(super) fn bare(domain: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> NodeProto {
    NodeProto { domain: domain.to_owned(), ..NodeProto::unnamed(op, inputs, attributes) }
}
