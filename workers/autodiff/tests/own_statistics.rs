//! BatchNormalization with a mean and a variance that the model computes of the batch itself: they are no
//! running statistics, so that it trains as it evaluates.

use syncline_autodiff::{DeriveOptions, EvalMode, Loss, derive};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, attr_int, parse};

use crate::gradcheck::Check;
use crate::onnxruntime;
use crate::slopes::numbers;

/// `[batch, channels, positions]`.
const SHAPE: [usize; 3] = [4, 3, 2];

/// y = x w, normalized by its mean and by the sum of its squared differences through `divisor`.
fn model(divisor: f32) -> ModelProto {
    let mut graph = GraphBuilder::new("own statistics");
    let x = graph.input("x", ElementType::F32, &SHAPE.map(Into::into));
    let w = graph.weight("w", &[3, 2], &numbers(&mut SplitMix64::new(3), &[3, 2]));
    let (scale, bias) =
        (graph.weight("scale", &[3], &[1.2, -0.7, 0.4]), graph.weight("bias", &[3], &[0.1; 3]));
    let (axes, column) = (graph.ints("axes", &[0, 2]), graph.ints("column", &[3, 1]));
    let count = graph.constant(TensorProto::from_f32("count", &[], &[8.0]));
    let divisor = graph.constant(TensorProto::from_f32("divisor", &[], &[divisor]));
    let keep = [attr_int("keepdims", 0)];
    let h = graph.op("Mul", &[&x, &w], &[]);
    let total = graph.op("ReduceSum", &[&h, &axes], &keep);
    let mean = graph.op("Div", &[&total, &count], &[]);
    let level = graph.op("Reshape", &[&mean, &column], &[]);
    let centered = graph.op("Sub", &[&h, &level], &[]);
    let square = graph.op("Mul", &[&centered, &centered], &[]);
    let total = graph.op("ReduceSum", &[&square, &axes], &keep);
    let variance = graph.op("Div", &[&total, &divisor], &[]);
    let y = graph.named("y", "BatchNormalization", &[&h, &scale, &bias, &mean, &variance], &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn a_batch_normalization_by_statistics_that_the_model_computes_keeps_them() {
    let train = Some(["w", "scale", "bias"].map(str::to_owned).to_vec());
    // The second as `torch.var` divides.
    for divisor in [8.0, 7.0] {
        for (eval_mode, simplify) in [
            (EvalMode::Nothing, false),
            (EvalMode::Nothing, true),
            (EvalMode::Whole, false),
            (EvalMode::Whole, true),
        ] {
            let what = format!("divisor {divisor}, {eval_mode:?}, simplify {simplify}");
            let options =
                DeriveOptions { train: train.clone(), eval_mode, simplify, ..DeriveOptions::default() };
            let (runtime, model) = (onnxruntime::runtime(), model(divisor));
            let check =
                Check { runtime: &runtime, model: &model, loss: Loss::MeanSquaredError, options, seed: 5 };
            let graph = check.at(&[&[("x", &SHAPE)]]).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert!(graph.state.is_empty(), "{what}");
        }
    }
}

#[test]
fn running_statistics_may_take_their_type_and_shape_from_the_batch() {
    let mut graph = GraphBuilder::new("running statistics");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 2.into()]);
    let w = graph.weight("w", &[3, 2], &numbers(&mut SplitMix64::new(3), &[3, 2]));
    let h = graph.op("Mul", &[&x, &w], &[]);
    let channels = graph.op("Shape", &[&h], &[attr_int("start", 1), attr_int("end", 2)]);
    let held = ["scale", "bias", "mean", "variance"].map(|name| graph.weight(name, &[3], &[0.5; 3]));
    let [mean, variance] = [&held[2], &held[3]].map(|held| {
        let like = graph.op("CastLike", &[held, &h], &[]);
        graph.op("Reshape", &[&like, &channels], &[])
    });
    let y = graph.named("y", "BatchNormalization", &[&h, &held[0], &held[1], &mean, &variance], &[]);
    graph.output(&y);
    let model = graph.finish().to_bytes();
    for simplify in [false, true] {
        let options = DeriveOptions { simplify, ..DeriveOptions::default() };
        let graph = derive(&onnxruntime::runtime(), &model, Loss::MeanSquaredError, &options).unwrap();
        let outputs = parse(&graph.train_onnx).unwrap().graph.unwrap().output;
        let is_next = |name: &str| outputs.iter().any(|output| output.name == name);
        assert!(["mean.new", "variance.new"].into_iter().all(is_next), "simplify {simplify}");
    }
}
