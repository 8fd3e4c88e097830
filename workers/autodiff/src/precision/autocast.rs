//! Which nodes of a training graph compute in 16 bits: products, and what stands between them.
//!
//! In: a graph, the types of its values, the precision. Out: a flag for each node. Two passes: forwards, what
//! a value is made of says whether it may be rounded; backwards, what it is for says whether that is worth a
//! cast.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{ElementType, Types};

use super::Precision;
use crate::LOSS_SCALE;
use crate::training_graph::Param;

/// Largest number of float16.
const LARGEST_F16: f32 = 65504.0;

/// What an operator does to the question of precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Heavy: always in 16 bits.
    Product,
    /// In 16 bits between products.
    Plain,
    /// In float32, but its result loses nothing that matters when it is rounded.
    Normalized,
    /// In float32.
    Full,
}

/// What a value is, as seen from where it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// A parameter, a constant, or made of such: rounded where the others are.
    Weight,
    /// Made of products: 16 bits will do.
    Product,
    /// Needs float32.
    Full,
}

/// Which operators have 16 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) precision: Precision,
    /// The operator set that the graph speaks.
    pub(crate) opset: i64,
}

impl Table {
    fn class(&self, node: &NodeProto, types: &Types) -> Class {
        let fp16 = self.precision == Precision::Fp16;
        let standard = node.domain.is_empty();
        let no_graphs =
            node.attribute.iter().all(|attribute| attribute.g.is_none() && attribute.graphs.is_empty());
        match node.op_type.as_str() {
            _ if !standard || !no_graphs => Class::Full,
            "MatMul" | "Gemm" => Class::Product,
            // The standard lets Conv take bfloat16 from operator set 22 on.
            "Conv" if fp16 || self.opset >= 22 => Class::Product,
            "ConvTranspose" | "Einsum" if fp16 => Class::Product,
            // Squares soon leave the range of float16, and statistics are made of them.
            "Mul" if node.input.first() == node.input.get(1) => Class::Full,
            "Add" | "Sub" | "Mul" | "Neg" | "Sum" | "Relu" | "Tanh" | "Sigmoid" | "Erf" | "Where"
            | "Identity" | "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Transpose" | "Slice"
            | "Split" | "Concat" | "Expand" | "Tile" | "Dropout" => Class::Plain,
            "LeakyRelu" | "Elu" | "Pad" | "MaxPool" | "Max" | "Min" | "Clip" | "Gelu" | "Greater"
            | "Less" | "GreaterOrEqual" | "LessOrEqual" | "DepthToSpace" | "SpaceToDepth"
                if fp16 =>
            {
                Class::Plain
            }
            // `Equal` is none of these: gradients ask with it whether a value is the one that a reduction
            // found, in float32.
            "Cast" if element(types, node.input.first()) == Some(ElementType::Bool) => Class::Normalized,
            "BatchNormalization"
            | "LayerNormalization"
            | "GroupNormalization"
            | "InstanceNormalization"
            | "RMSNormalization"
            | "Softmax" => Class::Normalized,
            _ => Class::Full,
        }
    }
}

/// Element type of a value, if it is known.
pub(crate) fn element(types: &Types, value: Option<&String>) -> Option<ElementType> {
    types.get(value?).map(|ty| ty.element)
}

/// The operands that share the node's precision.
pub(crate) fn operands<'n>(node: &'n NodeProto, types: &'n Types) -> impl Iterator<Item = &'n String> {
    // The ratio of a Dropout has a type of its own.
    let count = if node.op_type == "Dropout" { 1 } else { node.input.len() };
    let float = |value: &&String| element(types, Some(value)) == Some(ElementType::F32);
    node.input.iter().take(count).filter(float)
}

