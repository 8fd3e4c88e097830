//! How a graph grows.

use prost::Message;

use super::{Graph, Node, NodeId, Source, ValueId, captured};
use crate::attributes::attr_ints;
use crate::proto::{
    AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};

/// What made-up names begin with.
const PREFIX: &str = "syncline/";

impl Graph {
    /// Declares an input.
    pub fn push_input(&mut self, input: ValueInfoProto) -> ValueId {
        let value = self.intern(&input.name);
        self.interface.input.push(input);
        value
    }

    /// Declares an output.
    pub fn push_output(&mut self, output: ValueInfoProto) {
        self.interface.output.push(output);
    }

    /// Declares the type of a value inside.
    pub fn push_value_info(&mut self, info: ValueInfoProto) {
        self.interface.value_info.push(info);
    }

    /// Adds a constant under its own name.
    pub fn push_constant(&mut self, tensor: TensorProto) -> ValueId {
        let value = self.intern(&tensor.name);
        self.values[value.0].source = Source::Constant(self.constants.len());
        self.constants.push(tensor);
        value
    }

    /// Adds a node behind all others, as it is. A later [`op`](Self::op) that equals it gives its value.
    pub fn push(&mut self, proto: NodeProto) -> NodeId {
        let id = NodeId(self.nodes.len());
        let inputs: Vec<ValueId> = proto.input.iter().map(|name| self.intern(name)).collect();
        let outputs: Vec<ValueId> = proto.output.iter().map(|name| self.intern(name)).collect();
        let captures: Vec<ValueId> = captured(&proto).into_iter().map(|name| self.intern(name)).collect();
        for value in inputs.iter().chain(&captures).filter(|value| **value != ValueId::OMITTED) {
            let consumers = &mut self.values[value.0].consumers;
            if consumers.last() != Some(&id) {
                consumers.push(id);
            }
        }
        for output in outputs.iter().filter(|output| **output != ValueId::OMITTED) {
            self.values[output.0].source = Source::Node(id);
        }
        if let [output] = outputs.as_slice() {
            let key = key_of_node(&proto, &inputs);
            self.computed.entry(key).or_insert(*output);
        }
        self.nodes.push(Node { proto, inputs, captures, outputs });
        id
    }

    /// Applies an operator of the standard with one output; the value that holds the same already, if there
    /// is one.
    pub fn op(&mut self, op: &str, inputs: &[ValueId], attributes: &[AttributeProto]) -> ValueId {
        self.op_of("", op, inputs, attributes)
    }

    /// The same with an operator of another domain.
    pub fn op_of(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[ValueId],
        attributes: &[AttributeProto],
    ) -> ValueId {
        let node = self.unnamed(domain, op, inputs, attributes);
        if let Some(value) = self.computed.get(&key_of_node(&node, inputs)) {
            return *value;
        }
        let value = self.fresh(op);
        let name = self.name(value).to_owned();
        self.push(NodeProto { name: name.clone(), output: vec![name], ..node });
        value
    }

    fn unnamed(
        &self,
        domain: &str,
        op: &str,
        inputs: &[ValueId],
        attributes: &[AttributeProto],
    ) -> NodeProto {
        let names: Vec<&str> = inputs.iter().map(|input| self.name(*input)).collect();
        NodeProto { domain: domain.to_owned(), ..NodeProto::unnamed(op, &names, attributes) }
    }

    /// Applies an operator whose result is `output`, a value that is not made yet.
    pub fn op_as(
        &mut self,
        output: ValueId,
        domain: &str,
        op: &str,
        inputs: &[ValueId],
        attributes: &[AttributeProto],
    ) -> NodeId {
        let node = self.unnamed(domain, op, inputs, attributes);
        let name = self.name(output).to_owned();
        self.push(NodeProto { name: name.clone(), output: vec![name], ..node })
    }

    /// Applies `Reshape` to a constant shape.
    pub fn reshape(&mut self, value: ValueId, shape: &[i64]) -> ValueId {
        let shape = self.ints(shape);
        self.op("Reshape", &[value, shape], &[])
    }

    /// Applies `Transpose`.
    pub fn transpose(&mut self, value: ValueId, perm: &[i64]) -> ValueId {
        self.op("Transpose", &[value], &[attr_ints("perm", perm)])
    }

