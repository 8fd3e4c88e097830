//! Whole models as PyTorch exports them, against PyTorch's own gradients in float64 and 20 steps of training.
//!
//! `tests/models/make_expectations.py` wrote the files and says what is in them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};
use syncline_autodiff::{DeriveOptions, Loss, Param, TrainingGraph, derive};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

/// Allowed difference of a gradient, relative to its largest element.
const TOLERANCE: f64 = 1e-4;
/// A gradient below this share of the largest one is zero up to rounding, and compared as if it were this
/// large.
const FLOOR: f64 = 1e-4;
/// Allowed relative difference of a loss in training.
const LOSS_TOLERANCE: f64 = 1e-3;

struct Expected {
    model: Vec<u8>,
    numbers: HashMap<String, (Vec<usize>, Vec<f64>)>,
    integers: HashMap<String, (Vec<usize>, Vec<i64>)>,
    parameters: Vec<String>,
    loss: Loss,
}

impl Expected {
    fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
        let bytes = fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let about = header.metadata().clone().unwrap();
        let (mut numbers, mut integers) = (HashMap::new(), HashMap::new());
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let (shape, data) = (view.shape().to_vec(), view.data());
            let name = name.to_owned();
            match view.dtype() {
                Dtype::F32 => {
                    let data = data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)));
                    numbers.insert(name, (shape, data.collect()));
                }
                Dtype::F64 => {
                    let data = data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
                    numbers.insert(name, (shape, data));
                }
                Dtype::I64 => {
                    let data = data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
                    integers.insert(name, (shape, data));
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        Self {
            model: fs::read(folder.join(format!("{name}.onnx"))).unwrap(),
            numbers,
            integers,
            parameters: about["parameters"].split(' ').map(str::to_owned).collect(),
            loss: about["loss"].parse().unwrap(),
        }
    }

    fn numbers(&self, name: &str) -> &[f64] {
        &self.numbers.get(name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

/// One step: the loss, gradients in the order of the parameters, and the next running statistics.
struct Step {
    loss: f64,
    grads: Vec<Vec<f32>>,
    next: Vec<Vec<f32>>,
}

fn step(
    session: &mut Executable,
    graph: &TrainingGraph,
    params: &[Param],
    statistics: &[(String, Vec<usize>, Vec<f32>)],
    expected: &Expected,
) -> Step {
    let narrow: HashMap<&str, (&[usize], Vec<f32>)> = expected
        .numbers
        .iter()
        .filter(|(name, _)| name.starts_with("input.") || *name == "label")
        .map(|(name, (shape, data))| {
            (name.as_str(), (shape.as_slice(), data.iter().map(|&x| x as f32).collect()))
        })
        .collect();
    let mut views: Vec<(&str, TensorView<'_>)> = Vec::new();
    for io in graph.data_inputs.iter().chain(&graph.label) {
        let key = if io.name == "label" { "label".to_owned() } else { format!("input.{}", io.name) };
        let view = match (narrow.get(key.as_str()), expected.integers.get(&key)) {
            (Some((shape, data)), _) => TensorView::F32 { shape, data },
            (None, Some((shape, data))) => TensorView::I64 { shape, data },
            (None, None) => panic!("nothing to feed to {}", io.name),
        };
        views.push((&io.name, view));
    }
    for param in params {
        views.push((&param.name, TensorView::F32 { shape: &param.shape, data: &param.initial }));
    }
    for (name, shape, data) in statistics {
        views.push((name, TensorView::F32 { shape, data }));
    }
    let outputs = session.run(&views).unwrap();
    let grads = params.iter().map(|p| outputs.f32(&format!("{}.grad", p.name)).unwrap().to_vec()).collect();
    let next =
        statistics.iter().map(|(name, ..)| outputs.f32(&format!("{name}.new")).unwrap().to_vec()).collect();
    Step { loss: f64::from(outputs.scalar("loss").unwrap()), grads, next }
}

/// Running statistics: what the graph wants beside data, label and parameters, as the forward model has it.
fn statistics(
    session: &Executable,
    graph: &TrainingGraph,
    model: &[u8],
) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let known: Vec<&str> = graph.data_inputs.iter().chain(&graph.label).map(|io| io.name.as_str()).collect();
    let known = |name: &str| known.contains(&name) || graph.params.iter().any(|param| param.name == name);
    let constants = syncline_onnx::parse(model).unwrap().graph.unwrap().initializer;
    let find = |name: &String| {
        let tensor = constants.iter().find(|tensor| tensor.name == *name).unwrap();
        (name.clone(), tensor.shape(), tensor.to_f32().unwrap())
    };
    session.input_names().iter().filter(|name| !known(name)).map(find).collect()
}

/// How far two lists of numbers are apart, relative to the largest wanted one, or to `floor` if that is
/// larger.
fn off(got: &[f32], want: &[f64], floor: f64) -> f64 {
    assert_eq!(got.len(), want.len());
    let apart = got.iter().zip(want).map(|(&got, want)| (f64::from(got) - want).abs());
    apart.fold(0.0, |most, x| if x.is_nan() { f64::NAN } else { x.max(most) }) / largest(want).max(floor)
}

fn largest<'x>(numbers: impl IntoIterator<Item = &'x f64>) -> f64 {
    numbers.into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Every complaint about a model; none if it trains as PyTorch trains it.
fn complaints(name: &str) -> Vec<String> {
    let expected = Expected::load(name);
    let runtime = onnxruntime::runtime();
    // This exporter does not note what `cls` and `places` are, and their names are the model's own.
    let listed = ["vit.script", "vit.folded"].contains(&name).then(|| expected.parameters.clone());
    let options = DeriveOptions { params: listed, ..DeriveOptions::default() };
    let graph = match derive(&runtime, &expected.model, expected.loss, &options) {
        Ok(graph) => graph,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    let mut complaints = Vec::new();
    let mut trained: Vec<&str> = graph.params.iter().map(|param| param.name.as_str()).collect();
    trained.sort_unstable();
    if trained != expected.parameters {
        complaints.push(format!("{name}: trains {trained:?}, expected {:?}", expected.parameters));
        return complaints;
    }

    let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
    let mut params = graph.params.clone();
    let statistics = statistics(&session, &graph, &expected.model);
    let first = step(&mut session, &graph, &params, &statistics, &expected);
    let wanted = |name: &str| expected.numbers(&format!("grad.{name}"));
    let floor = FLOOR * largest(params.iter().flat_map(|param| wanted(&param.name)));
    for (param, grad) in params.iter().zip(&first.grads) {
        let index = expected.parameters.iter().position(|name| *name == param.name).unwrap();
        let tolerance = TOLERANCE.max(3.0 * expected.numbers("f32_error")[index]);
        let off = off(grad, wanted(&param.name), floor);
        if off.is_nan() || off > tolerance {
            complaints.push(format!(
                "{name}: gradient of {} is off by {off:.1e}, allowed {tolerance:.1e}",
                param.name
            ));
        }
    }
    let moving = expected.numbers.keys().filter(|key| key.starts_with("new.")).count();
    if moving != statistics.len() {
        complaints.push(format!("{name}: {} running statistics, expected {moving}", statistics.len()));
    }
    for ((statistic, ..), next) in statistics.iter().zip(&first.next) {
        let off = off(next, expected.numbers(&format!("new.{statistic}")), f64::MIN_POSITIVE);
        if off.is_nan() || off > TOLERANCE {
            complaints.push(format!("{name}: next {statistic} is off by {off:.1e}"));
        }
    }

    let rate = expected.numbers("rate")[0] as f32;
    for (at, want) in expected.numbers("losses").iter().enumerate() {
        let Step { loss, grads, .. } = step(&mut session, &graph, &params, &statistics, &expected);
        let off = (loss - want).abs() / want.abs();
        if off.is_nan() || off > LOSS_TOLERANCE {
            complaints.push(format!("{name}: loss of step {at} is {loss}, expected {want}"));
            break;
        }
        for (param, grad) in params.iter_mut().zip(&grads) {
            param.initial.iter_mut().zip(grad).for_each(|(x, g)| *x -= rate * g);
        }
    }
    complaints
}

#[test]
fn models_train_as_in_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".onnx").map(str::to_owned)).collect();
    names.sort();
    assert!(!names.is_empty());
    let mut wrong = Vec::new();
    for name in &names {
        let found = complaints(name);
        eprintln!("{name}: {}", if found.is_empty() { "as in PyTorch" } else { found[0].as_str() });
        wrong.extend(found);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
