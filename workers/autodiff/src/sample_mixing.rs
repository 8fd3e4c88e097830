//! Whether a model compares the samples of a batch with each other, as contrastive losses with negatives of
//! the batch do. Its loss is then no mean over samples: that of a batch is another one than the mean of those
//! of its pieces.

use syncline_onnx::proto::{GraphProto, NodeProto};
use syncline_onnx::{Dim, Types};

use crate::axis::from_front;

/// The first value that has the samples along two axes, or a Softmax along them. `None` where no such value
/// is found: sizes that are not known, or a batch that is rearranged, do not show.
pub(crate) fn mixed_samples(graph: &GraphProto, types: &Types, first_input: Option<&str>) -> Option<String> {
    let dims = |value: &str| types.get(value).map(|ty| ty.dims.as_slice());
    let Dim::Symbol(batch) = dims(first_input?)?.first()? else { return None };
    let is_samples = |dim: &Dim| matches!(dim, Dim::Symbol(symbol) if symbol == batch);
    let is_paired = |value: &String| {
        let dims = dims(value).unwrap_or_default();
        dims.iter().filter(|dim| is_samples(dim)).count() > 1
    };
    let is_softmax_of_samples = |node: &NodeProto| {
        let dims = node.input.first().and_then(|input| dims(input)).unwrap_or_default();
        let at_axis = from_front(node.int("axis", -1), dims.len());
        ["Softmax", "LogSoftmax"].contains(&node.op_type.as_str())
            && at_axis.is_some_and(|axis| is_samples(&dims[axis]))
    };
    graph.node.iter().find_map(|node| {
        let mixed = node.output.iter().find(|value| is_paired(value) || is_softmax_of_samples(node));
        mixed.cloned()
    })
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{ElementType, GraphBuilder, TensorType, attr_int};

    use super::*;

    #[test]
    fn values_that_compare_samples_are_found_table() {
        let batch = || Dim::from("batch");
        #[rustfmt::skip]
        let cases: [(&str, Vec<Dim>, i64, bool); 7] = [
            ("MatMul",     vec![batch(), 3.into()],                                   -1, false),
            ("MatMul",     vec![batch(), batch()],                                    -1, true),
            ("MatMul",     vec![batch(), 4.into(), "time".into(), "time".into()],     -1, false),
            ("MatMul",     vec![4.into(), 4.into()],                                  -1, false),
            ("Softmax",    vec![batch(), 3.into()],                                   -1, false),
            ("Softmax",    vec![batch(), 3.into()],                                   -2, true),
            ("LogSoftmax", vec![batch(), 3.into()],                                    0, true),
        ];
        for (op, dims, axis, want) in cases {
            let mut graph = GraphBuilder::new("samples");
            let x = graph.input("x", ElementType::F32, &[batch(), 2.into()]);
            let of = graph.op("Relu", &[&x], &[]);
            let y = graph.named("y", op, &[&of], &[attr_int("axis", axis)]);
            let plain = TensorType::new(ElementType::F32, vec![batch(), 2.into()]);
            // The Softmax reads what has the shape that it gives.
            let made = TensorType::new(ElementType::F32, dims.clone());
            let read = if op == "MatMul" { plain.clone() } else { made.clone() };
            let types = Types::from([(x.clone(), plain), (of, read), (y.clone(), made)]);
            let found = mixed_samples(&graph.finish().graph.unwrap(), &types, Some(&x));
            assert_eq!(found, want.then_some(y), "{op} {dims:?} {axis}");
        }
    }
}
