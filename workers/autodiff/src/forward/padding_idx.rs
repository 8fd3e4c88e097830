//! The row of an embedding that PyTorch leaves alone (`nn.Embedding(padding_idx=..)`).
//!
//! ONNX has no word for it; the metadata of PyTorch's exporter (`dynamo=True`) has one, as the third argument
//! of `aten.embedding.default](args = (%p_emb_weight, %ids, 0)`. A fresh such row is zeros and stays so:
//! where the index is the padding's, the training graph reads zeros that do not depend on the table, so that
//! no gradient comes back. A row of other numbers, or a table that others read as well (a tied head), trains
//! as a whole, which is said.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto, metadata};
use syncline_onnx::{ElementType, Graph, attr_int, captured};

use super::torch_names::CALL;

/// How the name of a node ends that looks for the padding among ids: it is in no model of a user.
const IS_PADDING: &str = "/is_padding_idx";

/// Whether this node reads ids because the row of their padding is held.
pub(crate) fn looks_for_padding(node: &NodeProto) -> bool {
    node.op_type == "Equal" && node.name.ends_with(IS_PADDING)
}

/// A padded table.
struct Padded {
    node: usize,
    table: String,
    index: i64,
    /// Whether the row is zeros and nobody else reads the table.
    idle: bool,
}

/// Makes the padding of the `trained` tables independent of them, where that is the same.
pub(crate) fn hold_padding(graph: &mut GraphProto, trained: &HashSet<String>) {
    let held = padded(graph).into_iter().filter(|table| table.idle && trained.contains(&table.table));
    let held: HashMap<usize, i64> = held.map(|table| (table.node, table.index)).collect();
    if held.is_empty() {
        return;
    }
    let mut written = Graph::from(std::mem::take(graph));
    for (index, node) in written.take_nodes().into_iter().enumerate() {
        match held.get(&index) {
            Some(row) => hold(&mut written, node, *row),
            None => {
                written.push(node);
            }
        }
    }
    *graph = written.into();
}

/// Writes the lookup of a table so that `row` is zeros.
fn hold(graph: &mut Graph, mut gather: NodeProto, row: i64) {
    let (ids, output) = (graph.intern(&gather.input[1]), graph.intern(&gather.output[0]));
    let rows = graph.fresh("rows");
    graph.name(rows).clone_into(&mut gather.output[0]);
    graph.push(gather);
    let to_long = attr_int("to", i64::from(ElementType::I64.code()));
    let ids = graph.op("Cast", &[ids], &[to_long]);
    let row = graph.add_constant(TensorProto::from_i64("", &[], &[row]));
    let is_padding = graph.fresh("is_padding");
    graph.push(NodeProto {
        op_type: "Equal".to_owned(),
        name: format!("{}{IS_PADDING}", graph.name(rows)),
        input: vec![graph.name(ids).to_owned(), graph.name(row).to_owned()],
        output: vec![graph.name(is_padding).to_owned()],
        ..NodeProto::default()
    });
    let last = graph.ints(&[-1]);
    let mask = graph.op("Unsqueeze", &[is_padding, last], &[]);
    let zero = graph.add_constant(TensorProto::from_f32("", &[], &[0.0]));
    graph.op_as(output, "", "Where", &[mask, zero, rows], &[]);
}

/// Tables that PyTorch would not train in one row, and that train here as a whole; with that row.
pub(crate) fn trained_padding(graph: &GraphProto) -> Vec<(String, i64)> {
    let tables = padded(graph).into_iter().filter(|table| !table.idle);
    tables.map(|table| (table.table, table.index)).collect()
}

fn padded(graph: &GraphProto) -> Vec<Padded> {
    let tables: HashMap<&str, &TensorProto> = graph
        .initializer
        .iter()
        .filter(|tensor| tensor.element() == ElementType::F32 && tensor.dims.len() == 2)
        .map(|tensor| (tensor.name.as_str(), tensor))
        .collect();
    let found = graph.node.iter().enumerate().filter_map(|(node, gather)| {
        let index = padding_of(gather)?;
        let tensor = *tables.get(gather.input.first()?.as_str())?;
        Some(Padded { node, table: tensor.name.clone(), index, idle: is_zero(tensor, index) })
    });
    let mut found: Vec<Padded> = found.collect();
    let padded: HashSet<usize> = found.iter().map(|table| table.node).collect();
    let others = graph.node.iter().enumerate().filter(|(index, _)| !padded.contains(index));
    let others: HashSet<&str> =
        others.flat_map(|(_, node)| node.input.iter().map(String::as_str).chain(captured(node))).collect();
    found.iter_mut().for_each(|table| table.idle &= !others.contains(table.table.as_str()));
    found
}

/// The padding of an embedding, if there is one.
fn padding_of(node: &NodeProto) -> Option<i64> {
    let gather = node.op_type == "Gather" && node.int("axis", 0) == 0 && node.input.len() == 2;
    let call = metadata(&node.metadata_props, CALL).filter(|_| gather && !node.output.is_empty())?;
    let (_, listed) = call.split_once("aten.embedding.default](args = (")?;
    let (listed, _) = listed.split_once(')')?;
    listed.split(", ").nth(2)?.parse().ok().filter(|index| *index >= 0)
}

fn is_zero(table: &TensorProto, row: i64) -> bool {
    let width = table.shape()[1];
    let numbers = table.to_f32().unwrap_or_default();
    let row = usize::try_from(row).ok().and_then(|row| numbers.chunks(width.max(1)).nth(row));
    row.is_some_and(|row| row.iter().all(|number| *number == 0.0))
}
