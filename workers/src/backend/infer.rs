//! ONNX Runtime as a compiler: types of all values, and simplification.

use std::collections::{HashMap, HashSet};

use ort::value::{Outlet, ValueType};

use super::error::BackendError;
use super::runtime::Runtime;
use super::session::{ExecOptions, Optimize, compile};
use super::stage;
use crate::onnx::proto::{ModelProto, NodeProto, ValueInfoProto};
use crate::onnx::{self, Dim, ElementType, TensorType};

/// Type of each value, by name. Values that are no tensors, or whose number of axes only the run knows, are left out.
pub type Types = HashMap<String, TensorType>;

/// The type of every value of a model: inputs, constants, and whatever its nodes produce.
///
/// Every value is declared an output, the model is loaded, and the types of the outputs are read back: this is ONNX
/// Runtime's own shape inference, symbolic dimensions included. Costs one session load.
pub fn infer_types(runtime: &Runtime, onnx_bytes: &[u8]) -> Result<Types, BackendError> {
    stage::enter("infer the types of the model");
    let mut model = onnx::parse(onnx_bytes)?;
    let mut constants = Types::new();
    for tensor in model.graph.iter().flat_map(|graph| &graph.initializer) {
        let dims = tensor.shape().into_iter().map(Dim::Fixed).collect();
        constants.insert(tensor.name.clone(), TensorType::new(tensor.element(), dims));
    }
    declare_every_value(&mut model);
    let mut types = interface_types(runtime, &model.to_bytes())?;
    for value in unranked(runtime, model, &types)? {
        types.remove(&value);
    }
    types.extend(constants);
    Ok(types)
}

pub(super) fn declare_every_value(model: &mut ModelProto) {
    let Some(graph) = model.graph.as_mut() else {
        return;
    };
    let declared: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let produced = graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
    let added: Vec<ValueInfoProto> = produced
        .filter(|name| !declared.contains(*name))
        .map(|name| ValueInfoProto::untyped(name.clone()))
        .collect();
    graph.output.extend(added);
}

/// Proves that a model loads, and tells the types of its inputs and of every value. Much cheaper for large models than
/// to load it for running: where every value is an output, ONNX Runtime does not plan which memory to use again, which
/// takes it a time that grows with the square of the nodes.
pub fn check_loads(runtime: &Runtime, mut model: ModelProto) -> Result<Types, BackendError> {
    stage::enter("load the training graph");
    declare_every_value(&mut model);
    interface_types(runtime, &model.to_bytes())
}

/// The values whose number of axes is not known. ONNX Runtime reports no axes for them, as it does for scalars; the
/// type of their `Shape` tells the two apart. Costs a session load if there is any such value.
fn unranked(runtime: &Runtime, mut model: ModelProto, types: &Types) -> Result<Vec<String>, BackendError> {
    let mut suspects: Vec<&String> =
        types.iter().filter(|(_, ty)| ty.dims.is_empty()).map(|(name, _)| name).collect();
    suspects.sort_unstable();
    let Some(graph) = model.graph.as_mut().filter(|_| !suspects.is_empty()) else {
        return Ok(Vec::new());
    };
    let probe = |index: usize| format!("syncline/axes_of_{index}");
    for (index, value) in suspects.iter().enumerate() {
        graph.node.push(NodeProto::named(&probe(index), "Shape", &[value], &[]));
        graph.output.push(ValueInfoProto::untyped(probe(index)));
    }
    let probes = interface_types(runtime, &model.to_bytes())?;
    let scalar = |index: usize| probes.get(&probe(index)).is_some_and(|ty| ty.dims == [Dim::Fixed(0)]);
    let unknown = suspects.into_iter().enumerate().filter(|(index, _)| !scalar(*index));
    Ok(unknown.map(|(_, value)| value.clone()).collect())
}

/// The types of a model's inputs and outputs. Costs one session load, which also proves that the model loads.
pub fn interface_types(runtime: &Runtime, onnx_bytes: &[u8]) -> Result<Types, BackendError> {
    let model = onnx::parse(onnx_bytes)?;
    let options = ExecOptions { optimize: Optimize::Off, ..ExecOptions::default() };
    let session = compile(runtime, &model, onnx_bytes, &options, Ok)?;
    Ok(outlet_types(session.inputs().iter().chain(session.outputs())))
}

/// The types of a model's inputs and outputs after constants have been folded: shapes that are computed are known then.
pub fn folded_types(runtime: &Runtime, onnx_bytes: &[u8]) -> Result<Types, BackendError> {
    let model = onnx::parse(onnx_bytes)?;
    let options = ExecOptions { optimize: Optimize::Basic, ..ExecOptions::default() };
    let session = compile(runtime, &model, onnx_bytes, &options, Ok)?;
    Ok(outlet_types(session.inputs().iter().chain(session.outputs())))
}

/// The same for every value.
pub fn folded_value_types(runtime: &Runtime, mut model: ModelProto) -> Result<Types, BackendError> {
    declare_every_value(&mut model);
    folded_types(runtime, &model.to_bytes())
}

/// The same model after ONNX Runtime's basic rewrites: constants folded, functions inlined, only standard operators.
///
/// ONNX Runtime writes the result to a file only, so that a temporary one comes and goes.
pub fn simplify(runtime: &Runtime, onnx_bytes: &[u8]) -> Result<Vec<u8>, BackendError> {
    stage::enter("simplify the model");
    let model = onnx::parse(onnx_bytes)?;
    let failed =
        |source: std::io::Error| BackendError::Compile { reason: format!("temporary file: {source}") };
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("simplified.onnx");
    let options = ExecOptions { optimize: Optimize::Basic, ..ExecOptions::default() };
    compile(runtime, &model, onnx_bytes, &options, |builder| Ok(builder.with_optimized_model_path(&path)?))?;
    std::fs::read(&path).map_err(failed)
}

pub(super) fn outlet_types<'o>(outlets: impl Iterator<Item = &'o Outlet>) -> Types {
    outlets.filter_map(|outlet| Some((outlet.name().to_owned(), tensor_type(outlet.dtype())?))).collect()
}

fn tensor_type(value: &ValueType) -> Option<TensorType> {
    let ValueType::Tensor { ty, shape, dimension_symbols } = value else {
        return None;
    };
    let symbols = dimension_symbols.iter().map(String::as_str).chain(std::iter::repeat(""));
    let dims = shape.iter().zip(symbols).map(|(&size, symbol)| match usize::try_from(size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) if symbol.is_empty() => Dim::Unknown,
        Err(_) => Dim::from(symbol),
    });
    Some(TensorType::new(element_type(*ty), dims.collect()))
}

fn element_type(ty: ort::value::TensorElementType) -> ElementType {
    use ort::value::TensorElementType as T;
    match ty {
        T::Float32 => ElementType::F32,
        T::Float64 => ElementType::F64,
        T::Float16 => ElementType::F16,
        T::Bfloat16 => ElementType::Bf16,
        T::Int32 => ElementType::I32,
        T::Int64 => ElementType::I64,
        T::Bool => ElementType::Bool,
        T::Uint8 => ElementType::Other(2),
        T::Int8 => ElementType::Other(3),
        T::Uint16 => ElementType::Other(4),
        T::Int16 => ElementType::Other(5),
        T::String => ElementType::Other(8),
        T::Uint32 => ElementType::Other(12),
        T::Uint64 => ElementType::Other(13),
        _ => ElementType::Other(0),
    }
}
