//! Preparing a forward model: weights become inputs, constants are folded, every value gets a type.

mod bounds;
mod ceil_pools;
mod constant_names;
mod eval_parts;
mod exporter;
mod exporter_metadata;
mod formula;
mod group_norm_form;
mod inference_form;
mod int_constants;
mod loss_operators;
mod matvec;
mod module_path;
mod nondifferentiable;
mod open_outputs;
mod open_sizes;
mod padding_idx;
mod random_masks;
mod scaler;
mod select;
mod shape_folding;
mod shared_weights;
mod split_to_sequence;
mod torch_names;
mod training_form;
mod unnamed_biases;
mod unnamed_equals;
mod untie_weights;

pub(crate) use self::eval_parts::EvalParts;
pub(crate) use self::exporter::{Exported, Exporter};
pub use self::exporter_metadata::TRAINABLE;
pub(crate) use self::exporter_metadata::aliases;
pub use self::inference_form::inference_form;
pub use self::matvec::with_columns;
pub(crate) use self::padding_idx::{hold_padding, looks_for_padding, trained_padding};
pub(crate) use self::random_masks::random_nodes;
pub(crate) use self::select::{HOLDS_NAN, OTHER_FLOAT};
pub use self::select::{Selected, select};
pub(crate) use self::shared_weights::{Shared, shared};
pub use self::training_form::{NEXT_SUFFIX, Statistic};
pub(crate) use self::training_form::{centered, evaluation_form, training_form};
pub use self::untie_weights::parse_forward;

use std::collections::HashSet;

use syncline_onnx::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto,
};
use syncline_onnx::{Compiler, Dim, ElementType, Graph, TensorType, Types, infer_types};

use crate::error::AutodiffError;
use crate::options::{DeriveOptions, EvalMode};
use crate::row_tables::{RowTables, Untrained};
use crate::training_graph::Param;
use bounds::{check_bounds, check_types};
use ceil_pools::round_down;
use eval_parts::evaluate_parts;
use group_norm_form::write_out_group_norms;
use loss_operators::write_out_losses;
use matvec::write_columns;
use nondifferentiable::refuse_nondifferentiable;
use open_sizes::close_sizes;
use scaler::write_out_scalers;
use shape_folding::fold_shapes;
use split_to_sequence::write_splits;
use training_form::{activate_dropout, refuse_in_functions, refuse_within, statistics};

/// Oldest operator set the rules know: from 13 on, axes of reductions are inputs and Softmax has one axis.
const LEAST_OPSET: i64 = 13;

/// Most times that a graph is looked at again because more of its shapes became known; one for each normalization that
/// stands behind another, in the worst of cases.
const MOST_ROUNDS: usize = 100;

/// A forward model whose parameters are inputs and whose values all have types.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) model: ModelProto,
    pub(crate) graph: GraphProto,
    pub(crate) types: Types,
    pub(crate) params: Vec<Param>,
    /// Running statistics, inputs as well.
    pub(crate) state: Vec<Param>,
    pub(crate) data_inputs: Vec<String>,
    /// Names of nodes that train as they evaluate, while the rest of the model trains.
    pub(crate) evaluated: HashSet<String>,
    /// Of these the number of rows is open.
    pub(crate) row_tables: RowTables,
}

impl Forward {
    pub(crate) fn prepare(
        compiler: &dyn Compiler,
        bytes: &[u8],
        options: &DeriveOptions,
    ) -> Result<Self, AutodiffError> {
        let mut model = parse_forward(bytes)?;
        if model.opset() < LEAST_OPSET {
            return Err(AutodiffError::Opset { found: model.opset(), least: LEAST_OPSET });
        }
        if !options.eval_mode.is_whole() {
            refuse_in_functions(&model.functions)?;
        }
        let weights = lift_weights(&mut model, options)?;
        let graph = model.graph.take().unwrap_or_default();
        model.graph = Some(write_out_losses(write_out_scalers(graph)));
        write_out_group_norms(compiler, &mut model)?;
        let mut types = resolve_types(compiler, &mut model, options.simplify)?;
        let graph = model.graph.take().unwrap_or_default();
        check_types(&graph, &types)?;
        if !options.eval_mode.is_whole() {
            refuse_within(&graph)?;
        }
        let Weights { params, state, untrained, data_inputs, evaluated } = weights;
        let row_tables =
            RowTables::choose(&graph, &types, &params, &untrained, &data_inputs, &options.sparse)?;
        row_tables.open_rows(&mut types);
        Ok(Self { model, graph, types, params, state, data_inputs, evaluated, row_tables })
    }

