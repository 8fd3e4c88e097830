//! Where rules write a training graph: a [`Graph`] in the words of rules.
//!
//! Rules know values by their names, as nodes and types do. Equal nodes are one and constants are shared;
//! what no output needs is left out when the graph is finished. So a rule may ask for whatever reads best in
//! its file.

mod finish;

use std::collections::HashSet;

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto};
use syncline_onnx::{ElementType, Graph, ValueId, attr_int};

/// A graph that grows.
#[derive(Debug, Clone)]
pub(crate) struct Emitter {
    graph: Graph,
    /// How many nodes were there from the start.
    given: usize,
    /// Values that have the name of an output.
    published: HashSet<ValueId>,
}

impl Emitter {
    /// Starts from the forward graph. Its nodes are kept as they are, and offered for reuse.
    pub(crate) fn new(forward: &GraphProto) -> Self {
        let mut graph = Graph::from(GraphProto {
            name: "syncline".to_owned(),
            node: forward.node.clone(),
            initializer: forward.initializer.clone(),
            ..GraphProto::default()
        });
        for input in &forward.input {
            graph.intern(&input.name);
        }
        Self { given: forward.node.len(), graph, published: HashSet::new() }
    }

    /// Starts a graph with the inputs and constants of another, and returns its nodes, which are to come one
    /// by one, as they are or written otherwise.
    pub(crate) fn rewriting(graph: GraphProto) -> (Self, Vec<NodeProto>) {
        let mut graph = Graph::from(graph);
        let nodes = graph.take_nodes();
        (Self { graph, given: 0, published: HashSet::new() }, nodes)
    }

    /// The graph with some nodes written out: `written_out` writes everything but the last node of one, which
    /// it returns, or `None` for a node that stays.
    pub(crate) fn write_out(
        graph: GraphProto,
        written_out: impl Fn(&mut Self, &NodeProto) -> Option<NodeProto>,
    ) -> GraphProto {
        let (mut emitter, nodes) = Self::rewriting(graph);
        for node in nodes {
            let last = written_out(&mut emitter, &node);
            emitter.push_node(last.unwrap_or(node));
        }
        emitter.rewritten()
    }

    /// The graph that was rewritten, with everything written so far in the place of its nodes and constants.
    pub(crate) fn rewritten(self) -> GraphProto {
        self.graph.into()
    }

    /// Takes over a node as it is, behind those that are here. Its outputs are those of a node of the graph
    /// that is rewritten.
    pub(crate) fn push_node(&mut self, node: NodeProto) {
        self.graph.push(node);
    }

    /// Applies an operator with one output and returns its value.
    pub(crate) fn op(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let inputs: Vec<ValueId> = inputs.iter().map(|input| self.graph.intern(input)).collect();
        let value = self.graph.op(op, &inputs, attributes);
        self.graph.name(value).to_owned()
    }

    /// Applies an operator with several outputs and returns their values. Equal nodes stay apart.
    pub(crate) fn op_with_outputs(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
        outputs: usize,
    ) -> Vec<String> {
        let fresh = |_| {
            let value = self.graph.fresh(op);
            self.graph.name(value).to_owned()
        };
        let output: Vec<String> = (0..outputs).map(fresh).collect();
        let name = output.first().cloned().unwrap_or_default();
        let node = NodeProto::unnamed(op, inputs, attributes);
        self.graph.push(NodeProto { name, output: output.clone(), ..node });
        output
    }

    /// A constant list of integers: axes, a shape.
    pub(crate) fn ints(&mut self, values: &[i64]) -> String {
        self.constant(TensorProto::from_i64("", &[values.len()], values))
    }

    /// A constant integer without axes.
    pub(crate) fn int(&mut self, value: i64) -> String {
        self.constant(TensorProto::from_i64("", &[], &[value]))
    }

    /// A constant number of a float type, without axes. Half types are made by a cast, which is folded when
    /// loaded.
    pub(crate) fn float(&mut self, element: ElementType, value: f64) -> String {
        match element {
            ElementType::F64 => self.constant(TensorProto::from_f64("", &[], &[value])),
            _ => {
                let number = self.constant(TensorProto::from_f32("", &[], &[value as f32]));
                if element == ElementType::F32 { number } else { self.cast(&number, element) }
            }
        }
    }

