//! Where a training graph is written.
//!
//! Two nodes with equal operator, inputs and attributes are one node; constants are shared; what no output needs is
//! left out when the graph is finished. So a rule may ask for whatever reads best in its file.

mod finish;

use std::collections::{HashMap, HashSet};

use prost::Message;

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto};
use syncline_onnx::{ElementType, attr_int};

/// A graph that grows. Values are known by their names.
#[derive(Debug)]
pub(crate) struct Emitter {
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// Encoded node or constant without its own name -> the value that already holds it.
    seen: HashMap<Vec<u8>, String>,
    taken: HashSet<String>,
    /// Values made here and not yet published, which may be renamed.
    own: HashSet<String>,
    /// Published values: old name -> the name of the output.
    renamed: HashMap<String, String>,
    /// Optional outputs that were asked for after the fact, see [`Emitter::extra_output`].
    extras: HashSet<String>,
    made: usize,
}

impl Emitter {
    /// Starts from the forward graph. Its nodes are kept as they are, and offered for reuse.
    pub(crate) fn new(forward: &GraphProto) -> Self {
        let inputs = forward.input.iter().map(|input| &input.name);
        let constants = forward.initializer.iter().map(|tensor| &tensor.name);
        let produced = forward.node.iter().flat_map(|node| &node.output);
        let mut emitter = Self {
            nodes: forward.node.clone(),
            constants: forward.initializer.clone(),
            seen: HashMap::new(),
            taken: inputs.chain(constants).chain(produced).cloned().collect(),
            own: HashSet::new(),
            renamed: HashMap::new(),
            extras: HashSet::new(),
            made: 0,
        };
        for node in &forward.node {
            if let [output] = node.output.as_slice() {
                emitter.seen.entry(key_of(node)).or_insert_with(|| output.clone());
            }
        }
        emitter
    }

    /// Starts a graph with the inputs and constants of another, whose nodes come one by one, as they are or written otherwise.
    pub(crate) fn rewriting(graph: &GraphProto) -> Self {
        let mut emitter = Self::new(&GraphProto { node: Vec::new(), ..graph.clone() });
        // Nodes bring their names along.
        emitter.taken.extend(graph.node.iter().flat_map(|node| &node.output).cloned());
        emitter
    }

    /// The graph that was rewritten, with everything written so far in the place of its nodes and constants.
    pub(crate) fn rewritten(self, graph: &GraphProto) -> GraphProto {
        GraphProto { node: self.nodes, initializer: self.constants, ..graph.clone() }
    }

    /// Takes over a node as it is, behind those that are here. Its outputs are those of a node of the graph that is rewritten.
    pub(crate) fn adopt(&mut self, node: NodeProto) {
        self.nodes.push(node);
    }

    /// Applies an operator with one output and returns its value.
    pub(crate) fn op(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let mut node = NodeProto::unnamed(op, inputs, attributes);
        let key = key_of(&node);
        if let Some(value) = self.seen.get(&key) {
            return value.clone();
        }
        let value = self.fresh(op);
        node.name.clone_from(&value);
        node.output.push(value.clone());
        self.nodes.push(node);
        self.own.insert(value.clone());
        self.seen.insert(key, value.clone());
        value
    }

    /// A constant list of integers: axes, a shape.
    pub(crate) fn ints(&mut self, values: &[i64]) -> String {
        self.constant(TensorProto::from_i64("", &[values.len()], values))
    }

    /// A constant integer without axes.
    pub(crate) fn int(&mut self, value: i64) -> String {
        self.constant(TensorProto::from_i64("", &[], &[value]))
    }

    /// A constant number of a float type, without axes. Half types are made by a cast, which is folded when loaded.
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
    pub(crate) fn constant(&mut self, mut tensor: TensorProto) -> String {
        tensor.name.clear();
        let key = tensor.encode_to_vec();
        if let Some(value) = self.seen.get(&key) {
            return value.clone();
        }
        let value = self.fresh("const");
        tensor.name.clone_from(&value);
        self.constants.push(tensor);
        self.seen.insert(key, value.clone());
        value
    }

