//! Outputs that a file declares for the batch of the export, although its inputs take any.
//!
//! PyTorch's older exporter writes the sizes of its one run where it cannot follow them, such as behind a
//! `Reshape` to sizes that are computed. What ONNX Runtime infers stands; where it infers nothing, an output
//! has a row for each sample.

use std::collections::HashSet;

use syncline_onnx::proto::{DimensionValue, GraphProto};

use super::open_sizes::axes;
use super::training_form::NEXT_SUFFIX;
use crate::GRAD_SUFFIX;

/// Opens the first axis of outputs, and of inner values that have the size of one, if that of every data
/// input is open.
pub(super) fn open_outputs(graph: &mut GraphProto) {
    let Some(batch) = open_batch(graph) else { return };
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let is_of_constant = |output: &str| {
        let mut tensors =
            [GRAD_SUFFIX, NEXT_SUFFIX].into_iter().filter_map(|suffix| output.strip_suffix(suffix));
        tensors.any(|name| constants.contains(name))
    };
    let mut sizes = HashSet::new();
    for output in graph.output.iter_mut().filter(|output| !is_of_constant(&output.name)) {
        if let Some(dim) = axes(output).next()
            && let Some(DimensionValue::Value(size)) = dim.value
        {
            sizes.insert(size);
            dim.value.clone_from(&batch);
        }
    }
    for value in &mut graph.value_info {
        if let Some(dim) = axes(value).next()
            && matches!(dim.value, Some(DimensionValue::Value(size)) if sizes.contains(&size))
        {
            dim.value = None;
        }
    }
}

/// What the first axis of a data input is called, if all of them are open; `Some(None)` if it has no name.
fn open_batch(graph: &mut GraphProto) -> Option<Option<DimensionValue>> {
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut batch = None;
    for input in graph.input.iter_mut().filter(|input| !constants.contains(input.name.as_str())) {
        match axes(input).next()?.value.clone() {
            Some(DimensionValue::Value(_)) => return None,
            open => _ = batch.get_or_insert(open),
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use syncline_onnx::proto::{TensorProto, ValueInfoProto};
    use syncline_onnx::{Dim, ElementType, TensorType};

    use super::*;

    fn value(name: &str, first: Dim) -> ValueInfoProto {
        TensorType::new(ElementType::F32, vec![first, 3.into()]).to_value_info(name)
    }

    /// First axes of the outputs, then of inner values.
    fn opened(inputs: [Dim; 2]) -> Vec<Dim> {
        let [first, second] = inputs;
        let mut graph = GraphProto {
            input: vec![value("x", first), value("z", second), value("w", 5.into())],
            initializer: vec![TensorProto::from_f32("w", &[5, 3], &[0.0; 15])],
            output: vec![
                value("y", 2.into()),
                value("w.grad", 5.into()),
                value("w.new", 5.into()),
                value("z.grad", 2.into()),
            ],
            value_info: vec![value("like an output", 2.into()), value("another", 7.into())],
            ..GraphProto::default()
        };
        open_outputs(&mut graph);
        let values = graph.output.iter().chain(&graph.value_info);
        values.map(|value| TensorType::from_value_info(value).unwrap().dims[0].clone()).collect()
    }

    #[test]
    fn what_was_declared_for_one_batch_is_open_where_all_inputs_are_and_gradients_stay_as_they_are() {
        let open = ["n".into(), 5.into(), 5.into(), "n".into(), Dim::Unknown, 7.into()];
        assert_eq!(opened(["n".into(), "n".into()]), open);
        assert_eq!(opened(["n".into(), Dim::Unknown]), open);
        assert_eq!(opened([Dim::Unknown, "n".into()])[0], Dim::Unknown);
        assert_eq!(opened(["n".into(), 2.into()]), [2, 5, 5, 2, 2, 7].map(Dim::from));
    }
}
