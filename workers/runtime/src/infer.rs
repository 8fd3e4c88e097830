//! ONNX Runtime as a compiler: types of inputs and outputs, simplification, missing kernels.

use ort::value::{Outlet, ValueType};
use syncline_onnx::{CompileError, Compiler, Dim, ElementType, TensorType, Types};

use crate::error::BackendError;
use crate::runtime::Runtime;
use crate::session::{ExecOptions, Optimize, compile};
use crate::stage;

impl Compiler for Runtime {
    fn interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        Ok(outlets(self, model, Optimize::Off)?)
    }

    fn folded_interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        Ok(outlets(self, model, Optimize::Basic)?)
    }

    fn simplify(&self, model: &[u8]) -> Result<Vec<u8>, CompileError> {
        Ok(simplify(self, model)?)
    }

    fn enter(&self, stage: &str) {
        stage::enter(stage);
    }
}

fn outlets(runtime: &Runtime, onnx_bytes: &[u8], optimize: Optimize) -> Result<Types, BackendError> {
    let model = syncline_onnx::parse(onnx_bytes)?;
    let options = ExecOptions { optimize, ..ExecOptions::default() };
    let session = compile(runtime, model, &options, Ok)?;
    Ok(outlet_types(session.inputs().iter().chain(session.outputs())))
}

/// The same model after ONNX Runtime's basic rewrites: constants folded, functions inlined, only standard
/// operators.
///
/// ONNX Runtime writes the result to a file only, so that a temporary one comes and goes.
fn simplify(runtime: &Runtime, onnx_bytes: &[u8]) -> Result<Vec<u8>, BackendError> {
    stage::enter("simplify the model");
    let model = syncline_onnx::parse(onnx_bytes)?;
    let failed = |error: std::io::Error| BackendError::TemporaryFile {
        folder: std::env::temp_dir(),
        reason: error.to_string(),
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("simplified.onnx");
    let options = ExecOptions { optimize: Optimize::Basic, ..ExecOptions::default() };
    let compiled = compile(runtime, model, &options, |builder| Ok(builder.with_optimized_model_path(&path)?));
    if let Err(refused) = compiled {
        // ONNX Runtime does not say why it could not write: a file of the same size tells.
        return Err(std::fs::write(&path, onnx_bytes).map_or_else(failed, |()| refused));
    }
    std::fs::read(&path).map_err(failed)
}

/// The first operator of a graph for which ONNX Runtime's CPU provider has no kernel; `None` if it can run
/// the graph.
pub fn lacks_kernel(runtime: &Runtime, train_onnx: &[u8]) -> Result<Option<String>, BackendError> {
    let reason = match outlets(runtime, train_onnx, Optimize::Off) {
        Ok(_) => return Ok(None),
        Err(BackendError::Compile { reason }) => reason,
        Err(other) => return Err(other),
    };
    let missing = reason.split_once("implementation for ").map(|(_, rest)| rest);
    let op = missing.and_then(|rest| rest.split(['(', ' ']).next()).map(str::to_owned);
    op.map(Some).ok_or(BackendError::Compile { reason })
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
        T::Uint8 => ElementType::U8,
        T::Int8 => ElementType::Other(3),
        T::Uint16 => ElementType::Other(4),
        T::Int16 => ElementType::Other(5),
        T::String => ElementType::Other(8),
        T::Uint32 => ElementType::Other(12),
        T::Uint64 => ElementType::Other(13),
        _ => ElementType::Other(0),
    }
}