    /// Lets the node that makes `value` return its output `index` as well, if it does not yet; returns that output.
    ///
    /// For the optional outputs of forward nodes: positions of a pool, a mean, a mask. What no output of a finished
    /// graph needs is taken away again, so that a graph without gradients does not pay for it.
    pub(crate) fn extra_output(&mut self, value: &str, index: usize) -> String {
        let fresh = self.fresh("extra");
        let node = self.nodes.iter_mut().find(|node| node.output.iter().any(|output| output == value));
        let Some(node) = node else {
            return fresh;
        };
        if let Some(output) = node.output.get(index).filter(|output| !output.is_empty()) {
            return output.clone();
        }
        if node.output.len() <= index {
            node.output.resize(index + 1, String::new());
        }
        node.output[index].clone_from(&fresh);
        self.extras.insert(fresh.clone());
        fresh
    }

    /// Adds remarks to the node that makes a value.
    pub(crate) fn remark(&mut self, value: &str, remarks: Vec<StringStringEntryProto>) {
        let node = self.nodes.iter_mut().rev().find(|node| node.output.iter().any(|output| output == value));
        if let Some(node) = node {
            node.metadata_props = remarks;
        }
    }

    /// The node that makes a value; `None` for inputs and constants.
    pub(crate) fn producer(&self, value: &str) -> Option<&NodeProto> {
        self.nodes.iter().find(|node| node.output.iter().any(|output| output == value))
    }

    /// The tensor that a value always is, if it is a constant.
    pub(crate) fn known(&self, value: &str) -> Option<&TensorProto> {
        let constant = self.constants.iter().find(|tensor| tensor.name == value);
        constant.or_else(|| {
            let makes = |node: &&NodeProto| {
                node.op_type == "Constant" && node.output.iter().any(|name| name == value)
            };
            self.nodes.iter().find(makes)?.attribute("value")?.t.as_ref()
        })
    }

    /// The integers of a constant list or number; `None` if the value is no constant or no integers.
    pub(crate) fn known_ints(&self, value: &str) -> Option<Vec<i64>> {
        self.known(value)?.to_i64()
    }

    /// The number of a constant with one element, of type float32 or int; `None` if the value is something else.
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
    /// A value that this emitter made is renamed; anything else (a forward value, a graph input, a value that is an
    /// output already) is passed through an `Identity`.
    pub(crate) fn publish(&mut self, value: &str, name: &str) {
        self.taken.insert(name.to_owned());
        let value = self.renamed.get(value).cloned().unwrap_or_else(|| value.to_owned());
        if !self.own.remove(&value) {
            self.nodes.push(NodeProto::named(name, "Identity", &[&value], &[]));
            return;
        }
        self.renamed.insert(value.clone(), name.to_owned());
        if let Some(producer) = self.nodes.iter_mut().find(|node| node.output.contains(&value)) {
            name.clone_into(&mut producer.name);
        }
        let mentions = self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        mentions.filter(|other| **other == value).for_each(|other| name.clone_into(other));
        // Later requests for an equal node find it under its new name.
        self.seen.values_mut().filter(|known| **known == value).for_each(|known| name.clone_into(known));
    }

    fn fresh(&mut self, stem: &str) -> String {
        loop {
            self.made += 1;
            let name = format!("{PREFIX}{}_{}", stem.to_lowercase(), self.made);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// What the names of emitted values begin with.
const PREFIX: &str = "syncline/";

/// Equal for equal computations: the node without its names.
fn key_of(node: &NodeProto) -> Vec<u8> {
    let mut bare = node.clone();
    bare.name.clear();
    bare.output.clear();
    bare.metadata_props.clear();
    bare.attribute.sort_by(|a, b| a.name.cmp(&b.name));
    bare.encode_to_vec()
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
    fn an_extra_output_is_there_only_where_it_is_read() {
        let mut emitter = emitter();
        let rest = emitter.extra_output("relu1", 2);
        assert_eq!(emitter.extra_output("relu1", 2), rest);
        let read = emitter.op("Neg", &[&rest], &[]);
        let outputs = |wanted: &str| {
            let model = emitter.finish(&mlp(&[3, 4, 2], 1), &[], &[wanted.to_owned()]);
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
    fn an_old_operator_set_is_raised_unless_that_changes_a_meaning() {
        let finished = |opset: i64, op: &str| {
            let mut template = mlp(&[3, 4, 2], 1);
            template.opset_import[0].version = opset;
            let mut emitter = emitter();
            let value = emitter.op(op, &["logits"], &[]);
            emitter.finish(&template, &[], &[value]).opset()
        };
        assert_eq!([13, 17, 21].map(|opset| finished(opset, "Neg")), [17, 17, 21]);
        assert_eq!(finished(13, "RoiAlign"), 13);
    }
}
