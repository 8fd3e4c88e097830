//! A part of a model that computes in another float than its parameters have.

use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, attr_int};

use crate::onnxruntime;
use crate::slopes::{SMOOTH, numbers};

const SIZES: [usize; 2] = [4, 3];

/// y = norm(x + w), computed in `element`.
fn normalized(op: &str, element: ElementType) -> ModelProto {
    let to = |element: ElementType| [attr_int("to", i64::from(element.code()))];
    let mut graph = GraphBuilder::new(op).with_opset(21);
    let mut random = SplitMix64::new(3);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 4.into(), 3.into()]);
    let w = graph.weight("w", &SIZES, &numbers(&mut random, &SIZES));
    let h = graph.op("Add", &[&x, &w], &[]);
    let size = if op == "LayerNormalization" { 3 } else { 4 };
    let mut inputs = vec![graph.op("Cast", &[&h], &to(element))];
    for name in ["scale", "bias"] {
        let weight = graph.weight(name, &[size], &numbers(&mut random, &[size]));
        inputs.push(graph.op("Cast", &[&weight], &to(element)));
    }
    if op == "BatchNormalization" {
        for (name, number) in [("mean", 0.1), ("variance", 1.5)] {
            let held = graph.constant(TensorProto::from_f32(name, &[size], &vec![number; size]));
            inputs.push(graph.op("Cast", &[&held], &to(element)));
        }
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let groups = (op == "GroupNormalization").then(|| attr_int("num_groups", 2));
    let normed = graph.op(op, &inputs, &groups.into_iter().collect::<Vec<_>>());
    let y = graph.op("Cast", &[&normed], &to(ElementType::F32));
    graph.output(&y);
    graph.finish()
}

#[test]
fn normalizations_train_in_float64_and_float16() {
    let train = ["w", "scale", "bias"];
    for op in ["LayerNormalization", "BatchNormalization"] {
        SMOOTH.check(op, &normalized(op, ElementType::F64), &train, &[&[("x", &[4, 4, 3])]]);
    }
    // Differences in float16 say nothing.
    for op in ["LayerNormalization", "GroupNormalization", "BatchNormalization"] {
        for simplify in [false, true] {
            let options = DeriveOptions {
                train: Some(train.map(str::to_owned).to_vec()),
                simplify,
                ..DeriveOptions::default()
            };
            let model = normalized(op, ElementType::F16).to_bytes();
            derive(&onnxruntime::runtime(), &model, Loss::MeanSquaredError, &options)
                .unwrap_or_else(|error| panic!("{op}: {error}"));
        }
    }
}
