//! No gradient flows through what PyTorch has detached, and all other gradients stay.
//!
//! `tests/stop_gradient/make_stop_gradient.py` wrote the files and says what is in them.

use std::{fs, path::Path};

use safetensors::SafeTensors;
use syncline_autodiff::{DeriveOptions, Loss, TrainingGraph, derive, parse_forward, warnings};
use syncline_onnx::proto::StringStringEntryProto;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_int};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

const TOLERANCE: f32 = 1e-5;

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stop_gradient").join(name)).unwrap()
}

fn derived(model: &[u8], options: &DeriveOptions) -> TrainingGraph {
    derive(&onnxruntime::runtime(), model, Loss::Output, options).unwrap()
}

/// Loss and gradients of one batch, gradients in the order of the parameters.
fn run(graph: &TrainingGraph, inputs: &[(&str, [usize; 2], &[f32])]) -> (f32, Vec<Vec<f32>>) {
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let mut fed: Vec<_> =
        inputs.iter().map(|(name, shape, data)| (*name, TensorView::F32 { shape, data })).collect();
    let held = graph.params.iter();
    fed.extend(held.map(|p| (p.name.as_str(), TensorView::F32 { shape: &p.shape, data: &p.initial })));
    let outputs = session.run(&fed).unwrap();
    let grad = |name: &str| outputs.f32(&format!("{name}.grad")).unwrap().to_vec();
    (outputs.scalar("loss").unwrap(), graph.params.iter().map(|param| grad(&param.name)).collect())
}

/// The model with PyTorch's word for `detach()` at the nodes of these names.
fn detaching(mut model: ModelProto, nodes: &[&str]) -> Vec<u8> {
    for node in &mut model.graph.as_mut().unwrap().node {
        if nodes.contains(&node.name.as_str()) {
            node.metadata_props.push(StringStringEntryProto {
                key: "pkg.torch.onnx.fx_node".to_owned(),
                value: "%detach : call_function[target=torch.ops.aten.detach.default](args = (%h,))"
                    .to_owned(),
            });
        }
    }
    model.to_bytes()
}

#[test]
fn a_model_that_detaches_has_the_gradients_of_pytorch() {
    let bytes = file("gradients.safetensors");
    let wanted = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let data = wanted.tensor(name).unwrap().data();
        data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let (a, b, loss) = (floats("a"), floats("b"), floats("loss")[0]);
    let inputs = [("a", [5, 6], a.as_slice()), ("b", [5, 6], b.as_slice())];
    for (simplify, recompute) in [(true, false), (true, true), (false, false)] {
        let what = format!("simplify {simplify}, recompute {recompute}");
        let options = DeriveOptions { simplify, recompute, ..DeriveOptions::default() };
        let graph = derived(&file("dynamo.onnx"), &options);
        assert_eq!(graph.params.len(), 13, "{what}");
        let mut unreached = graph.unreached.clone();
        unreached.sort_unstable();
        assert_eq!(unreached, ["scale", "teacher.bias", "teacher.weight"], "{what}");
        let (got, grads) = run(&graph, &inputs);
        assert!((got - loss).abs() <= TOLERANCE, "{what}: {got} is not {loss}");
        for (param, got) in graph.params.iter().zip(grads) {
            let want = floats(&format!("grad.{}", param.name));
            let off = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            assert!(
                got.len() == want.len() && off <= TOLERANCE,
                "{what}: {} is off by {off:.1e}",
                param.name
            );
        }
    }
}

#[test]
fn what_is_detached_needs_no_warning() {
    let model = parse_forward(&file("dynamo.onnx")).unwrap();
    let said = warnings(&model, &DeriveOptions::default()).unwrap();
    assert!(said.iter().all(|text| !text.contains("detach")), "{said:?}");
}

