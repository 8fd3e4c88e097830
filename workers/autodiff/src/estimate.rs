//! What a graph costs, from its shapes alone.
//!
//! In: a graph with its nodes in the order in which they run, and the type of every value. Out: operations
//! and bytes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Types, captured};

/// Cost of one run of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// Floating-point operations: two for each multiply-add of a product or a convolution, one for each
    /// element that another operator makes.
    pub flops: u64,
    /// Largest sum of the bytes of all values that are alive at once, inputs and constants not counted.
    pub peak_bytes: u64,
}

/// Walks the nodes in their order. Values without a fixed shape count nothing, nor do those that share the
/// memory of another.
pub fn estimate(graph: &GraphProto, types: &Types) -> Estimate {
    let owners = owners(graph);
    let owner = |name| owners.get(name).copied().unwrap_or(name);
    let mut last_use: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for name in node.input.iter().map(String::as_str).chain(captured(node)) {
            last_use.insert(owner(name), index);
        }
    }
    for output in &graph.output {
        last_use.insert(owner(&output.name), graph.node.len());
    }
    let (mut alive, mut cost) = (0u64, Estimate::default());
    let mut made: HashMap<&str, u64> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        let own = |name: &&String| !name.is_empty() && !owners.contains_key(name.as_str());
        for output in node.output.iter().filter(own) {
            let bytes = bytes(types, output);
            alive = alive.saturating_add(bytes);
            made.insert(output, bytes);
        }
        cost.flops = cost.flops.saturating_add(flops(node, types));
        cost.peak_bytes = cost.peak_bytes.max(alive);
        for name in node.input.iter().chain(&node.output) {
            let name = owner(name.as_str());
            if last_use.get(name).is_none_or(|&last| last <= index) {
                alive -= made.remove(name).unwrap_or(0);
            }
        }
    }
    cost
}

/// Values that are another view of the same memory -> the value that owns it.
fn owners(graph: &GraphProto) -> HashMap<&str, &str> {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for node in graph.node.iter().filter(|node| VIEWS.contains(&node.op_type.as_str())) {
        if let (Some(of), Some(view)) = (node.input.first(), node.output.first()) {
            let owner = owners.get(of.as_str()).copied().unwrap_or(of);
            owners.insert(view, owner);
        }
    }
    owners
}

/// Operators whose output is their first input, seen otherwise.
const VIEWS: [&str; 5] = ["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

fn shape(types: &Types, name: &str) -> Option<Vec<u64>> {
    types.get(name)?.dims.iter().map(|dim| dim.fixed().map(|size| size as u64)).collect()
}

fn elements(types: &Types, name: &str) -> u64 {
    shape(types, name).map_or(0, |shape| product(&shape))
}

fn product(sizes: &[u64]) -> u64 {
    sizes.iter().fold(1, |all, &size| all.saturating_mul(size))
}

/// Size of a value; 0 if its shape is not fixed.
pub(super) fn bytes(types: &Types, name: &str) -> u64 {
    let bits = types.get(name).and_then(|ty| ty.element.bits()).unwrap_or(0);
    elements(types, name).saturating_mul(bits).div_ceil(8)
}

fn flops(node: &NodeProto, types: &Types) -> u64 {
    let made = node.output.first().map_or(0, |output| elements(types, output));
    let input = |index: usize| node.input.get(index).and_then(|name| shape(types, name)).unwrap_or_default();
    let terms = match node.op_type.as_str() {
        "MatMul" => input(0).last().copied().unwrap_or(0),
        "Gemm" => {
            let axis = usize::from(node.int("transA", 0) == 0);
            input(0).get(axis).copied().unwrap_or(0)
        }
        // The weight is [out, in / group, kernel...].
        "Conv" => input(1).get(1..).map_or(0, product),
        // The weight is [in, out / group, kernel...]; each element of the input is spread by it.
        "ConvTranspose" => {
            let spread = input(1).get(1..).map_or(0, product);
            return product(&input(0)).saturating_mul(spread).saturating_mul(2);
        }
        "Constant" | "Shape" | "Size" => return 0,
        view if VIEWS.contains(&view) => return 0,
        _ => return made,
    };
    made.saturating_mul(terms).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder, TensorType, mlp};

    #[test]
    fn a_perceptron_costs_its_products_and_keeps_two_layers() {
        let graph = mlp(&[3, 4, 2], 1).graph.unwrap();
        let of = |sizes: &[usize]| {
            TensorType::new(ElementType::F32, sizes.iter().map(|&size| size.into()).collect())
        };
        let types = [("x", [5, 3]), ("fc1", [5, 4]), ("relu1", [5, 4]), ("logits", [5, 2])];
        let types: Types = types.iter().map(|(name, sizes)| ((*name).to_owned(), of(sizes))).collect();
        let cost = estimate(&graph, &types);
        assert_eq!(cost.flops, 2 * 5 * 4 * 3 + 5 * 4 + 2 * 5 * 2 * 4);
        assert_eq!(cost.peak_bytes, 4 * (5 * 4 + 5 * 4), "fc1 and relu1 are alive at once");
    }

    #[test]
    fn a_view_has_no_memory_of_its_own_and_keeps_that_of_its_owner() {
        let mut builder = GraphBuilder::new("views");
        let x = builder.input("x", ElementType::F32, &[8.into()]);
        let made = builder.op("Exp", &[&x], &[]);
        let seen = builder.op("Identity", &[&made], &[]);
        let again = builder.op("Exp", &[&x], &[]);
        let sum = builder.op("Add", &[&seen, &again], &[]);
        builder.output(&sum);
        let graph = builder.finish().graph.unwrap();
        let ty = TensorType::new(ElementType::F32, vec![8.into()]);
        let types: Types = [made, seen, again, sum].into_iter().map(|name| (name, ty.clone())).collect();
        assert_eq!(estimate(&graph, &types).peak_bytes, 3 * 8 * 4);
    }
}
