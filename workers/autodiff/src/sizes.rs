//! How large every value of a graph is, once its open axes have a size.
//!
//! In: a model and the size that each open axis of its inputs is taken to have. Out: types without open axes,
//! as far as ONNX Runtime can tell: it first folds what computes shapes, which alone leaves many shapes open.
//! Costs two session loads.

use std::collections::HashSet;

use syncline_onnx::proto::{DimensionValue, ModelProto, ValueInfoProto};
use syncline_onnx::{Compiler, Types, infer_types};

use crate::error::AutodiffError;

/// Types of a model's values by name, with every open axis of its inputs taken to be `axis` long.
pub fn sizes(compiler: &dyn Compiler, model: &ModelProto, axis: usize) -> Result<Types, AutodiffError> {
    let mut model = model.clone();
    let Some(graph) = model.graph.as_mut() else { return Ok(Types::new()) };
    let inputs = graph.input.iter_mut().filter_map(|input| input.r#type.as_mut()?.tensor_type.as_mut());
    for dim in inputs.filter_map(|tensor| tensor.shape.as_mut()).flat_map(|shape| &mut shape.dim) {
        if !matches!(dim.value, Some(DimensionValue::Value(size)) if size >= 0) {
            dim.value = Some(DimensionValue::Value(i64::try_from(axis).unwrap_or(i64::MAX)));
        }
    }
    // Declared types may name the axes that have just got a size.
    graph.value_info.clear();
    let mut types = infer_types(compiler, &model.to_bytes())?;
    let graph = model.graph.get_or_insert_default();
    // What is an output is not folded away: integers and truth values, which compute shapes and axes, must
    // not be.
    let is_data = |name: &String| !name.is_empty() && types.get(name).is_none_or(|ty| ty.element.is_float());
    let declared: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let made = graph.node.iter().flat_map(|node| &node.output);
    let added: Vec<ValueInfoProto> = made
        .filter(|name| is_data(name) && !declared.contains(name.as_str()))
        .map(|name| ValueInfoProto::untyped(name.clone()))
        .collect();
    graph.output.extend(added);
    types.extend(compiler.folded_interface_types(&model.to_bytes())?);
    Ok(types)
}
