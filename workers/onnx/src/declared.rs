//! A compiler that believes what a model says of itself.

use crate::{
    compiler::{CompileError, Compiler, Types},
    element::TensorType,
    parse::parse,
    proto::ValueInfoProto,
};

/// Types as a model declares them for its inputs and outputs; nothing is inferred, folded or loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeclaredTypes;

impl Compiler for DeclaredTypes {
    fn interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        let graph = parse(model)?.graph.unwrap_or_default();
        let declared =
            |value: &ValueInfoProto| Some((value.name.clone(), TensorType::from_value_info(value)?));
        Ok(graph.input.iter().chain(&graph.output).filter_map(declared).collect())
    }

    fn folded_interface_types(&self, model: &[u8]) -> Result<Types, CompileError> {
        self.interface_types(model)
    }

    fn simplify(&self, model: &[u8]) -> Result<Vec<u8>, CompileError> {
        Ok(model.to_vec())
    }
}
