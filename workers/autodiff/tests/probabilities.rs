//! Losses of models that end in probabilities: computed from the scores before them, even where these were
//! moved afterwards.

use std::collections::HashSet;

use Loss::{BinaryCrossEntropy, SoftmaxCrossEntropy};
use syncline_autodiff::{
    AutodiffError, DeriveOptions, Loss, LossOptions, TrainingGraph, derive, sigmoid_outputs,
};
use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{
    Dim, ElementType, GraphBuilder, ModelProto, SplitMix64, TensorType, attr_int, attr_ints,
};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

/// An operator that moves elements, its second input, and its attributes.
type Move = (&'static str, Option<&'static [i64]>, Vec<AttributeProto>);

/// `x + p`, squashed by an operator if one is given, and moved.
fn model(sample: &[usize], squash: Option<(&str, &[AttributeProto])>, moves: &[Move]) -> ModelProto {
    let mut graph = GraphBuilder::new("probabilities");
    let dims: Vec<Dim> =
        std::iter::once(Dim::from("batch")).chain(sample.iter().copied().map(Dim::from)).collect();
    let x = graph.input("x", ElementType::F32, &dims);
    let values: Vec<f32> = (0..sample.iter().product::<usize>()).map(|at| at as f32 * 0.3 - 0.5).collect();
    let p = graph.weight("p", sample, &values);
    let mut value = graph.op("Add", &[&x, &p], &[]);
    if let Some((op, attributes)) = squash {
        value = graph.op(op, &[&value], attributes);
    }
    for (at, (op, with, attributes)) in moves.iter().enumerate() {
        let with = with.map(|with| graph.ints(&format!("with{at}"), with));
        let inputs: Vec<&str> = std::iter::once(value.as_str()).chain(with.as_deref()).collect();
        value = graph.op(op, &inputs, attributes);
    }
    graph.output(&value);
    graph.finish()
}

fn derived(model: &ModelProto, loss: Loss, class_axis: Option<i64>) -> Result<TrainingGraph, AutodiffError> {
    let loss_options = LossOptions { class_axis, ..LossOptions::default() };
    let options =
        DeriveOptions { loss: loss_options, train: Some(vec!["p".to_owned()]), ..DeriveOptions::default() };
    derive(&onnxruntime::runtime(), &model.to_bytes(), loss, &options)
}

#[test]
fn softmax_cross_entropy_takes_the_outputs_of_a_sigmoid_for_scores_and_doubts_them() {
    let (sigmoid, softmax) = (Some(("Sigmoid", &[][..])), Some(("Softmax", &[][..])));
    let flatten: &[Move] = &[("Flatten", None, vec![attr_int("axis", 1)])];
    #[rustfmt::skip]
    let cases: [(_, &[Move], _, _); 5] = [
        (sigmoid, &[],     SoftmaxCrossEntropy, true),
        (sigmoid, flatten, SoftmaxCrossEntropy, true),
        (None,    &[],     SoftmaxCrossEntropy, false),
        (softmax, &[],     SoftmaxCrossEntropy, false),
        (sigmoid, &[],     BinaryCrossEntropy,  false),
    ];
    for (squash, moves, loss, is_doubted) in cases {
        let graph = derived(&model(&[3], squash, moves), loss, None).unwrap();
        let doubt = graph.doubtful_scores();
        assert_eq!(doubt.is_some(), is_doubted, "{squash:?}, {loss:?}: {doubt:?}");
    }
}

