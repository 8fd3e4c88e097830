//! Order in a graph: a value that is passed on only once others have been computed.
//!
//! ONNX Runtime runs nodes in an order of its own, constrained by data alone, and merges equal nodes. To make a node run
//! late, its operand is passed through a `Reshape` to its own shape, to which the length of an empty slice of the other
//! value is added:
//!
//! ```text
//! zero  = 0 * int64(bool(first element of an input))            once; [0], which only the run knows
//! empty = Slice(Reshape(other, [-1]), zero, zero)               no element, no copy
//! later = Reshape(value, Add(Shape(value), Shape(empty)))       shares the memory of `value`
//! ```
//!
//! No element is copied and no number of the other value is looked at, so that an infinite one does no harm and nothing
//! comes back from a GPU but one element a run. Because only the run knows `zero`, constant folding cannot see through it.

use std::collections::HashSet;

use syncline_onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use syncline_onnx::{ElementType, attr_int};

/// Writes order into a graph.
#[derive(Debug)]
pub(crate) struct Order {
    taken: HashSet<String>,
    made: usize,
    zero: String,
    /// The shape of a list.
    list: String,
    /// Nodes and constants that make `zero`; they belong at the head of the graph.
    pub(crate) head: Vec<NodeProto>,
    pub(crate) constants: Vec<TensorProto>,
}

impl Order {
    /// `input` is an input of the graph that is never empty.
    pub(crate) fn new(graph: &GraphProto, input: &str) -> Self {
        let inputs = graph.input.iter().map(|input| &input.name);
        let constants = graph.initializer.iter().map(|tensor| &tensor.name);
        let produced = graph.node.iter().flat_map(|node| &node.output);
        let taken = inputs.chain(constants).chain(produced).cloned().collect();
        let (zero, list) = (String::new(), String::new());
        let mut order = Self { taken, made: 0, zero, list, head: Vec::new(), constants: Vec::new() };
        let mut nodes = Vec::new();
        let [all, zero, one] = [-1, 0, 1].map(|number| order.constant(number));
        let flat = order.op(&mut nodes, "Reshape", &[input, &all], &[]);
        let first = order.op(&mut nodes, "Slice", &[&flat, &zero, &one], &[]);
        let to = |element: ElementType| [attr_int("to", i64::from(element.code()))];
        let truth = order.op(&mut nodes, "Cast", &[&first], &to(ElementType::Bool));
        let number = order.op(&mut nodes, "Cast", &[&truth], &to(ElementType::I64));
        order.zero = order.op(&mut nodes, "Mul", &[&number, &zero], &[]);
        order.list = all;
        order.head = nodes;
        order
    }

    /// Passes `value` on once `events` are there.
    pub(crate) fn after(&mut self, nodes: &mut Vec<NodeProto>, value: &str, events: &[String]) -> String {
        let mut lengths = Vec::with_capacity(events.len());
        for event in events {
            let (zero, list) = (self.zero.clone(), self.list.clone());
            let flat = self.op(nodes, "Reshape", &[event, &list], &[]);
            let empty = self.op(nodes, "Slice", &[&flat, &zero, &zero], &[]);
            lengths.push(self.op(nodes, "Shape", &[&empty], &[]));
        }
        let length = match lengths.as_slice() {
            [one] => one.clone(),
            many => {
                let many: Vec<&str> = many.iter().map(String::as_str).collect();
                self.op(nodes, "Max", &many, &[])
            }
        };
        let own = self.op(nodes, "Shape", &[value], &[]);
        let shape = self.op(nodes, "Add", &[&own, &length], &[]);
        self.op(nodes, "Reshape", &[value, &shape], &[])
    }

    /// A name that nothing in the graph has.
    pub(crate) fn fresh(&mut self, stem: &str) -> String {
        loop {
            self.made += 1;
            let name = format!("syncline/again_{}_{}", stem.to_lowercase(), self.made);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    fn constant(&mut self, number: i64) -> String {
        let name = self.fresh("const");
        self.constants.push(TensorProto::from_i64(&name, &[1], &[number]));
        name
    }

    fn op(
        &mut self,
        nodes: &mut Vec<NodeProto>,
        op: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
    ) -> String {
        let name = self.fresh(op);
        nodes.push(NodeProto::named(&name, op, inputs, attributes));
        name
    }
}
