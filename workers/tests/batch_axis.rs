//! Models of a fixed batch that are opened on random samples.

use syncline_autodiff::DeriveOptions;
use syncline_onnx::{ElementType, GraphBuilder};
use syncline_workers::batch_axis::{BatchAxis, open_batch};

use crate::onnxruntime;

#[test]
fn a_fixed_batch_of_images_of_open_size_is_opened_also_where_small_ones_do_not_pass() {
    let mut graph = GraphBuilder::new("windows");
    let x = graph.input("x", ElementType::F32, &[2.into(), 1.into(), "height".into(), "width".into()]);
    let w = graph.weight("w", &[1, 1, 7, 7], &[0.1; 49]);
    let windows = graph.op("Conv", &[&x, &w], &[]);
    let y = graph.op("GlobalAveragePool", &[&windows], &[]);
    graph.output(&y);
    let opened =
        open_batch(&onnxruntime::runtime(), &graph.finish().to_bytes(), &DeriveOptions::default()).unwrap();
    assert!(matches!(opened, BatchAxis::Opened { from: 2, .. }), "{opened:?}");
}

#[test]
fn a_fixed_batch_is_opened_beside_a_mask() {
    let mut graph = GraphBuilder::new("masked");
    let x = graph.input("x", ElementType::F32, &[4.into(), 3.into()]);
    let mask = graph.input("mask", ElementType::Bool, &[4.into(), 3.into()]);
    let (w, low) = (graph.weight("w", &[3, 3], &[0.1; 9]), graph.weight("low", &[1], &[-1.0]));
    let scores = graph.op("MatMul", &[&x, &w], &[]);
    let y = graph.op("Where", &[&mask, &scores, &low], &[]);
    graph.output(&y);
    let opened =
        open_batch(&onnxruntime::runtime(), &graph.finish().to_bytes(), &DeriveOptions::default()).unwrap();
    assert!(matches!(opened, BatchAxis::Opened { from: 4, .. }), "{opened:?}");
}