/// The loss of both graphs, and the gradient, for samples and labels made of a seed.
fn trained(graph: &TrainingGraph, sample: &[usize]) -> (Vec<f32>, Vec<f32>) {
    const BATCH: usize = 4;
    let mut random = SplitMix64::new(11);
    let shape: Vec<usize> = std::iter::once(BATCH).chain(sample.iter().copied()).collect();
    let x: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32).collect();
    let wanted = graph.label.as_ref().unwrap();
    let label_shape: Vec<usize> = wanted.dims.iter().map(|dim| dim.fixed().unwrap_or(BATCH)).collect();
    let count: usize = label_shape.iter().product();
    let classes: Vec<i64> = (0..count).map(|_| (random.next_u64() % 2) as i64).collect();
    let answers: Vec<f32> = classes.iter().map(|&class| class as f32).collect();
    let label = match wanted.element {
        ElementType::I64 => TensorView::I64 { shape: &label_shape, data: &classes },
        _ => TensorView::F32 { shape: &label_shape, data: &answers },
    };
    let fed = [
        ("x", TensorView::F32 { shape: &shape, data: &x }),
        ("p", TensorView::F32 { shape: sample, data: &graph.params[0].initial }),
        ("label", label),
    ];
    let load = |onnx| Executable::new(&onnxruntime::runtime(), onnx, &ExecOptions::default()).unwrap();
    let (mut train, mut eval) = (load(&graph.train_onnx), load(&graph.eval_onnx));
    let evaluated = eval.run(&fed).unwrap().scalar("loss").unwrap();
    let outputs = train.run(&fed).unwrap();
    (vec![outputs.scalar("loss").unwrap(), evaluated], outputs.f32("p.grad").unwrap().to_vec())
}

#[test]
fn probabilities_that_were_moved_train_as_their_scores() {
    let sigmoid = ("Sigmoid", vec![]);
    let softmax = |axis| ("Softmax", vec![attr_int("axis", axis)]);
    let with = |op, with: &'static [i64]| (op, Some(with), vec![]);
    let plain = |op, attribute| (op, None, vec![attribute]);
    let swap = || plain("Transpose", attr_ints("perm", &[0, 2, 1]));
    #[rustfmt::skip]
    let cases: Vec<(Loss, (&str, Vec<AttributeProto>), &[usize], Vec<Move>, Option<i64>)> = vec![
        (BinaryCrossEntropy,  sigmoid.clone(), &[1],       vec![with("Squeeze", &[1])],                            None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[3],       vec![with("Unsqueeze", &[1])],                          None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[1, 3],    vec![plain("Flatten", attr_int("axis", 1))],            None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[1],       vec![with("Reshape", &[-1])],                           None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[3, 2],    vec![swap()],                                           None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[3],       vec![("Gather", Some(&[0, 2]), vec![attr_int("axis", 1)])], None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[3],       vec![plain("Cast", attr_int("to", 1)), with("Tile", &[1, 2])],   None),
        (SoftmaxCrossEntropy, softmax(1),      &[3],       vec![plain("Cast", attr_int("to", 1))],                 None),
        (BinaryCrossEntropy,  sigmoid.clone(), &[1],       vec![("Identity", None, vec![]), with("Squeeze", &[1]), with("Unsqueeze", &[1])], None),
        (SoftmaxCrossEntropy, softmax(2),      &[1, 3],    vec![with("Squeeze", &[1])],                            None),
        (SoftmaxCrossEntropy, softmax(1),      &[3],       vec![with("Unsqueeze", &[1])],                          None),
        (SoftmaxCrossEntropy, softmax(-1),     &[1, 3],    vec![plain("Flatten", attr_int("axis", 1))],            None),
        (SoftmaxCrossEntropy, softmax(1),      &[3, 1, 1], vec![plain("Flatten", attr_int("axis", 1))],            None),
        (SoftmaxCrossEntropy, softmax(1),      &[3, 2, 2], vec![with("Reshape", &[0, 3, 4])],                      Some(1)),
        (SoftmaxCrossEntropy, softmax(1),      &[3, 2],    vec![swap()],                                           None),
        (SoftmaxCrossEntropy, softmax(2),      &[2, 3],    vec![swap()],                                           Some(1)),
        (SoftmaxCrossEntropy, softmax(1),      &[3, 1, 2], vec![with("Squeeze", &[2]), swap()],                    None),
        (SoftmaxCrossEntropy, softmax(2),      &[1, 3],    vec![("Transpose", None, vec![]), with("Squeeze", &[1]), plain("Transpose", attr_ints("perm", &[1, 0]))], None),
    ];
    for (loss, (squash, attributes), sample, moves, class_axis) in cases {
        let name = format!("{squash} {sample:?} {moves:?}");
        let ends_so = model(sample, Some((squash, &attributes)), &moves);
        let squashed = derived(&ends_so, loss, class_axis).unwrap_or_else(|why| panic!("{name}: {why}"));
        let scores = derived(&model(sample, None, &moves), loss, class_axis).unwrap();
        assert_eq!(squashed.label, scores.label, "{name}");
        assert_eq!(trained(&squashed, sample), trained(&scores, sample), "{name}");
        let output = ends_so.graph.as_ref().unwrap().output[0].name.clone();
        let of_sigmoid = if squash == "Sigmoid" { HashSet::from([output]) } else { HashSet::new() };
        assert_eq!(sigmoid_outputs(ends_so.graph.as_ref().unwrap()), of_sigmoid, "{name}");
    }
}

