//! Which table the ids of an input index, and how many rows it has.

use syncline_autodiff::{DeriveOptions, Loss, derive, rows_of_table};
use syncline_onnx::{ElementType, GraphBuilder, attr_int, attr_ints};

use crate::onnxruntime;

/// A table of five rows that `choose` reads by the ids, and one score for each of two classes.
fn rows_of(choose: impl Fn(&mut GraphBuilder, &str, &str) -> String) -> Option<usize> {
    let mut graph = GraphBuilder::new("tagger");
    let ids = graph.input("ids", ElementType::I64, &["batch".into(), 2.into()]);
    let table = graph.weight("table", &[5, 2], &[0.5; 10]);
    let chosen = choose(&mut graph, &table, &ids);
    graph.output(&chosen);
    let model = graph.finish().to_bytes();
    let runtime = onnxruntime::runtime();
    let (loss, options) = (Loss::SoftmaxCrossEntropy, DeriveOptions::default());
    let training = derive(&runtime, &model, loss, &options).unwrap();
    let graph = syncline_onnx::parse(&training.train_onnx).unwrap().graph.unwrap();
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
