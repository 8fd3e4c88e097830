//! Types of all values of a model.

use std::collections::HashSet;

use crate::compiler::{CompileError, Compiler, Types};
use crate::element::{Dim, TensorType};
use crate::parse::parse;
use crate::proto::{ModelProto, NodeProto, ValueInfoProto};

/// The type of every value of a model: inputs, constants, and whatever its nodes produce.
///
/// Every value is declared an output, the model is loaded, and the types of the outputs are read back: this
/// is the compiler's own shape inference, symbolic dimensions included. Costs one load, two where a value
/// seems to be a scalar.
pub fn infer_types(compiler: &dyn Compiler, model: &[u8]) -> Result<Types, CompileError> {
    compiler.enter("infer the types of the model");
    let mut model = parse(model)?;
    let mut constants = Types::new();
    for tensor in model.graph.iter().flat_map(|graph| &graph.initializer) {
        let dims = tensor.shape().into_iter().map(Dim::Fixed).collect();
        constants.insert(tensor.name.clone(), TensorType::new(tensor.element(), dims));
    }
    declare_every_value(&mut model);
    let mut types = compiler.interface_types(&model.to_bytes())?;
    for value in unranked(compiler, model, &types)? {
        types.remove(&value);
    }
    types.extend(constants);
    Ok(types)
}

/// The type of every value after constants have been folded: shapes that are computed are known then. Costs
/// one load.
pub fn folded_value_types(compiler: &dyn Compiler, mut model: ModelProto) -> Result<Types, CompileError> {
    declare_every_value(&mut model);
    compiler.folded_interface_types(&model.to_bytes())
}

/// Proves that a model loads, and tells the types of its inputs and of every value. Much cheaper for large
/// models than to load it for running: where every value is an output, ONNX Runtime does not plan which
/// memory to use again, which takes it a time that grows with the square of the nodes.
pub fn check_loads(compiler: &dyn Compiler, mut model: ModelProto) -> Result<Types, CompileError> {
    compiler.enter("load the training graph");
    declare_every_value(&mut model);
    compiler.interface_types(&model.to_bytes())
}

/// Declares every value that a node makes an output.
pub fn declare_every_value(model: &mut ModelProto) {
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

/// The values whose number of axes is not known. ONNX Runtime reports no axes for them, as it does for
/// scalars; the type of their `Shape` tells the two apart. Costs a session load if there is any such value.
fn unranked(
    compiler: &dyn Compiler,
    mut model: ModelProto,
    types: &Types,
) -> Result<Vec<String>, CompileError> {
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
    let probes = compiler.interface_types(&model.to_bytes())?;
    let scalar = |index: usize| probes.get(&probe(index)).is_some_and(|ty| ty.dims == [Dim::Fixed(0)]);
    let unknown = suspects.into_iter().enumerate().filter(|(index, _)| !scalar(*index));
    Ok(unknown.map(|(_, value)| value.clone()).collect())
}
