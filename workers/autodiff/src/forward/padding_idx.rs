//! The row of an embedding that PyTorch leaves alone (`nn.Embedding(padding_idx=..)`).
//!
//! ONNX has no word for it; the metadata of PyTorch's exporter (`dynamo=True`) has one, as the third argument of
//! `aten.embedding.default](args = (%p_emb_weight, %ids, 0)`. A fresh such row is zeros and stays so: where the index is
//! the padding's, the training graph reads zeros that do not depend on the table, so that no gradient comes back. A row of
//! other numbers, or a table that others read as well (a tied head), trains as a whole, which is said.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto, metadata};
use syncline_onnx::{ElementType, attr_int, captured};

use super::torch_names::CALL;

/// A padded table.
struct Padded {
    node: usize,
    table: String,
    index: i64,
    /// Whether the row is zeros and nobody else reads the table.
    idle: bool,
}

/// Makes the padding of the `trained` tables independent of them, where that is the same.
pub(super) fn hold_padding(graph: &mut GraphProto, trained: &HashSet<String>) {
    let held = padded(graph).into_iter().filter(|table| table.idle && trained.contains(&table.table));
    // From the end, so that indices stay those of the nodes.
    for Padded { node, index, .. } in held.collect::<Vec<_>>().into_iter().rev() {
        let gather = &mut graph.node[node];
        let [number, wide, is_padding, mask, at, zero, rows] =
            ["number", "ids", "is", "mask", "axis", "zero", "rows"]
                .map(|part| format!("syncline/padding_{node}_{part}"));
        let ids = gather.input[1].clone();
        let output = std::mem::replace(&mut gather.output[0], rows.clone());
        let to_long = attr_int("to", i64::from(ElementType::I64.code()));
        let nodes = [
            NodeProto::named(&wide, "Cast", &[&ids], &[to_long]),
            NodeProto::named(&is_padding, "Equal", &[&wide, &number], &[]),
            NodeProto::named(&mask, "Unsqueeze", &[&is_padding, &at], &[]),
            NodeProto::named(&output, "Where", &[&mask, &zero, &rows], &[]),
        ];
        graph.node.splice(node + 1..node + 1, nodes);
        graph.initializer.push(TensorProto::from_i64(&number, &[], &[index]));
        graph.initializer.push(TensorProto::from_i64(&at, &[1], &[-1]));
        graph.initializer.push(TensorProto::from_f32(&zero, &[], &[0.0]));
    }
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
