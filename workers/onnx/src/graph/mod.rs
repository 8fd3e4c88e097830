//! A graph that is indexed by its values: who makes a value, and who reads it.
//!
//! Nodes stand in topological order: [`parse`](crate::parse()) brings those of a file into it, and a new node
//! goes behind all others. A pass that rewrites a graph takes the nodes out ([`Graph::take_nodes`]) and puts
//! them back one by one, as they are or in another form; ids of values stay the same meanwhile.
//!
//! ```
//! use syncline_onnx::{Graph, mlp};
//!
//! let mut graph = Graph::from(mlp(&[3, 4, 2], 1).graph.unwrap_or_default());
//! let hidden = graph.value("relu1").unwrap();
//! let again = graph.op("Relu", &[graph.value("fc1").unwrap()], &[]);
//! assert_eq!(again, hidden, "equal nodes are one");
//! let lost = graph.op("Exp", &[hidden], &[]);
//! assert_eq!(graph.consumers(hidden).len(), 2);
//! assert!(graph.remove_dead().node.iter().all(|node| node.op_type != "Exp"), "no output needs it");
//! ```
//!
//! Every operation but [`Graph::rename`] (the readers of one value) and those on the whole graph takes
//! constant time.

mod captured;
mod dead;
mod edit;
mod topological;

use std::collections::HashMap;

pub use captured::captured;
pub use edit::rename_reads;
pub(crate) use topological::sort;

use crate::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};

/// A value of one graph: dense from 0, so that tables of values are lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(usize);

impl ValueId {
    /// An optional input or output that is left out; it has the empty name.
    pub const OMITTED: Self = Self(0);

    /// Its index in a list of [`Graph::value_count`] entries.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A node of one graph: its index in the topological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

impl NodeId {
    /// Its index in a list of all nodes.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A graph that grows. See the module's text.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Name, inputs, outputs and declared types; nodes and constants are beside it.
    interface: GraphProto,
    nodes: Vec<Node>,
    constants: Vec<TensorProto>,
    values: Vec<Value>,
    /// Every name that a value has, or had before it was renamed.
    names: HashMap<String, ValueId>,
    /// Encoded computation without its names -> the value that holds it already.
    computed: HashMap<Vec<u8>, ValueId>,
    /// Names that have been made up.
    made_up: usize,
}

/// A node with its edges. `proto` has the current names of the values.
#[derive(Debug, Clone)]
struct Node {
    proto: NodeProto,
    inputs: Vec<ValueId>,
    /// What its subgraphs read from outside, and perhaps more.
    captures: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

#[derive(Debug, Clone)]
struct Value {
    name: String,
    source: Source,
    consumers: Vec<NodeId>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// An input of the graph, an outer graph, or a node that is not here yet.
    Outside,
    /// Index of a constant.
    Constant(usize),
    Node(NodeId),
}

impl Graph {
    /// A graph without nodes, inputs and outputs.
    pub fn new(name: &str) -> Self {
        Self::from(GraphProto { name: name.to_owned(), ..GraphProto::default() })
    }

    /// The value of this name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// The value of this name, which may be made later, or outside of the graph.
    pub fn intern(&mut self, name: &str) -> ValueId {
        if let Some(value) = self.value(name) {
            return value;
        }
        let value = ValueId(self.values.len());
        self.values.push(Value { name: name.to_owned(), source: Source::Outside, consumers: Vec::new() });
        self.names.insert(name.to_owned(), value);
        value
    }

    /// The name that a value has now; empty for the omitted one.
    pub fn name(&self, value: ValueId) -> &str {
        &self.values[value.0].name
    }

    /// How many values there are, the omitted one among them.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// The node that makes a value; `None` for inputs and constants.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.values[value.0].source {
            Source::Node(node) => Some(node),
            Source::Outside | Source::Constant(_) => None,
        }
    }

    /// The nodes that read a value, in topological order; those whose subgraphs read it among them.
    pub fn consumers(&self, value: ValueId) -> &[NodeId] {
        &self.values[value.0].consumers
    }

    /// The tensor that a value always is, from an initializer or a `Constant` node.
    pub fn constant(&self, value: ValueId) -> Option<&TensorProto> {
        match self.values[value.0].source {
            Source::Outside => None,
            Source::Constant(index) => self.constants.get(index),
            Source::Node(node) => {
                let node = self.node(node);
                node.attribute("value").filter(|_| node.op_type == "Constant")?.t.as_ref()
            }
        }
    }

    /// A node as it stands, with the names that its values have now.
    pub fn node(&self, node: NodeId) -> &NodeProto {
        &self.nodes[node.0].proto
    }

    /// All nodes, in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &NodeProto)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index), &node.proto))
    }

    /// The inputs of a node, in their positions.
    pub fn inputs(&self, node: NodeId) -> &[ValueId] {
        &self.nodes[node.0].inputs
    }

    /// The outputs of a node, in their positions.
    pub fn outputs(&self, node: NodeId) -> &[ValueId] {
        &self.nodes[node.0].outputs
    }

    /// What the subgraphs of a node read from outside, and perhaps more.
    pub fn captures(&self, node: NodeId) -> &[ValueId] {
        &self.nodes[node.0].captures
    }

    /// Everything that a node reads, inside its subgraphs as well.
    pub fn reads(&self, node: NodeId) -> impl Iterator<Item = ValueId> {
        let node = &self.nodes[node.0];
        node.inputs.iter().chain(&node.captures).copied().filter(|value| *value != ValueId::OMITTED)
    }

    /// Whether nodes hold graphs of their own.
    pub fn has_subgraphs(&self) -> bool {
        let attributes = self.nodes.iter().flat_map(|node| &node.proto.attribute);
        attributes.into_iter().any(|attribute| attribute.g.is_some() || !attribute.graphs.is_empty())
    }

    /// The inputs of the graph, with their types.
    pub fn graph_inputs(&self) -> &[ValueInfoProto] {
        &self.interface.input
    }

    /// The outputs of the graph.
    pub fn graph_outputs(&self) -> impl Iterator<Item = ValueId> {
        self.interface.output.iter().filter_map(|output| self.value(&output.name))
    }
}

impl From<GraphProto> for Graph {
    /// Nodes are in topological order.
    fn from(mut interface: GraphProto) -> Self {
        let (nodes, constants) =
            (std::mem::take(&mut interface.node), std::mem::take(&mut interface.initializer));
        let mut graph = Self {
            interface,
            nodes: Vec::with_capacity(nodes.len()),
            constants: Vec::with_capacity(constants.len()),
            values: Vec::new(),
            names: HashMap::new(),
            computed: HashMap::new(),
            made_up: 0,
        };
        graph.intern("");
        for index in 0..graph.interface.input.len() {
            let name = graph.interface.input[index].name.clone();
            graph.intern(&name);
        }
        constants.into_iter().for_each(|tensor| {
            graph.push_constant(tensor);
        });
        nodes.into_iter().for_each(|node| {
            graph.push(node);
        });
        graph
    }
}

impl From<Graph> for GraphProto {
    fn from(graph: Graph) -> Self {
        let nodes = graph.nodes.into_iter().map(|node| node.proto);
        Self { node: nodes.collect(), initializer: graph.constants, ..graph.interface }
    }
}
