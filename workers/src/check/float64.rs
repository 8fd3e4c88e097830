//! The same model in float64.

use std::collections::HashSet;

use syncline_onnx::proto::{ATTRIBUTE_TENSOR, AttributeProto, GraphProto, TensorProto, ValueInfoProto};
use syncline_onnx::{ElementType, ModelProto};

/// Inputs, constants, casts and constants inside nodes become float64 where they were float32.
pub(super) fn to_f64(model: &ModelProto) -> ModelProto {
    let mut model = model.clone();
    if let Some(graph) = &mut model.graph {
        widen(graph);
    }
    model
}

fn widen(graph: &mut GraphProto) {
    graph.input.iter_mut().for_each(retype);
    graph.output.iter_mut().for_each(retype);
    graph.value_info.clear();
    // Those are of float32 whatever is resized.
    let scales: HashSet<&String> = graph
        .node
        .iter()
        .filter(|node| node.op_type == "Resize")
        .filter_map(|node| node.input.get(2))
        .collect();
    graph.initializer.iter_mut().filter(|tensor| !scales.contains(&tensor.name)).for_each(widen_tensor);
    for node in &mut graph.node {
        for attribute in &mut node.attribute {
            let target = attribute.name == "to" || attribute.name == "dtype";
            if target && attribute.i == Some(i64::from(ElementType::F32.code())) {
                attribute.i = Some(i64::from(ElementType::F64.code()));
            }
            widen_attribute(attribute);
        }
        // Without a value it makes float32 zeros.
        if node.op_type == "ConstantOfShape" && node.attribute.is_empty() {
            let zero = TensorProto::from_f64("", &[1], &[0.0]);
            node.attribute.push(AttributeProto {
                name: "value".to_owned(),
                t: Some(zero),
                kind: ATTRIBUTE_TENSOR,
                ..Default::default()
            });
        }
    }
}

fn widen_attribute(attribute: &mut AttributeProto) {
    attribute.t.iter_mut().for_each(widen_tensor);
    attribute.g.iter_mut().for_each(widen);
    // A `Constant` may state its float as a plain number.
    if let (Some(value), "value_float") = (attribute.f, attribute.name.as_str()) {
        *attribute = AttributeProto {
            name: "value".to_owned(),
            t: Some(TensorProto::from_f64("", &[], &[f64::from(value)])),
            kind: ATTRIBUTE_TENSOR,
            ..Default::default()
        };
    }
}

fn widen_tensor(tensor: &mut TensorProto) {
    if let Ok(numbers) = tensor.to_f32() {
        let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
        *tensor = TensorProto::from_f64(&tensor.name, &tensor.shape(), &numbers);
    }
}

fn retype(info: &mut ValueInfoProto) {
    let tensor = info.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
    if let Some(tensor) = tensor.filter(|tensor| tensor.elem_type == ElementType::F32.code()) {
        tensor.elem_type = ElementType::F64.code();
    }
}
