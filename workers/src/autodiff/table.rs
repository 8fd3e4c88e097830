//! How many rows the table has that an input of integers chooses from: an embedding, most often.
//!
//! ONNX Runtime fails at an id behind the last row, in the middle of training, and takes a negative one from the end
//! without a word, where PyTorch's `Embedding` refuses it.

use std::collections::{BTreeMap, BTreeSet};

use super::training_graph::TrainingGraph;
use crate::onnx::proto::{GraphProto, NodeProto};

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

#[cfg(test)]
mod tests {
    use syncline_engine::kit;

    use super::*;
    use crate::autodiff::{DeriveOptions, Loss, derive};
    use crate::backend::Runtime;
    use crate::onnx::{self, ElementType, GraphBuilder, attr_int, attr_ints};

    /// A table of five rows that `choose` reads by the ids, and one score for each of two classes.
    fn rows_of(choose: impl Fn(&mut GraphBuilder, &str, &str) -> String) -> Option<usize> {
        let mut graph = GraphBuilder::new("tagger");
        let ids = graph.input("ids", ElementType::I64, &["batch".into(), 2.into()]);
        let table = graph.weight("table", &[5, 2], &[0.5; 10]);
        let chosen = choose(&mut graph, &table, &ids);
        graph.output(&chosen);
        let model = graph.finish().to_bytes();
        let runtime = Runtime::load(&kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path).unwrap();
        let (loss, options) = (Loss::SoftmaxCrossEntropy, DeriveOptions::default());
        let training = derive(&runtime, &model, loss, &options).unwrap();
        let graph = onnx::parse(&training.train_onnx).unwrap().graph.unwrap();
        rows_of_table(&graph, &training, "ids")
    }

    #[test]
    fn ids_that_index_a_parameter_as_they_are_have_to_be_its_rows() {
        assert_eq!(rows_of(|g, table, ids| g.op("Gather", &[table, ids], &[])), Some(5));
        assert_eq!(rows_of(|g, table, ids| g.op("Gather", &[table, ids], &[attr_int("axis", -2)])), Some(5));
        let through_a_cast = |g: &mut GraphBuilder, table: &str, ids: &str| {
            let short = g.op("Cast", &[ids], &[attr_int("to", 6)]);
            g.op("Gather", &[table, &short], &[])
        };
        assert_eq!(rows_of(through_a_cast), Some(5));
    }

    #[test]
    fn the_smallest_of_several_tables_counts() {
        let two = |g: &mut GraphBuilder, table: &str, ids: &str| {
            let small = g.weight("small", &[3, 2], &[0.5; 6]);
            let chosen = [g.op("Gather", &[table, ids], &[]), g.op("Gather", &[&small, ids], &[])];
            g.op("Add", &[&chosen[0], &chosen[1]], &[])
        };
        assert_eq!(rows_of(two), Some(3));
    }

    #[test]
    fn ids_that_the_model_changes_first_may_be_anything() {
        let clipped = |g: &mut GraphBuilder, table: &str, ids: &str| {
            let (low, high) = (g.ints("low", &[0]), g.ints("high", &[4]));
            let low = g.op("Squeeze", &[&low], &[]);
            let high = g.op("Squeeze", &[&high], &[]);
            let ids = g.op("Clip", &[ids, &low, &high], &[]);
            g.op("Gather", &[table, &ids], &[])
        };
        assert_eq!(rows_of(clipped), None);
    }

    #[test]
    fn other_axes_are_not_rows() {
        let columns = |g: &mut GraphBuilder, table: &str, ids: &str| {
            let chosen = g.op("Gather", &[table, ids], &[attr_int("axis", 1)]);
            g.op("Transpose", &[&chosen], &[attr_ints("perm", &[1, 2, 0])])
        };
        assert_eq!(rows_of(columns), None);
    }
}
