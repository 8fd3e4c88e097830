//! Weights become inputs.

use std::collections::HashSet;

use syncline_onnx::proto::{DimensionProto, DimensionValue, GraphProto, ModelProto, ValueInfoProto};
use syncline_onnx::{Dim, ElementType, TensorType};

use super::bounds::check_bounds;
use super::eval_parts::evaluate_parts;
use super::nondifferentiable::refuse_nondifferentiable;
use super::open_sizes::close_sizes;
use super::padding_idx::hold_padding;
use super::select::{Selected, select};
use super::stop_gradient::mark_stops;
use super::tied_names::TiedNames;
use super::training_form::{activate_dropout, statistics};
use crate::error::AutodiffError;
use crate::options::{DeriveOptions, EvalMode};
use crate::row_tables::Untrained;
use crate::training_graph::Param;

/// What became of the inputs and constants of a model.
pub(super) struct Weights {
    pub(super) params: Vec<Param>,
    pub(super) state: Vec<Param>,
    pub(super) untrained: Vec<Untrained>,
    pub(super) data_inputs: Vec<String>,
    pub(super) evaluated: HashSet<String>,
    pub(super) tied: TiedNames,
}

/// Turns trained weights and running statistics into inputs, and refuses what cannot be trained.
pub(super) fn lift_weights(
    model: &mut ModelProto,
    options: &DeriveOptions,
) -> Result<Weights, AutodiffError> {
    let (selected, tied) = (select(model, options)?, TiedNames::of(model));
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
    mark_stops(graph, &trained);
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
    Ok(Weights { params, state, untrained, data_inputs, evaluated, tied })
}

fn drop_metadata(graph: &mut GraphProto) {
    graph.metadata_props.clear();
    for value in graph.value_info.iter_mut().chain(&mut graph.input).chain(&mut graph.output) {
        value.metadata_props.clear();
    }
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
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

/// Names the first axis of each data input `batch` where the model leaves it open; returns the data inputs'
/// names.
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