    /// Gives a value another name, which no value has.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        // Subgraphs read it as well.
        let mut graph = Graph::from(std::mem::take(&mut self.graph));
        if let Some(value) = graph.value(from) {
            graph.rename(value, to);
        }
        self.graph = graph.into();
        let outputs = self.graph.output.iter_mut().map(|output| &mut output.name);
        outputs.filter(|name| *name == from).for_each(|name| to.clone_into(name));
        if let Some(found) = self.types.remove(from) {
            self.types.insert(to.to_owned(), found);
        }
    }

    /// Applies what some nodes do, one behind the other, to a value of the type that the first of them reads; returns the last result.
    pub(crate) fn apply(&mut self, nodes: &[NodeProto], mut value: String) -> String {
        let mut graph = Graph::from(std::mem::take(&mut self.graph));
        for node in nodes {
            let other = node.input.iter().skip(1).map(String::as_str);
            let inputs: Vec<_> =
                std::iter::once(value.as_str()).chain(other).map(|input| graph.intern(input)).collect();
            let made = graph.op(&node.op_type, &inputs, &node.attribute);
            graph.name(made).clone_into(&mut value);
            let found = node.output.first().and_then(|output| self.types.get(output)).cloned();
            self.types.extend(found.map(|ty| (value.clone(), ty)));
        }
        self.graph = graph.into();
        value
    }

    /// The type of a graph input.
    pub(crate) fn type_of(&self, name: &str) -> TensorType {
        self.types.get(name).cloned().unwrap_or_else(|| TensorType::new(ElementType::F32, Vec::new()))
    }
}

/// What became of the inputs and constants of a model.
struct Weights {
    params: Vec<Param>,
    state: Vec<Param>,
    untrained: Vec<Untrained>,
    data_inputs: Vec<String>,
    evaluated: HashSet<String>,
}

/// Turns trained weights and running statistics into inputs, and refuses what cannot be trained.
fn lift_weights(model: &mut ModelProto, options: &DeriveOptions) -> Result<Weights, AutodiffError> {
    let selected = select(model, options)?;
    let frozen = selected.iter().filter(|weight| weight.by_settings()).count();
    let untrained: Vec<_> =
        selected.iter().filter_map(|weight| Some((weight.name.clone(), weight.reason?))).collect();
    let trained = trained_of(selected);
    let graph = model.graph.get_or_insert_default();
    hold_padding(graph, &trained);
    let evaluated = match &options.eval_mode {
        EvalMode::Parts(patterns) => evaluate_parts(graph, patterns)?,
        EvalMode::Nothing | EvalMode::Whole => HashSet::new(),
    };
    // That of exporters is many times the size of the graph, and nobody reads it from here on.
    model.metadata_props.clear();
    drop_metadata(graph);
    check_bounds(graph)?;
    refuse_nondifferentiable(graph, &trained, options.output.as_ref())?;
    if let Some(name) = &options.output {
        keep(graph, name);
    }
    let params = lift(graph, &trained)?;
    if params.is_empty() {
        return Err(nothing_to_train(graph, frozen, &untrained));
    }
    let state = match options.eval_mode.is_whole() {
        true => HashSet::new(),
        false => statistics(graph, |node| !evaluated.contains(&node.name)),
    };
    let state = lift(graph, &state)?;
    close_sizes(graph, &options.sample_shapes);
    let data_inputs = name_batch(graph, params.len() + state.len());
    if !options.eval_mode.is_whole() {
        activate_dropout(graph, options.seed, never_empty(&params), &evaluated);
    }
    Ok(Weights { params, state, untrained, data_inputs, evaluated })
}

fn drop_metadata(graph: &mut GraphProto) {
    graph.metadata_props.clear();
    for value in graph.value_info.iter_mut().chain(&mut graph.input).chain(&mut graph.output) {
        value.metadata_props.clear();
    }
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
}

/// Simplifies the model if asked, and rewrites it until no more of its shapes become known; returns the types of its values.
fn resolve_types(
    compiler: &dyn Compiler,
    model: &mut ModelProto,
    simplify: bool,
) -> Result<Types, AutodiffError> {
    let mut bytes = model.to_bytes();
    if simplify {
        bytes = compiler.simplify(&bytes)?;
        *model = syncline_onnx::parse(&bytes)?;
    }
    let mut types = infer_types(compiler, &bytes)?;
    // ONNX Runtime adds its own.
    let graph = model.graph.get_or_insert_default();
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
    let opset = model.opset();
    for _ in 0..MOST_ROUNDS {
        let graph = model.graph.get_or_insert_default();
        let (sequences, shapes) = (write_splits(graph, &types), fold_shapes(graph, &types));
        let columns = write_columns(graph, |value| types.get(value).map(|ty| ty.dims.len()));
        let pools = round_down(graph, &types, opset);
        if !(sequences || shapes || columns || pools) {
            break;
        }
        types = infer_types(compiler, &model.to_bytes())?;
    }
    Ok(types)
}

