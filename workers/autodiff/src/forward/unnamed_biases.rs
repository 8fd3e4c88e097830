//! Biases in a file that names nothing: Keras with PyTorch as its backend hands its tensors to PyTorch's
//! older exporter under no names, which calls all of them after their readers, such as `onnx::Conv_105` and
//! `onnx::Add_143`.
//!
//! A vector of as many numbers as a product has outputs, which is added to its result or multiplied with it,
//! is a bias, or the shift or scale of a normalization that was folded into one. What is subtracted is a mean
//! that was remembered.

use std::collections::{HashMap, HashSet};

use syncline_onnx::ElementType;
use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

/// Whether an exporter has made this name up.
pub(super) fn is_made_up(name: &str) -> bool {
    name.contains("::") || name.starts_with('/')
}

/// The float32 constants by name, if no name is one that somebody gave.
pub(super) fn unnamed_constants(graph: &GraphProto) -> Option<HashMap<&str, &TensorProto>> {
    let floats = graph.initializer.iter().filter(|tensor| tensor.element() == ElementType::F32);
    let constants: HashMap<&str, &TensorProto> =
        floats.map(|tensor| (tensor.name.as_str(), tensor)).collect();
    constants.keys().all(|name| is_made_up(name)).then_some(constants)
}

/// Names of the constants that are biases by their place; none where a constant has a name of its own.
/// O(nodes * depth) at worst.
pub(super) fn unnamed_biases(graph: &GraphProto) -> HashSet<String> {
    let Some(constants) = unnamed_constants(graph) else { return HashSet::new() };
    let made =
        graph.node.iter().flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)));
    let products = Products { constants, producers: made.collect() };
    let added = graph.node.iter().filter(|node| matches!(node.op_type.as_str(), "Add" | "Mul"));
    added.filter_map(|node| products.bias_of(node)).map(str::to_owned).collect()
}

struct Products<'g> {
    constants: HashMap<&'g str, &'g TensorProto>,
    producers: HashMap<&'g str, &'g NodeProto>,
}

