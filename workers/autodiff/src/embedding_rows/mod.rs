//! How many rows the tables have from which the numbers of an input choose: embeddings, most often.
//!
//! ONNX Runtime fails at an id behind the last row, in the middle of training, and takes a negative one from
//! the end without a word, where PyTorch's `Embedding` refuses it.

mod positions;

use std::collections::{BTreeMap, HashMap};

use syncline_onnx::Dim;
use syncline_onnx::proto::{GraphProto, NodeProto};

use positions::{Constants, Positions};

/// Rows of the table that each number on the last axis of a sample of `input` chooses from as it is, the
/// smallest of several; one entry where all are alike. `None` for what chooses from no table, or only after
/// something has changed it, such as a Clip; empty if that is all of them. The nodes of `graph` are in the
/// order of their use; `parameters`: names and shapes of those that it is fed with.
pub fn rows_of_tables<'a>(
    graph: &'a GraphProto,
    parameters: impl Iterator<Item = (&'a str, &'a [usize])>,
    input: &'a str,
    dims: &[Dim],
) -> Vec<Option<usize>> {
    let Some(all) = Positions::of(dims) else { return Vec::new() };
    let mut fewest: Vec<Option<usize>> = vec![None; all.len()];
    let constants = Constants::of(graph);
    let mut ids = HashMap::from([(input, all)]);
    let mut tables = shapes_of_tables(graph, parameters);
    for node in &graph.node {
        let Some(read) = node.input.first().map(String::as_str) else { continue };
        let table = tables.get(read).copied();
        let by = node.input.get(1).and_then(|by| ids.get(by.as_str())).filter(|_| node.op_type == "Gather");
        if let (Some(rows), Some(by)) = (table.and_then(|table| rows(node, table)), by) {
            for place in by.places() {
                fewest[place] = fewest[place].into_iter().chain([rows]).min();
            }
        } else if let Some(read) = ids.get(read) {
            let made = read.after(node, &constants);
            ids.extend(node.output.iter().map(String::as_str).zip(made));
        } else if matches!(node.op_type.as_str(), "Cast" | "Identity")
            && let (Some(table), Some(made)) = (table, node.output.first())
        {
            tables.insert(made.as_str(), table);
        }
    }
    let last = dims.get(1..).and_then(<[Dim]>::last).and_then(Dim::fixed);
    let columns = last.unwrap_or(1).max(1);
    let column = |column| column_rows(fewest.iter().skip(column).step_by(columns).copied());
    let mut rows: Vec<Option<usize>> = (0..columns).map(column).collect();
    if rows.iter().all(|one| *one == rows[0]) {
        rows.truncate(usize::from(rows.first().is_some_and(Option::is_some)));
    }
    rows
}

/// Rows that no number of a column may be beyond: the most of them, if all choose.
fn column_rows(numbers: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    numbers.reduce(|one, other| Some(one?.max(other?))).flatten()
}

/// Everything that has the same numbers whatever the data.
fn shapes_of_tables<'a>(
    graph: &'a GraphProto,
    parameters: impl Iterator<Item = (&'a str, &'a [usize])>,
) -> BTreeMap<&'a str, Table> {
    let table = |shape: &[usize]| Some(Table { rows: *shape.first()?, axes: shape.len() as i64 });
    let held = parameters.filter_map(|(name, shape)| Some((name, table(shape)?)));
    let constants = graph.initializer.iter();
    held.chain(constants.filter_map(|tensor| Some((tensor.name.as_str(), table(&tensor.shape())?)))).collect()
}

/// A tensor of at least one axis.
#[derive(Debug, Clone, Copy)]
struct Table {
    rows: usize,
    axes: i64,
}

fn rows(gather: &NodeProto, table: Table) -> Option<usize> {
    let axis = gather.int("axis", 0);
    (axis == 0 || axis == -table.axes).then_some(table.rows)
}
