//! Sizes that a model leaves open, besides the batch, become those of the data that it trains on.

use std::collections::BTreeMap;

use syncline_onnx::proto::{DimensionProto, DimensionValue, GraphProto, TypeProto, ValueInfoProto};

/// Gives the open axes of these inputs, by name, the sizes of a sample. An axis that has the name of one of
/// them anywhere in the graph is as long.
pub fn close_sizes(graph: &mut GraphProto, sample_shapes: &BTreeMap<String, Vec<usize>>) {
    let mut named = BTreeMap::new();
    for input in &mut graph.input {
        let Some(shape) = sample_shapes.get(&input.name) else { continue };
        for (dim, &size) in axes(input).skip(1).zip(shape) {
            let Ok(size) = i64::try_from(size) else { continue };
            match &dim.value {
                Some(DimensionValue::Value(fixed)) if *fixed >= 0 => continue,
                Some(DimensionValue::Param(name)) => {
                    named.insert(name.clone(), size);
                }
                _ => {}
            }
            dim.value = Some(DimensionValue::Value(size));
        }
    }
    for value in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
        // The first axis is the batch, whatever it is called.
        for dim in axes(value).skip(1) {
            let Some(DimensionValue::Param(name)) = &dim.value else { continue };
            if let Some(&size) = named.get(name) {
                dim.value = Some(DimensionValue::Value(size));
            }
        }
    }
}

/// The axes of a tensor, as the file declares them; none where it does not.
pub(super) fn axes(value: &mut ValueInfoProto) -> impl Iterator<Item = &mut DimensionProto> {
    let tensor = match &mut value.r#type {
        Some(TypeProto { tensor_type, .. }) => tensor_type.as_mut(),
        None => None,
    };
    tensor.and_then(|tensor| tensor.shape.as_mut()).into_iter().flat_map(|shape| &mut shape.dim)
}

#[cfg(test)]
mod tests {
    use syncline_onnx::{Dim, ElementType, TensorType};

    use super::*;

    fn value(name: &str, dims: &[Dim]) -> ValueInfoProto {
        TensorType::new(ElementType::F32, dims.to_vec()).to_value_info(name)
    }

    #[test]
    fn open_axes_take_the_sizes_of_a_sample_wherever_their_names_stand_and_the_batch_stays_open() {
        let mut graph = GraphProto {
            input: vec![value("x", &["n".into(), 3.into(), "h".into(), Dim::Unknown])],
            output: vec![value("y", &["n".into(), "h".into(), "k".into()])],
            ..GraphProto::default()
        };
        close_sizes(&mut graph, &BTreeMap::from([("x".to_owned(), vec![3, 8, 9])]));
        let dims = |value| TensorType::from_value_info(value).unwrap().dims;
        assert_eq!(dims(&graph.input[0]), ["n".into(), 3.into(), 8.into(), Dim::from(9)]);
        assert_eq!(dims(&graph.output[0]), ["n".into(), 8.into(), Dim::from("k")]);
    }
}
