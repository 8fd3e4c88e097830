//! A part of a model evaluates while the rest trains: five steps of it against PyTorch's `model.train();
//! model.body.eval()`.
//!
//! `tests/eval_parts/make_eval_parts.py` wrote the files and says what is in them.

use std::{collections::HashMap, fs, path::Path};

use safetensors::{SafeTensors, tensor::Dtype};
use syncline_autodiff::{
    AutodiffError, DeriveOptions, EvalMode, Loss, Param, TrainingGraph, derive, parse_forward, warnings,
};
use syncline_onnx::proto::NodeProto;
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

const STEPS: usize = 5;
const RATE: f32 = 0.1;
const TOLERANCE: f32 = 1e-5;

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/eval_parts").join(name)).unwrap()
}

fn parts(patterns: &[&str]) -> DeriveOptions {
    let eval_mode = EvalMode::Parts(patterns.iter().map(|&pattern| pattern.to_owned()).collect());
    DeriveOptions { eval_mode, ..DeriveOptions::default() }
}

fn derived(name: &str, options: &DeriveOptions) -> Result<TrainingGraph, AutodiffError> {
    derive(&onnxruntime::runtime(), &file(name), Loss::SoftmaxCrossEntropy, options)
}

fn names(params: &[Param]) -> Vec<&str> {
    params.iter().map(|param| param.name.as_str()).collect()
}

/// The Dropouts that drop.
fn dropping(graph: &TrainingGraph) -> usize {
    let nodes = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap().node;
    let drops = |node: &&NodeProto| node.op_type == "Dropout" && node.input.len() == 3;
    nodes.iter().filter(drops).count()
}

#[test]
fn a_body_that_evaluates_and_a_head_that_trains_are_those_of_pytorch() {
    let bytes = file("steps.safetensors");
    let steps = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        let view = steps.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    for name in ["dynamo.onnx", "script.onnx"] {
        let graph = derived(name, &parts(&["body.*"])).unwrap();
        assert_eq!(names(&graph.state), ["head.2.running_mean", "head.2.running_var"], "{name}");
        assert_eq!(dropping(&graph), 1, "{name}: that of the head");
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let (mut params, mut state) = (graph.params.clone(), graph.state.clone());
        for at in 0..STEPS {
            let x = floats(&format!("x.{at}"));
            let label = steps.tensor(&format!("label.{at}")).unwrap();
            let label: Vec<i64> =
                label.data().as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
            let shape = [label.len(), 1, 6, 6];
            let mut fed = vec![
                (graph.data_inputs[0].name.as_str(), TensorView::F32 { shape: &shape, data: &x }),
                ("label", TensorView::I64 { shape: &shape[..1], data: &label }),
            ];
            let held = params.iter().chain(&state);
            fed.extend(
                held.map(|p| (p.name.as_str(), TensorView::F32 { shape: &p.shape, data: &p.initial })),
            );
            let outputs = session.run(&fed).unwrap();
            let read = |param: &Param, suffix: &str| {
                outputs.f32(&format!("{}{suffix}", param.name)).unwrap().to_vec()
            };
            let grads: Vec<Vec<f32>> = params.iter().map(|param| read(param, ".grad")).collect();
            let next: Vec<Vec<f32>> = state.iter().map(|param| read(param, ".new")).collect();
            for (param, grad) in params.iter_mut().zip(grads) {
                param.initial.iter_mut().zip(grad).for_each(|(number, grad)| *number -= RATE * grad);
            }
            state.iter_mut().zip(next).for_each(|(param, next)| param.initial = next);
        }
        let constants = parse_forward(&file(name)).unwrap().graph.unwrap().initializer;
        let constants =
            constants.iter().map(|tensor| (tensor.name.clone(), tensor.to_f32().unwrap_or_default()));
        let mut after: HashMap<String, Vec<f32>> = constants.collect();
        after.extend(params.into_iter().chain(state).map(|param| (param.name, param.initial)));
        let wanted = steps.names().into_iter().filter_map(|name| name.strip_prefix("after."));
        let mut compared = 0;
        for tensor in wanted {
            let (got, want) = (&after[tensor], floats(&format!("after.{tensor}")));
            let off = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            assert!(got.len() == want.len() && off <= TOLERANCE, "{name}: {tensor} is off by {off:.1e}");
            compared += 1;
        }
        assert_eq!(compared, 14, "{name}");
    }
}

#[test]
fn patterns_say_what_evaluates() {
    #[rustfmt::skip]
    // patterns, running statistics that move, Dropouts that drop
    let cases: [(&[&str], &[&str], usize); 6] = [
        (&["body.*"],               &["head.2.running_mean", "head.2.running_var"],  1),
        (&["head.*"],               &["body.1.running_mean", "body.1.running_var"],  1),
        (&["*.1.weight"],           &["head.2.running_mean", "head.2.running_var"],  2),
        (&["body.3"],               &["body.1.running_mean", "body.1.running_var", "head.2.running_mean", "head.2.running_var"], 1),
        (&["body.1", "head.2"],     &[],                                             2),
        (&["*"],                    &[],                                             0),
    ];
    for name in ["dynamo.onnx", "script.onnx"] {
        for (patterns, moving, drop) in cases {
            let graph = derived(name, &parts(patterns)).unwrap();
            assert_eq!(names(&graph.state), moving, "{name} {patterns:?}");
            assert_eq!(dropping(&graph), drop, "{name} {patterns:?}");
        }
        for pattern in ["neck.*", "body.0.*", "body.0.weight"] {
            let error = derived(name, &parts(&["body.*", pattern])).unwrap_err();
            assert_eq!(error.code(), "E317", "{name}: {error}");
            assert!(error.to_string().contains(&format!("`{pattern}`")), "{name}: {error}");
            assert!(error.hint().unwrap().contains("eval_mode"));
        }
    }
}

#[test]
fn a_dropout_of_no_known_module_drops_and_is_said() {
    let mut model = parse_forward(&file("script.onnx")).unwrap();
    let graph = model.graph.as_mut().unwrap();
    graph.node.iter_mut().filter(|node| node.op_type == "Dropout").for_each(|node| node.name.clear());
    let said = |patterns: &[&str]| {
        let all = warnings(&model, &parts(patterns)).unwrap();
        all.into_iter().filter(|line| line.contains("of which module")).collect::<Vec<_>>()
    };
    let told = said(&["body.*"]);
    assert!(told.len() == 1 && told[0].contains(", nor for 1 more: it drops"), "{told:?}");
    assert_eq!(said(&["*"]), [""; 0]);
    let graph =
        derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::SoftmaxCrossEntropy, &parts(&["body.*"]));
    let graph = graph.unwrap();
    assert_eq!((graph.state.len(), dropping(&graph)), (2, 2));
}
