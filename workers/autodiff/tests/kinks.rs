//! Where a function bends there is no slope to compare with: there the gradient is that of PyTorch.

use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::GraphBuilder;
use syncline_onnx::proto::TensorProto;
use syncline_runtime::TensorView::F32;
use syncline_runtime::{ExecOptions, Executable};

use crate::onnxruntime;

const W: [f32; 5] = [-1.0, 0.0, 0.5, 6.0, 7.0];

type Bent = fn(&mut GraphBuilder) -> String;

/// Where the gradient of `w` is not 0.
fn passes(bent: Bent, simplify: bool) -> Vec<f32> {
    let mut graph = GraphBuilder::new("kinks");
    graph.weight("w", &[5], &W);
    graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
    graph.constant(TensorProto::from_f32("six", &[], &[6.0]));
    let y = bent(&mut graph);
    graph.output(&y);
    let (runtime, model) = (onnxruntime::runtime(), graph.finish().to_bytes());
    let options = DeriveOptions { train: Some(vec!["w".to_owned()]), simplify, ..DeriveOptions::default() };
    let graph = derive(&runtime, &model, Loss::MeanSquaredError, &options).unwrap();
    let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
    let fed = |data| F32 { shape: &[5], data };
    let outputs = session.run(&[("w", fed(&W)), ("label", fed(&[9.0; 5]))]).unwrap();
    let grad = outputs.f32("w.grad").unwrap();
    W.into_iter().zip(grad).filter(|(_, slope)| **slope != 0.0).map(|(w, _)| w).collect()
}

#[test]
fn at_a_bound_nothing_flows_back() {
    #[rustfmt::skip]
    let cases: [(&str, Bent, &[f32]); 5] = [
        ("Relu",       |g| g.op("Relu", &["w"], &[]),                     &[0.5, 6.0, 7.0]),
        ("from below", |g| g.op("Clip", &["w", "zero"], &[]),             &[0.5, 6.0, 7.0]),
        ("from above", |g| g.op("Clip", &["w", "", "six"], &[]),          &[-1.0, 0.0, 0.5]),
        ("both",       |g| g.op("Clip", &["w", "zero", "six"], &[]),      &[0.5]),
        // ONNX Runtime makes one of the two.
        ("Relu6",      |g| { let h = g.op("Relu", &["w"], &[]); g.op("Clip", &[&h, "zero", "six"], &[]) }, &[0.5]),
    ];
    for (name, bent, want) in cases {
        for simplify in [false, true] {
            assert_eq!(passes(bent, simplify), want, "{name}, simplify {simplify}");
        }
    }
}