impl<'g> Products<'g> {
    /// The constant that a node adds to what a product with as many outputs gives, or multiplies it with.
    fn bias_of(&self, node: &'g NodeProto) -> Option<&'g str> {
        let (constant, value) = self.operands(node)?;
        let shape = constant.shape();
        let count: usize = shape.iter().product();
        let is_vector = !shape.is_empty() && shape.iter().all(|&size| size == 1 || size == count);
        (is_vector && self.outputs(value)? == count).then_some(constant.name.as_str())
    }

    /// The operand that is a constant, and the other one, which is none.
    fn operands(&self, node: &'g NodeProto) -> Option<(&'g TensorProto, &'g str)> {
        let [a, b] = node.input.as_slice() else { return None };
        match (self.constant(a), self.constant(b)) {
            (Some(constant), None) => Some((constant, b)),
            (None, Some(constant)) => Some((constant, a)),
            _ => None,
        }
    }

    /// The constant whose numbers a value has.
    fn constant(&self, mut value: &'g str) -> Option<&'g TensorProto> {
        loop {
            if let Some(constant) = self.constants.get(value) {
                return Some(constant);
            }
            let node = self.producers.get(value).filter(|node| keeps_numbers(&node.op_type))?;
            value = node.input.first()?;
        }
    }

    /// How many outputs the product has that made a value, but for constants that were added to it or
    /// multiplied with it.
    fn outputs(&self, mut value: &'g str) -> Option<usize> {
        // A graph has no cycles: each step goes to an earlier node.
        loop {
            let node = self.producers.get(value)?;
            let weight = |position: usize| Some(self.constant(node.input.get(position)?)?.shape());
            match node.op_type.as_str() {
                op if keeps_numbers(op) => value = node.input.first()?,
                "Add" | "Sub" | "Mul" | "Div" => value = self.operands(node)?.1,
                "MatMul" => return weight(1)?.last().copied(),
                "Gemm" => return weight(1)?.get(usize::from(node.int("transB", 0) == 0)).copied(),
                "Conv" => return weight(1)?.first().copied(),
                "ConvTranspose" => {
                    let groups = usize::try_from(node.int("group", 1)).ok()?;
                    return weight(1)?.get(1)?.checked_mul(groups);
                }
                _ => return None,
            }
        }
    }
}

/// Whether an operator gives the numbers of its first input, in the same type or another, in another form.
fn keeps_numbers(op: &str) -> bool {
    matches!(op, "Identity" | "Cast" | "Transpose" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten")
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{GraphBuilder, attr_int};

    /// x [batch, 2] through the product of three outputs, and what `op` makes of that with a constant of this
    /// shape.
    fn found(op: &str, shape: &[usize], name: &str) -> Vec<String> {
        let mut graph = GraphBuilder::new("unnamed");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight(name, &[2, 3], &[0.5; 6]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        let y = graph.op("Cast", &[&y], &[attr_int("to", 1)]);
        let count = shape.iter().product();
        let b = graph.weight("onnx::Add_1", shape, &vec![0.0; count]);
        let y = graph.op(op, &[&b, &y], &[]);
        let c = graph.weight("onnx::Reshape_2", &[3], &[0.0; 3]);
        let form = graph.ints("form", &[1, 3]);
        let c = graph.op("Reshape", &[&c, &form], &[]);
        let y = graph.op("Add", &[&y, &c], &[]);
        let y = graph.op("Relu", &[&y], &[]);
        let d = graph.weight("onnx::Mul_3", &[3], &[0.0; 3]);
        let y = graph.op("Mul", &[&y, &d], &[]);
        graph.output(&y);
        let mut names: Vec<String> = unnamed_biases(&graph.finish().graph.unwrap()).into_iter().collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_vector_at_the_result_of_a_product_is_a_bias_where_nothing_has_a_name() {
        let both: &[&str] = &["onnx::Add_1", "onnx::Reshape_2"];
        let second = &both[1..];
        #[rustfmt::skip]
        let cases: [(&str, &[usize], &str, &[&str]); 8] = [
            ("Add", &[3],       "onnx::MatMul_0", both),
            ("Mul", &[3],       "onnx::MatMul_0", both),
            ("Add", &[1, 3],    "onnx::MatMul_0", both),
            ("Sub", &[3],       "onnx::MatMul_0", second),
            ("Add", &[],        "onnx::MatMul_0", second),
            ("Add", &[1],       "onnx::MatMul_0", second),
            ("Add", &[3, 3],    "onnx::MatMul_0", second),
            ("Add", &[3],       "fc.weight",      &[]),
        ];
        for (op, shape, name, want) in cases {
            assert_eq!(found(op, shape, name), want, "{op} {shape:?} {name}");
        }
    }

    #[test]
    fn products_say_how_many_outputs_they_have() {
        #[rustfmt::skip]
        // operator, attributes, weight, outputs
        let cases: [(&str, &[(&str, i64)], &[usize], usize); 5] = [
            ("Gemm",          &[],              &[2, 3],       3),
            ("Gemm",          &[("transB", 1)], &[3, 2],       3),
            ("Conv",          &[],              &[3, 2, 1, 1], 3),
            ("ConvTranspose", &[],              &[2, 3, 1, 1], 3),
            ("ConvTranspose", &[("group", 2)],  &[2, 3, 1, 1], 6),
        ];
        for (op, attributes, shape, outputs) in cases {
            for count in [3, 6] {
                let mut graph = GraphBuilder::new("product");
                let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into(), 1.into(), 1.into()]);
                let w = graph.weight("onnx::w", shape, &vec![0.5; shape.iter().product()]);
                let attributes: Vec<_> =
                    attributes.iter().map(|&(name, value)| attr_int(name, value)).collect();
                let y = graph.op(op, &[&x, &w], &attributes);
                let b = graph.weight("onnx::b", &[count, 1, 1], &vec![0.0; count]);
                let y = graph.op("Add", &[&y, &b], &[]);
                graph.output(&y);
                let found = unnamed_biases(&graph.finish().graph.unwrap());
                assert_eq!(found.contains("onnx::b"), count == outputs, "{op} {attributes:?} {count}");
            }
        }
    }
}