    /// A constant under a name of its own; equal ones that were added so are one.
    pub fn add_constant(&mut self, mut tensor: TensorProto) -> ValueId {
        tensor.name.clear();
        let key = [b"constant".as_slice(), &tensor.encode_to_vec()].concat();
        if let Some(value) = self.computed.get(&key) {
            return *value;
        }
        let value = self.fresh("const");
        self.name(value).clone_into(&mut tensor.name);
        self.push_constant(tensor);
        self.computed.insert(key, value);
        value
    }

    /// A constant list of integers.
    pub fn ints(&mut self, values: &[i64]) -> ValueId {
        self.add_constant(TensorProto::from_i64("", &[values.len()], values))
    }

    /// A value with a name that no other has; `stem` is part of it.
    pub fn fresh(&mut self, stem: &str) -> ValueId {
        loop {
            self.made_up += 1;
            let name = format!("{PREFIX}{}_{}", stem.to_lowercase(), self.made_up);
            if !self.names.contains_key(&name) {
                return self.intern(&name);
            }
        }
    }

    /// Lets a node return its optional output `index` as well, if it does not yet.
    pub fn optional_output(&mut self, node: NodeId, index: usize) -> ValueId {
        if let Some(output) = self.outputs(node).get(index).filter(|output| **output != ValueId::OMITTED) {
            return *output;
        }
        let value = self.fresh("extra");
        let name = self.name(value).to_owned();
        self.values[value.0].source = Source::Node(node);
        let Node { proto, outputs, .. } = &mut self.nodes[node.0];
        if outputs.len() <= index {
            proto.output.resize(index + 1, String::new());
            outputs.resize(index + 1, ValueId::OMITTED);
        }
        proto.output[index] = name;
        outputs[index] = value;
        value
    }

    /// Gives a value another name, which nothing else has; a node that was called like it as well. It keeps
    /// its old name for [`value`](Self::value). Takes time in proportion to its readers.
    pub fn rename(&mut self, value: ValueId, name: &str) {
        let old = std::mem::replace(&mut self.values[value.0].name, name.to_owned());
        self.names.insert(name.to_owned(), value);
        match self.values[value.0].source {
            Source::Outside => {}
            Source::Constant(index) => name.clone_into(&mut self.constants[index].name),
            Source::Node(node) => {
                let proto = &mut self.nodes[node.0].proto;
                replace(&mut proto.output, &old, name);
                if proto.name == old {
                    name.clone_into(&mut proto.name);
                }
            }
        }
        for consumer in &self.values[value.0].consumers {
            rename_reads(&mut self.nodes[consumer.0].proto, &old, name);
        }
    }

    /// Annotates a node for other programs: replaces its metadata.
    pub fn annotate(&mut self, node: NodeId, metadata: Vec<StringStringEntryProto>) {
        self.nodes[node.0].proto.metadata_props = metadata;
    }

    /// Takes all nodes out, in topological order. Names and ids of values stay.
    pub fn take_nodes(&mut self) -> Vec<NodeProto> {
        self.computed.clear();
        for value in &mut self.values {
            value.consumers.clear();
            if let Source::Node(_) = value.source {
                value.source = Source::Outside;
            }
        }
        std::mem::take(&mut self.nodes).into_iter().map(|node| node.proto).collect()
    }
}

/// Equal for equal computations: the node without its names, and the ids of what it reads.
fn key_of_node(node: &NodeProto, inputs: &[ValueId]) -> Vec<u8> {
    let mut attribute = node.attribute.clone();
    attribute.sort_by(|a, b| a.name.cmp(&b.name));
    let bare = NodeProto {
        op_type: node.op_type.clone(),
        domain: node.domain.clone(),
        overload: node.overload.clone(),
        attribute,
        ..NodeProto::default()
    };
    let mut key = bare.encode_length_delimited_to_vec();
    key.extend(inputs.iter().flat_map(|input| input.0.to_le_bytes()));
    key
}

fn replace(names: &mut [String], old: &str, name: &str) {
    names.iter_mut().filter(|other| *other == old).for_each(|other| name.clone_into(other));
}

/// Lets a node, and what its subgraphs capture, read another value.
pub fn rename_reads(node: &mut NodeProto, old: &str, name: &str) {
    replace(&mut node.input, old, name);
    node.subgraphs_mut().for_each(|graph| rename_captured(graph, old, name));
}