/// Refuses what no gradient flows through, before anything of the model is loaded.
pub fn refuse_unloaded(model: &ModelProto, options: &DeriveOptions) -> Result<(), AutodiffError> {
    let trained = trained_of(select(model, options)?);
    model
        .graph
        .as_ref()
        .map_or(Ok(()), |graph| refuse_nondifferentiable(graph, &trained, options.output.as_ref()))
}

fn trained_of(selected: Vec<Selected>) -> HashSet<String> {
    selected.into_iter().filter(|weight| weight.reason.is_none()).map(|weight| weight.name).collect()
}

/// A parameter that has numbers.
pub(crate) fn never_empty(params: &[Param]) -> &str {
    let full = params.iter().find(|param| !param.initial.is_empty());
    full.or(params.first()).map_or("", |param| param.name.as_str())
}

/// Makes an inner value an output, so that it is still there when the model has been simplified.
fn keep(graph: &mut GraphProto, name: &String) {
    let made = graph.node.iter().any(|node| node.output.contains(name));
    if made && !graph.output.iter().any(|output| output.name == *name) {
        graph.output.push(ValueInfoProto::untyped(name.clone()));
    }
}

/// Turns the named constants into inputs; returns them in the order of the model. Other constants stay.
fn lift(graph: &mut GraphProto, names: &HashSet<String>) -> Result<Vec<Param>, AutodiffError> {
    let (weights, constants): (Vec<_>, Vec<_>) =
        std::mem::take(&mut graph.initializer).into_iter().partition(|tensor| names.contains(&tensor.name));
    // Old models list their constants as inputs too; a constant that nobody can override is easier to fold.
    let constant_names: HashSet<&str> =
        weights.iter().chain(&constants).map(|tensor| tensor.name.as_str()).collect();
    graph.input.retain(|input| !constant_names.contains(input.name.as_str()));
    graph.initializer = constants.clone();

    let mut params = Vec::with_capacity(weights.len());
    for tensor in &weights {
        let shape = tensor.shape();
        let dims = shape.iter().copied().map(Dim::Fixed).collect();
        graph.input.push(TensorType::new(ElementType::F32, dims).to_value_info(&tensor.name));
        params.push(Param { name: tensor.name.clone(), shape, initial: tensor.to_f32()? });
    }
    Ok(params)
}

/// Why a model has no weights to train.
fn nothing_to_train(graph: &GraphProto, frozen: usize, untrained: &[Untrained]) -> AutodiffError {
    if frozen > 0 {
        return AutodiffError::AllFrozen { count: frozen };
    }
    let classical = graph.node.iter().find(|node| {
        node.domain == "ai.onnx.ml" && node.attribute.iter().any(|attribute| attribute.floats.len() > 1)
    });
    if let Some(node) = classical {
        return AutodiffError::NumbersInAttributes {
            node: node.label().to_owned(),
            op: node.op_type.clone(),
        };
    }
    match untrained.first() {
        Some((name, reason)) => {
            AutodiffError::AllLeftAlone { name: name.clone(), reason, others: untrained.len() - 1 }
        }
        None => AutodiffError::NoParameters,
    }
}

/// Names the first axis of each data input `batch` where the model leaves it open; returns the data inputs' names.
fn name_batch(graph: &mut GraphProto, params: usize) -> Vec<String> {
    let count = graph.input.len() - params;
    for input in &mut graph.input[..count] {
        if let Some(DimensionProto { value }) = first_dimension(input) {
            let open = match value {
                None => true,
                Some(DimensionValue::Param(symbol)) => symbol.is_empty(),
                Some(DimensionValue::Value(size)) => *size < 0,
            };
            if open {
                *value = Some(DimensionValue::Param("batch".to_owned()));
            }
        }
    }
    graph.input[..count].iter().map(|input| input.name.clone()).collect()
}

fn first_dimension(input: &mut ValueInfoProto) -> Option<&mut DimensionProto> {
    input.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut()?.dim.first_mut()
}