#[test]
fn probabilities_without_scores_are_refused() {
    let softmax = [attr_int("axis", 1)];
    #[rustfmt::skip]
    let cases: [(&str, Loss, &[usize], Vec<Move>); 5] = [
        ("classes of several places",  SoftmaxCrossEntropy, &[3, 2], vec![("Flatten", None, vec![attr_int("axis", 1)])]),
        ("limited",                    SoftmaxCrossEntropy, &[3],    vec![("Clip", None, vec![])]),
        ("classes split",              SoftmaxCrossEntropy, &[4],    vec![("Reshape", Some(&[0, 2, 2]), vec![])]),
        ("some classes alone",         SoftmaxCrossEntropy, &[3],    vec![("Gather", Some(&[0, 1]), vec![attr_int("axis", 1)])]),
        ("one of two for yes or no",   BinaryCrossEntropy,  &[2],    vec![("Gather", Some(&[1]), vec![attr_int("axis", 1)])]),
    ];
    for (name, loss, sample, moves) in cases {
        let error = derived(&model(sample, Some(("Softmax", &softmax)), &moves), loss, None).unwrap_err();
        assert_eq!(error.code(), "E252", "{name}: {error}");
    }
}

#[test]
fn a_refusal_of_probabilities_names_the_scores_and_their_loss() {
    let hint = |squash, loss, moves: &[Move]| {
        let softmax = [attr_int("axis", 1)];
        let attributes = if squash == "Softmax" { &softmax[..] } else { &[] };
        let ends_so = model(&[3], Some((squash, attributes)), moves);
        let nodes = &ends_so.graph.as_ref().unwrap().node;
        let squash = nodes.iter().find(|node| node.op_type == squash).unwrap();
        (derived(&ends_so, loss, None).unwrap_err().hint().unwrap(), format!("`{}`", squash.input[0]))
    };
    let clip: &[Move] = &[("Clip", None, vec![])];
    #[rustfmt::skip]
    let cases = [
        ("Softmax", BinaryCrossEntropy,  &[][..], "softmax-cross-entropy as the loss, with the number of its class"),
        ("Softmax", SoftmaxCrossEntropy, clip,    "softmax-cross-entropy as the loss, with the number of its class"),
        ("Sigmoid", BinaryCrossEntropy,  clip,    "bce-with-logits as the loss, with 0 or 1"),
    ];
    for (squash, loss, moves, want) in cases {
        let (hint, scores) = hint(squash, loss, moves);
        assert!(hint.contains(&format!("the scores before the {squash}: name {scores}")), "{hint}");
        assert!(hint.contains(want), "{hint}");
    }
}

#[test]
fn a_softmax_over_another_axis_makes_scores_as_any_operator() {
    let over_time = model(&[2, 3], Some(("Softmax", &[attr_int("axis", 1)])), &[]);
    let graph = derived(&over_time, SoftmaxCrossEntropy, None).unwrap();
    assert_eq!(graph.loss_at, Some(graph.forward_outputs[0].name.clone()));
    assert_eq!(graph.label.map(|label| (label.element, label.dims)), {
        let ty = TensorType::new(ElementType::I64, vec!["batch".into(), 2.into()]);
        Some((ty.element, ty.dims))
    });
}
