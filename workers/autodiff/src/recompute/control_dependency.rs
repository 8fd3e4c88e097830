//! Control dependencies: a value that is passed on only once others have been computed.
//!
//! ONNX Runtime runs nodes in an order of its own, constrained by data alone, and merges equal nodes. To make
//! a node run late, its operand is passed through a `Reshape` to its own shape, to which the length of an
//! empty slice of the other value is added:
//!
//! ```text
//! zero  = 0 * int64(bool(first element of an input))            once; [0], which only the run knows
//! empty = Slice(Reshape(other, [-1]), zero, zero)               no element, no copy
//! later = Reshape(value, Add(Shape(value), Shape(empty)))       shares the memory of `value`
//! ```
//!
//! No element is copied and no number of the other value is looked at, so that an infinite one does no harm
//! and nothing comes back from a GPU but one element a run. Because only the run knows `zero`, constant
//! folding cannot see through it.

use syncline_onnx::{ElementType, Graph, ValueId, attr_int};

/// Writes control dependencies into a graph.
#[derive(Debug)]
pub(crate) struct ControlDependencies {
    zero: ValueId,
    /// The shape of a list.
    list: ValueId,
}

impl ControlDependencies {
    /// Writes what makes `zero`. `input` is an input of the graph that is never empty.
    pub(crate) fn new(graph: &mut Graph, input: ValueId) -> Self {
        let [list, zero, one] = [-1, 0, 1].map(|number| graph.ints(&[number]));
        let flat = graph.op("Reshape", &[input, list], &[]);
        let first = graph.op("Slice", &[flat, zero, one], &[]);
        let to = |element: ElementType| [attr_int("to", i64::from(element.code()))];
        let truth = graph.op("Cast", &[first], &to(ElementType::Bool));
        let number = graph.op("Cast", &[truth], &to(ElementType::I64));
        Self { zero: graph.op("Mul", &[number, zero], &[]), list }
    }

    /// Passes `value` on once `events` are there.
    pub(crate) fn after(&self, graph: &mut Graph, value: ValueId, events: &[ValueId]) -> ValueId {
        let lengths = events.iter().map(|event| {
            let flat = graph.op("Reshape", &[*event, self.list], &[]);
            let empty = graph.op("Slice", &[flat, self.zero, self.zero], &[]);
            graph.op("Shape", &[empty], &[])
        });
        let lengths: Vec<ValueId> = lengths.collect();
        let length = match lengths.as_slice() {
            [one] => *one,
            many => graph.op("Max", many, &[]),
        };
        let own = graph.op("Shape", &[value], &[]);
        let shape = graph.op("Add", &[own, length], &[]);
        graph.op("Reshape", &[value, shape], &[])
    }
}