    /// The value with another element type.
    pub(crate) fn cast(&mut self, value: &str, to: ElementType) -> String {
        self.op("Cast", &[value], &[attr_int("to", i64::from(to.code()))])
    }

    /// A constant tensor; equal constants are shared.
    pub(crate) fn constant(&mut self, tensor: TensorProto) -> String {
        let value = self.graph.add_constant(tensor);
        self.graph.name(value).to_owned()
    }

    /// The default of an input of the same name.
    pub(crate) fn default_value(&mut self, tensor: TensorProto) {
        self.graph.push_constant(tensor);
    }

    /// Lets the node that makes `value` return its output `index` as well, if it does not yet; returns that
    /// output.
    ///
    /// For the optional outputs of forward nodes: positions of a pool, a mean, a mask. What no output of a
    /// finished graph needs is taken away again, so that a graph without gradients does not pay for it.
    pub(crate) fn optional_output(&mut self, value: &str, index: usize) -> String {
        let producer = self.graph.value(value).and_then(|value| self.graph.producer(value));
        let output = match producer {
            Some(node) => self.graph.optional_output(node, index),
            None => self.graph.fresh("missing"),
        };
        self.graph.name(output).to_owned()
    }

    /// Annotates the node that makes a value.
    pub(crate) fn annotate(&mut self, value: &str, metadata: Vec<StringStringEntryProto>) {
        let producer = self.graph.value(value).and_then(|value| self.graph.producer(value));
        if let Some(node) = producer {
            self.graph.annotate(node, metadata);
        }
    }

    /// The node that makes a value; `None` for inputs and constants.
    pub(crate) fn producer(&self, value: &str) -> Option<&NodeProto> {
        let node = self.graph.producer(self.graph.value(value)?)?;
        Some(self.graph.node(node))
    }

    /// Whether a node with this operator reads a value.
    pub(crate) fn is_read_by(&self, value: &str, op: &str) -> bool {
        let readers = self.graph.value(value).map(|value| self.graph.consumers(value)).unwrap_or_default();
        readers.iter().any(|reader| self.graph.node(*reader).op_type == op)
    }

    /// The tensor that a value always is, if it is a constant.
    pub(crate) fn known(&self, value: &str) -> Option<&TensorProto> {
        self.graph.constant(self.graph.value(value)?)
    }

    /// The integers of a constant list or number; `None` if the value is no constant or no integers.
    pub(crate) fn known_ints(&self, value: &str) -> Option<Vec<i64>> {
        self.known(value)?.to_i64()
    }

    /// The number of a constant with one element, of type float32 or int; `None` if the value is something
    /// else.
    pub(crate) fn known_float(&self, value: &str) -> Option<f64> {
        let tensor = self.known(value)?;
        let numbers: Vec<f64> = match tensor.to_i64() {
            Some(integers) => integers.into_iter().map(|x| x as f64).collect(),
            None => tensor.to_f32().ok()?.into_iter().map(f64::from).collect(),
        };
        if let [one] = numbers.as_slice() { Some(*one) } else { None }
    }