/// For each node whether it computes in 16 bits.
pub(crate) fn low_nodes(graph: &GraphProto, types: &Types, table: &Table, params: &[Param]) -> Vec<bool> {
    let mut origins: HashMap<&str, Origin> = HashMap::new();
    origins.extend(params.iter().map(|param| (param.name.as_str(), Origin::Weight)));
    for tensor in &graph.initializer {
        let fits = |numbers: Vec<f32>| numbers.iter().all(|number| number.abs() <= LARGEST_F16);
        let fits = tensor.name != LOSS_SCALE && tensor.to_f32().is_ok_and(fits);
        origins.insert(&tensor.name, if fits { Origin::Weight } else { Origin::Full });
    }
    let mut may = Vec::with_capacity(graph.node.len());
    for node in &graph.node {
        let of = |value: &String| origins.get(value.as_str()).copied().unwrap_or(Origin::Full);
        let worst = operands(node, types).map(of).max().unwrap_or(Origin::Full);
        let (low, origin) = match (table.class(node, types), worst) {
            (Class::Product, _) => (true, Origin::Product),
            (Class::Normalized, _) => (false, Origin::Product),
            (Class::Plain, Origin::Product) => (true, Origin::Product),
            (Class::Plain | Class::Full, Origin::Weight) if !node.op_type.starts_with("Gather") => {
                (false, Origin::Weight)
            }
            _ => (false, Origin::Full),
        };
        may.push(low);
        origins.extend(node.output.iter().map(|output| (output.as_str(), origin)));
    }
    // Backwards: 16 bits only where a product, or a mask of one, is what it is for.
    let mut wanted: HashSet<&str> = HashSet::new();
    for (node, low) in graph.node.iter().zip(&mut may).rev() {
        let asks = |output: &String| {
            wanted.contains(output.as_str()) || element(types, Some(output)) == Some(ElementType::Bool)
        };
        *low = *low && (table.class(node, types) == Class::Product || node.output.iter().any(asks));
        if *low {
            wanted.extend(operands(node, types).map(String::as_str));
        }
    }
    may
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{GraphBuilder, TensorType, proto::TensorProto};

    /// Names of the nodes that have 16 bits. Every value is taken for a float32 one.
    fn low(builder: GraphBuilder, params: &[&str], precision: Precision) -> Vec<String> {
        let graph = builder.finish().graph.unwrap();
        let made = graph.node.iter().flat_map(|node| node.output.clone());
        let fed = graph.input.iter().map(|input| input.name.clone());
        let constants = graph.initializer.iter().map(|tensor| tensor.name.clone());
        let ty = TensorType::new(ElementType::F32, Vec::new());
        let types: Types = made.chain(fed).chain(constants).map(|name| (name, ty.clone())).collect();
        let param = |name: &&str| Param { name: (*name).to_owned(), shape: Vec::new(), initial: Vec::new() };
        let params: Vec<Param> = params.iter().map(param).collect();
        let flags = low_nodes(&graph, &types, &Table { precision, opset: 17 }, &params);
        graph.node.into_iter().zip(flags).filter(|(_, low)| *low).map(|(node, _)| node.name).collect()
    }

    #[test]
    fn what_stands_between_products_follows_them_and_statistics_do_not() {
        let mut graph = GraphBuilder::new("between");
        let x = graph.input("x", ElementType::F32, &[2.into(), 2.into()]);
        let (w, b) = (graph.input("w", ElementType::F32, &[]), graph.input("b", ElementType::F32, &[]));
        let h = graph.named("first", "MatMul", &[&x, &w], &[]);
        let h = graph.named("bias", "Add", &[&h, &b], &[]);
        let h = graph.named("relu", "Relu", &[&h], &[]);
        let square = graph.named("square", "Mul", &[&h, &h], &[]);
        let mean = graph.named("mean", "ReduceMean", &[&square], &[]);
        let scaled = graph.named("by_statistic", "Mul", &[&h, &mean], &[]);
        graph.named("second", "MatMul", &[&h, &w], &[]);
        graph.named("third", "MatMul", &[&scaled, &w], &[]);
        let side = graph.named("side", "Neg", &[&h], &[]);
        graph.named("sum", "ReduceSum", &[&side], &[]);
        assert_eq!(low(graph, &["w", "b"], Precision::Fp16), ["first", "bias", "relu", "second", "third"]);
    }

    #[test]
    fn a_number_that_float16_does_not_have_keeps_its_node_in_32_bits() {
        for (number, want) in [(6e4, 3), (7e4, 2)] {
            let mut graph = GraphBuilder::new("mask");
            let x = graph.input("x", ElementType::F32, &[]);
            let mask = graph.constant(TensorProto::from_f32("mask", &[], &[-number]));
            let h = graph.op("MatMul", &[&x, &x], &[]);
            let h = graph.op("Add", &[&h, &mask], &[]);
            graph.op("MatMul", &[&h, &x], &[]);
            assert_eq!(low(graph, &[], Precision::Fp16).len(), want, "{number}");
        }
    }

    #[test]
    fn what_a_reduction_found_is_compared_with_what_it_was_found_in_as_it_saw_it() {
        let mut graph = GraphBuilder::new("found");
        let x = graph.input("x", ElementType::F32, &[]);
        let h = graph.named("product", "MatMul", &[&x, &x], &[]);
        let most = graph.named("most", "ReduceMax", &[&h], &[]);
        let y = graph.named("rest", "Sub", &[&h, &most], &[]);
        graph.named("next", "MatMul", &[&y, &x], &[]);
        let values = ["x", "product", "most", "rest", "next"];
        let ty = |element| TensorType::new(element, Vec::new());
        let mut types: Types = values.map(|name| (name.to_owned(), ty(ElementType::F32))).into();
        graph.named("same", "Equal", &[&h, &most], &[]);
        types.insert("same".to_owned(), ty(ElementType::Bool));
        let graph = graph.finish().graph.unwrap();
        let flags = low_nodes(&graph, &types, &Table { precision: Precision::Fp16, opset: 17 }, &[]);
        let low = |name: &str| flags[graph.node.iter().position(|node| node.name == name).unwrap()];
        assert_eq!(["product", "most", "same"].map(low), [true, false, false]);
    }

    #[test]
    fn bfloat16_has_no_convolution_before_operator_set_22() {
        for (precision, want) in [(Precision::Fp16, 2), (Precision::Bf16, 1)] {
            let mut graph = GraphBuilder::new("convolution");
            let x = graph.input("x", ElementType::F32, &[]);
            let h = graph.op("Conv", &[&x, &x], &[]);
            graph.op("MatMul", &[&h, &x], &[]);
            assert_eq!(low(graph, &[], precision).len(), want);
        }
    }
}
