//! How many rows the table has that an input of integers chooses from: an embedding, most often.
//!
//! ONNX Runtime fails at an id behind the last row, in the middle of training, and takes a negative one from the end
//! without a word, where PyTorch's `Embedding` refuses it.

use std::collections::{BTreeMap, BTreeSet};

use syncline_onnx::proto::{GraphProto, NodeProto};

use crate::training_graph::TrainingGraph;

/// Operators that pass on every number of their first input. A Cast passes on what a table has rows for.
const PASSING: [&str; 8] =
    ["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"];

/// Rows of the smallest table that the numbers of `input` choose from as they are; `None` if they choose from none, or only
/// after something has changed them, such as a Clip. `graph` is that of `training`, its nodes in the order of their use.
pub fn rows_of_table(graph: &GraphProto, training: &TrainingGraph, input: &str) -> Option<usize> {
    let mut ids = BTreeSet::from([input]);
    let mut tables = shapes_of_tables(graph, training);
    let mut fewest: Option<usize> = None;
    for node in &graph.node {
        let (Some(read), Some(made)) = (node.input.first(), node.output.first()) else { continue };
        let chooses =
            node.op_type == "Gather" && node.input.get(1).is_some_and(|by| ids.contains(by.as_str()));
        if let Some(shape) = tables.get(read.as_str()).copied().filter(|_| chooses) {
            fewest = rows(node, shape).into_iter().chain(fewest).min();
        } else if PASSING.contains(&node.op_type.as_str()) && ids.contains(read.as_str()) {
            ids.insert(made);
        } else if matches!(node.op_type.as_str(), "Cast" | "Identity")
            && let Some(shape) = tables.get(read.as_str()).copied()
        {
            tables.insert(made, shape);
        }
    }
    fewest
}

/// Everything that has the same numbers whatever the data.
fn shapes_of_tables<'a>(graph: &'a GraphProto, training: &'a TrainingGraph) -> BTreeMap<&'a str, Table> {
    let table = |shape: &[usize]| Some(Table { rows: *shape.first()?, axes: shape.len() as i64 });
    let held = training.params.iter().chain(&training.state);
    let held = held.filter_map(|param| Some((param.name.as_str(), table(&param.shape)?)));
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