    /// Gives a value the name it has as an output of the finished graph.
    ///
    /// A value that this emitter made is renamed; anything else (a forward value, a graph input, a value that
    /// is an output already) is passed through an `Identity`.
    pub(crate) fn publish(&mut self, value: &str, name: &str) {
        let value = self.graph.intern(value);
        let own = self.graph.producer(value).is_some_and(|node| node.index() >= self.given);
        if own && self.published.insert(value) {
            self.graph.rename(value, name);
            return;
        }
        let value = self.graph.name(value).to_owned();
        let node = self.graph.push(NodeProto::named(name, "Identity", &[&value], &[]));
        self.published.extend(self.graph.outputs(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::mlp;

    fn emitter() -> Emitter {
        Emitter::new(mlp(&[3, 4, 2], 1).graph.as_ref().unwrap())
    }

    #[test]
    fn equal_nodes_and_constants_are_made_once() {
        let mut emitter = emitter();
        let (one, two) = (emitter.float(ElementType::F32, 2.0), emitter.float(ElementType::F32, 2.0));
        assert_eq!(one, two);
        let sum = emitter.op("Add", &["x", &one], &[]);
        assert_eq!(emitter.op("Add", &["x", &two], &[]), sum);
        assert_eq!(emitter.op("Relu", &["fc1"], &[]), "relu1", "the forward graph is offered for reuse");
    }

    #[test]
    fn unneeded_nodes_are_left_out() {
        let mut emitter = emitter();
        let kept = emitter.op("Neg", &["relu1"], &[]);
        emitter.op("Exp", &["logits"], &[]);
        emitter.publish(&kept, "out");
        let model = emitter.finish(&mlp(&[3, 4, 2], 1), &[], &["out".to_owned()]);
        let graph = model.graph.unwrap();
        let ops: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
        assert_eq!(ops, ["Gemm", "Relu", "Neg"]);
        assert_eq!(graph.node[2].output, ["out"]);
        assert_eq!(graph.initializer.len(), 2);
    }

    #[test]
    fn one_value_can_be_two_outputs() {
        let mut emitter = emitter();
        let value = emitter.op("Neg", &["x"], &[]);
        emitter.publish(&value, "a");
        let again = emitter.op("Neg", &["x"], &[]);
        emitter.publish(&again, "b");
        let model = emitter.finish(&mlp(&[3, 4, 2], 1), &[], &["a".to_owned(), "b".to_owned()]);
        assert_eq!(model.graph.unwrap().node[1].input, ["a"]);
    }

    #[test]
    fn an_optional_output_is_there_only_where_it_is_read() {
        let mut graph = mlp(&[3, 4, 2], 1).graph.unwrap();
        "LayerNormalization".clone_into(&mut graph.node[1].op_type);
        let mut emitter = Emitter::new(&graph);
        let rest = emitter.optional_output("relu1", 2);
        assert_eq!(emitter.optional_output("relu1", 2), rest);
        let read = emitter.op("Neg", &[&rest], &[]);
        let outputs = |wanted: &str| {
            let model = emitter.clone().finish(&mlp(&[3, 4, 2], 1), &[], &[wanted.to_owned()]);
            model.graph.unwrap().node[1].output.clone()
        };
        assert_eq!(outputs(&read), ["relu1", "", rest.as_str()]);
        assert_eq!(outputs("logits"), ["relu1"]);
    }

    #[test]
    fn constants_can_be_read_back() {
        let mut graph = mlp(&[3, 4, 2], 1).graph.unwrap();
        graph.initializer.push(TensorProto::from_f32("half", &[], &[0.5]));
        let value = AttributeProto {
            name: "value".to_owned(),
            t: Some(TensorProto::from_i64("", &[2], &[3, -1])),
            ..Default::default()
        };
        graph.node.push(NodeProto {
            op_type: "Constant".to_owned(),
            output: vec!["axes".to_owned()],
            attribute: vec![value],
            ..Default::default()
        });
        let mut emitter = Emitter::new(&graph);
        let made = emitter.ints(&[7]);
        assert_eq!(emitter.known_ints(&made), Some(vec![7]));
        assert_eq!(emitter.known_ints("axes"), Some(vec![3, -1]));
        assert_eq!(emitter.known_ints("half"), None);
        assert_eq!((emitter.known_float("half"), emitter.known_float(&made)), (Some(0.5), Some(7.0)));
        assert_eq!(emitter.known_float("axes"), None, "two numbers");
        assert_eq!(emitter.known_ints("x"), None, "only the run knows");
    }

    #[test]
    fn an_old_operator_set_is_raised_and_what_that_would_change_is_written() {
        let finished = |opset: i64, op: &str| {
            let mut template = mlp(&[3, 4, 2], 1);
            template.opset_import[0].version = opset;
            let mut emitter = emitter();
            let value = emitter.op(op, &["logits"], &[]);
            let model = emitter.finish(&template, &[], &[value]);
            let modes = model.graph.iter().flat_map(|graph| &graph.node).flat_map(|node| &node.attribute);
            let written = modes.filter(|mode| mode.name == "coordinate_transformation_mode").count();
            (model.opset(), written)
        };
        assert_eq!([13, 17, 21].map(|opset| finished(opset, "Neg")), [(17, 0), (17, 0), (21, 0)]);
        assert_eq!([15, 16, 17].map(|opset| finished(opset, "RoiAlign")), [(17, 1), (17, 0), (17, 0)]);
    }
}
