//! A training graph speaks a newer operator set than its model, and means the same.

use syncline_autodiff::{DeriveOptions, Loss};
use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, GraphBuilder, ModelProto, TensorType, attr_graph, attr_int};

use crate::gradcheck::Check;
use crate::onnxruntime;

/// Regions of `x`, within a branch if asked, times `w`.
fn regions(within: bool) -> ModelProto {
    let mut graph = GraphBuilder::new("regions").with_opset(13);
    let x = graph.input("x", ElementType::F32, &[1.into(), 1.into(), 6.into(), 6.into()]);
    let w = graph.weight("w", &[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    graph.constant(TensorProto::from_f32("regions", &[1, 4], &[0.5, 1.0, 4.2, 5.0]));
    graph.constant(TensorProto::from_i64("samples", &[1], &[0]));
    let ways = ["output_height", "output_width", "sampling_ratio"].map(|name| attr_int(name, 2));
    let inputs = [x.as_str(), "regions", "samples"];
    let found = if within {
        let yes = NodeProto::named("found", "RoiAlign", &inputs, &ways);
        let no = NodeProto::named("nothing", "Identity", &["zeros"], &[]);
        graph.constant(TensorProto::from_f32("zeros", &[1, 1, 2, 2], &[0.0; 4]));
        let ty = TensorType::new(ElementType::F32, [1, 1, 2, 2].map(Dim::from).to_vec());
        let branch = |node: NodeProto| GraphProto {
            name: node.name.clone(),
            output: vec![ty.to_value_info(&node.output[0])],
            node: vec![node],
            ..GraphProto::default()
        };
        graph.constant(TensorProto::from_f32("low", &[], &[-100.0]));
        let highest = graph.op("ReduceMax", &[&x], &[attr_int("keepdims", 0)]);
        let above = graph.op("Greater", &[&highest, "low"], &[]);
        graph.op(
            "If",
            &[&above],
            &[attr_graph("then_branch", branch(yes)), attr_graph("else_branch", branch(no))],
        )
    } else {
        graph.op("RoiAlign", &inputs, &ways)
    };
    let y = graph.named("y", "Mul", &[&found, &w], &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn regions_of_an_old_operator_set_stay_where_they_were() {
    for within in [false, true] {
        for simplify in [false, true] {
            let options =
                DeriveOptions { train: Some(vec!["w".to_owned()]), simplify, ..DeriveOptions::default() };
            let (runtime, model) = (onnxruntime::runtime(), regions(within));
            let check =
                Check { runtime: &runtime, model: &model, loss: Loss::MeanSquaredError, options, seed: 5 };
            let graph = check.at(&[&[("x", &[1, 1, 6, 6])]]);
            graph.unwrap_or_else(|why| panic!("within {within}, simplify {simplify}: {why}"));
        }
    }
}
