//! A forward model on its way to a training graph: rewritten, with the types of its values.

use std::collections::HashSet;

use syncline_onnx::proto::{GraphProto, ModelProto, NodeProto};
use syncline_onnx::{Compiler, ElementType, Graph, TensorType, Types, infer_types};

use super::bounds::check_types;
use super::ceil_pools::round_down;
use super::einsum_form::write_einsums;
use super::group_norm_form::write_out_group_norms;
use super::lift_weights::{Weights, lift_weights};
use super::loss_operators::write_out_losses;
use super::matvec::write_columns;
use super::reduced_axes::count_axes_from_front;
use super::scaler::write_out_scalers;
use super::shape_folding::fold_shapes;
use super::split_to_sequence::write_splits;
use super::stop_gradient::{hide_stops, reveal_stops};
use super::training_form::{refuse_in_functions, refuse_within};
use super::untie_weights::parse_forward;
use crate::error::AutodiffError;
use crate::options::DeriveOptions;
use crate::row_tables::{RowTables, Wanted};
use crate::training_graph::Param;

/// Oldest operator set the rules know: from 13 on, axes of reductions are inputs and Softmax has one axis.
const LEAST_OPSET: i64 = 13;

/// Most times that a graph is looked at again because more of its shapes became known; one for each
/// normalization that stands behind another, in the worst of cases.
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
        let graph = count_axes_from_front(model.graph.take().unwrap_or_default(), &types);
        check_types(&graph, &types)?;
        if !options.eval_mode.is_whole() {
            refuse_within(&graph)?;
        }
        let Weights { params, state, untrained, data_inputs, evaluated, tied } = weights;
        let wanted = Wanted { patterns: &options.sparse, tied: &tied };
        let row_tables = RowTables::choose(&graph, &types, &params, &untrained, &data_inputs, wanted)?;
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

    /// Applies what some nodes do, one behind the other, to a value of the type that the first of them reads;
    /// returns the last result.
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

/// Simplifies the model if asked, and rewrites it until no more of its shapes become known; returns the types
/// of its values.
fn resolve_types(
    compiler: &dyn Compiler,
    model: &mut ModelProto,
    simplify: bool,
) -> Result<Types, AutodiffError> {
    if simplify {
        hide_stops(model.graph.get_or_insert_default());
        *model = syncline_onnx::parse(&compiler.simplify(&model.to_bytes())?)?;
        reveal_stops(model.graph.get_or_insert_default());
    }
    let mut types = infer_types(compiler, &model.to_bytes())?;
    // ONNX Runtime adds its own.
    let graph = model.graph.get_or_insert_default();
    graph.node.iter_mut().for_each(|node| node.metadata_props.clear());
    let opset = model.opset();
    for _ in 0..MOST_ROUNDS {
        let graph = model.graph.get_or_insert_default();
        let (sequences, shapes) = (write_splits(graph, &types), fold_shapes(graph, &types));
        let columns = write_columns(graph, |value| types.get(value).map(|ty| ty.dims.len()));
        let pools = round_down(graph, &types, opset);
        let einsums = write_einsums(graph, &types);
        if !(sequences || shapes || columns || pools || einsums) {
            break;
        }
        types = infer_types(compiler, &model.to_bytes())?;
    }
    Ok(types)
}