/// Names of a subgraph are not those of the graph around it.
fn rename_captured(graph: &mut GraphProto, old: &str, name: &str) {
    graph.node.iter_mut().for_each(|node| rename_reads(node, old, name));
    graph
        .output
        .iter_mut()
        .filter(|output| output.name == old)
        .for_each(|output| name.clone_into(&mut output.name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlp;

    fn graph() -> Graph {
        Graph::from(mlp(&[3, 4, 2], 1).graph.unwrap())
    }

    #[test]
    fn equal_nodes_and_constants_are_one() {
        let mut graph = graph();
        let x = graph.value("x").unwrap();
        let (one, two) = (graph.ints(&[2, 3]), graph.ints(&[2, 3]));
        assert_eq!(one, two);
        assert_ne!(graph.ints(&[3, 2]), one);
        let sum = graph.op("Add", &[x, one], &[]);
        assert_eq!(graph.op("Add", &[x, two], &[]), sum);
        assert_ne!(graph.op("Add", &[one, x], &[]), sum, "inputs have places");
        assert_ne!(graph.op_of("other", "Add", &[x, one], &[]), sum, "another domain");
        let hidden = graph.value("fc1").unwrap();
        assert_eq!(graph.op("Relu", &[hidden], &[]), graph.value("relu1").unwrap());
    }

    #[test]
    fn the_index_knows_producers_and_consumers() {
        let mut graph = graph();
        let [x, hidden] = ["x", "relu1"].map(|name| graph.value(name).unwrap());
        assert_eq!(graph.producer(x), None);
        assert_eq!(graph.node(graph.producer(hidden).unwrap()).op_type, "Relu");
        graph.op("Mul", &[hidden, hidden], &[]);
        let readers: Vec<&str> =
            graph.consumers(hidden).iter().map(|node| graph.node(*node).op_type.as_str()).collect();
        assert_eq!(readers, ["Gemm", "Mul"]);
        let nodes = graph.take_nodes();
        assert_eq!((nodes.len(), graph.producer(hidden)), (4, None));
        nodes.into_iter().for_each(|node| {
            graph.push(node);
        });
        assert_eq!(graph.consumers(hidden).len(), 2);
    }

    #[test]
    fn a_renamed_value_is_known_by_both_names_and_read_by_the_new_one() {
        let mut graph = graph();
        let hidden = graph.value("relu1").unwrap();
        let made = graph.op("Neg", &[hidden], &[]);
        let (old, last) = (graph.name(made).to_owned(), graph.op("Exp", &[made], &[]));
        graph.rename(made, "out");
        assert_eq!([old.as_str(), "out"].map(|name| graph.value(name)), [Some(made); 2]);
        assert_eq!(graph.op("Neg", &[hidden], &[]), made);
        assert_eq!(graph.op("Exp", &[made], &[]), last);
        let maker = graph.node(graph.producer(made).unwrap());
        assert_eq!((maker.name.as_str(), maker.output[0].as_str()), ("out", "out"));
        assert_eq!(graph.node(graph.producer(last).unwrap()).input, ["out"]);
    }

    #[test]
    fn subgraphs_read_what_they_capture() {
        let mut graph = graph();
        let hidden = graph.value("relu1").unwrap();
        let inner = GraphProto {
            node: vec![NodeProto::named("inner", "Neg", &["relu1"], &[])],
            ..GraphProto::default()
        };
        let branch =
            AttributeProto { name: "then_branch".into(), g: Some(inner), ..AttributeProto::default() };
        let node = graph.push(NodeProto::named("branch", "If", &["x"], &[branch]));
        assert!(graph.consumers(hidden).contains(&node));
        graph.rename(hidden, "new");
        assert_eq!(captured(graph.node(node)), ["new"]);
        let output = graph.value("branch").unwrap();
        assert!(graph.reads(graph.producer(output).unwrap()).any(|value| value == hidden));
    }

    #[test]
    fn a_made_up_name_is_nobody_elses() {
        let mut graph = graph();
        graph.intern("syncline/relu_1");
        let value = graph.fresh("Relu");
        assert_eq!(graph.name(value), "syncline/relu_2");
    }
}