#[test]
fn the_evaluation_graph_computes_what_it_did() {
    let model = |nodes: &[&str]| detaching(straight_through(), nodes);
    let x: Vec<f32> = (0..6).map(|at| 0.3 * at as f32 - 0.7).collect();
    let losses = [&["stop"] as &[&str], &[]].map(|nodes| {
        let graph = derived(&model(nodes), &DeriveOptions::default());
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.eval_onnx, &ExecOptions::default()).unwrap();
        let mut fed = vec![("x", TensorView::F32 { shape: &[2, 3], data: &x })];
        let held = graph.params.iter();
        fed.extend(held.map(|p| (p.name.as_str(), TensorView::F32 { shape: &p.shape, data: &p.initial })));
        session.run(&fed).unwrap().scalar("loss").unwrap()
    });
    assert_eq!(losses[0], losses[1]);
}

/// The square of q, with h = x w and q = h + stop(round(h) - h).
fn straight_through() -> ModelProto {
    let mut graph = GraphBuilder::new("straight through");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let w = graph.weight("w", &[3, 1], &[2.0, -1.5, 3.0]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let rounded = graph.op("Round", &[&h], &[]);
    let apart = graph.op("Sub", &[&rounded, &h], &[]);
    let stopped = graph.named("stop", "Identity", &[&apart], &[]);
    let q = graph.op("Add", &[&h, &stopped], &[]);
    let y = graph.op("Mul", &[&q, &q], &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn a_straight_through_estimator_has_the_gradient_of_what_it_rounds_to() {
    let x = [0.5, 1.0, 0.25, -1.0, 0.5, 2.0];
    let inputs = [("x", [2, 3], x.as_slice())];
    // The mean of both: 2 round(h) x / 2, with h = 0.25 and 3.25.
    let rounded = [0.0, 3.0];
    let want = [0, 1, 2].map(|at| rounded[0] * x[at] + rounded[1] * x[3 + at]);
    for simplify in [true, false] {
        let options = DeriveOptions { simplify, ..DeriveOptions::default() };
        let (_, grads) = run(&derived(&detaching(straight_through(), &["stop"]), &options), &inputs);
        assert_eq!(grads, [want], "simplify {simplify}");
        let graph = derived(&straight_through().to_bytes(), &options);
        assert_eq!(run(&graph, &inputs).1, [[0.0; 3]], "a plain Identity stops nothing: round is flat");
    }
}

#[test]
fn a_plain_copy_of_what_is_detached_lets_its_gradient_through() {
    let mut graph = GraphBuilder::new("copies");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into()]);
    let w = graph.weight("w", &[1, 1], &[2.0]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let stopped = graph.named("stop", "Identity", &[&h], &[]);
    let copied = graph.named("copy", "Identity", &[&h], &[]);
    let y = graph.op("Mul", &[&stopped, &copied], &[]);
    [&y, &copied, &stopped].into_iter().for_each(|output| graph.output(output));
    let model = graph.finish();
    for simplify in [true, false] {
        let options = DeriveOptions { simplify, ..DeriveOptions::default() };
        let graph = derived(&detaching(model.clone(), &["stop"]), &options);
        let (loss, grads) = run(&graph, &[("x", [1, 1], &[3.0])]);
        assert_eq!((loss, grads), (36.0, vec![vec![18.0]]), "simplify {simplify}: h times dh");
    }
}

#[test]
fn a_loss_that_is_detached_reaches_no_parameter() {
    for op in ["Softmax", "Relu"] {
        let mut graph = GraphBuilder::new("detached");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
        let w = graph.weight("w", &[3, 2], &[2.0, -1.5, 3.0, 0.5, 0.25, 1.0]);
        let h = graph.op("MatMul", &[&x, &w], &[]);
        let attributes = if op == "Softmax" { vec![attr_int("axis", 1)] } else { Vec::new() };
        let y = graph.op(op, &[&h], &attributes);
        let y = graph.named("stop", "Identity", &[&y], &[]);
        graph.output(&y);
        let model = detaching(graph.finish(), &["stop"]);
        let loss = Loss::SoftmaxCrossEntropy;
        let graph = derive(&onnxruntime::runtime(), &model, loss, &DeriveOptions::default()).unwrap();
        assert_eq!(graph.unreached, ["w"], "{op}");
    }
}
