//! Models as other tools write them: scikit-learn, Keras, PyTorch's exporters, onnxscript.
//!
//! `tests/producers/make_producers.py` wrote the files. Gradients are compared with differences of the loss
//! in float64, and the loss with the model's own probabilities.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use syncline_autodiff::{
    DeriveOptions, Loss, TrainingGraph, accept_ready, derive, inference_form, parse_forward, select,
};
use syncline_onnx::{ElementType, SplitMix64};
use syncline_runtime::{ExecOptions, Executable, TensorView};
use syncline_workers::check::{CheckOptions, Checked, check, check_graph};

use crate::onnxruntime;

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/producers/{name}.onnx"))).unwrap()
}

/// scikit-learn calls a value of its own `label`.
fn how(output: Option<&str>) -> DeriveOptions {
    DeriveOptions {
        label: "target".to_owned(),
        output: output.map(str::to_owned),
        ..DeriveOptions::default()
    }
}

fn options() -> CheckOptions {
    CheckOptions { batch: 5, dims: HashMap::new(), seed: 1 }
}

fn assert_right(name: &str, checked: &Checked) {
    assert_eq!(checked.gradients, ElementType::F64, "{name}");
    for param in &checked.params {
        assert!(checked.passes(param) && param.norm > 0.0, "{name}: {param:?}");
    }
}

#[test]
fn models_of_every_tool_train() {
    use Loss::{BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy};
    let runtime = onnxruntime::runtime();
    #[rustfmt::skip]
    let cases = [
        ("sklearn_mlp",       SoftmaxCrossEntropy, None,                           4),
        ("sklearn_pipeline",  SoftmaxCrossEntropy, None,                           4),
        ("sklearn_binary",    BinaryCrossEntropy,  Some("out_activations_result"), 4),
        ("sklearn_binary",    BinaryCrossEntropy,  Some("add_result1"),            4),
        ("sklearn_regressor", MeanSquaredError,    None,                           4),
        ("keras_mlp",         SoftmaxCrossEntropy, None,                           4),
        ("keras_export",      SoftmaxCrossEntropy, None,                           4),
        ("keras_conv",        SoftmaxCrossEntropy, None,                          10),
        ("keras_attention",   SoftmaxCrossEntropy, None,                          15),
        ("keras_gelu",        SoftmaxCrossEntropy, None,                           4),
        ("keras_lstm",        SoftmaxCrossEntropy, None,                           5),
        ("keras_torch",       SoftmaxCrossEntropy, None,                          10),
        ("torch_shapes",      SoftmaxCrossEntropy, None,                           8),
        ("torch_lstm",        SoftmaxCrossEntropy, None,                          19),
        ("torch_gru",         SoftmaxCrossEntropy, None,                          10),
        ("torch_cells",       SoftmaxCrossEntropy, None,                          10),
        ("onnxscript",        MeanSquaredError,    None,                           1),
    ];
    for (name, loss, output, params) in cases {
        let checked = check(&runtime, &file(name), loss, &how(output), &options())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(checked.params.len(), params, "{name}: {:?}", checked.params);
        assert_right(name, &checked);
    }
}

/// Its Erfc is an operator of TensorFlow alone.
#[test]
fn an_exact_gelu_of_keras_predicts_once_it_was_read() {
    let loads = |onnx: &[u8]| Executable::new(&onnxruntime::runtime(), onnx, &ExecOptions::default()).is_ok();
    let exported = file("keras_gelu");
    let read = inference_form(parse_forward(&exported).unwrap()).to_bytes();
    assert_eq!((loads(&exported), loads(&read)), (false, true));
}

#[test]
fn cross_entropy_of_probabilities_is_computed_from_their_scores() {
    let runtime = onnxruntime::runtime();
    #[rustfmt::skip]
    let cases = [
        ("sklearn_mlp", "add_result1",   "probabilities", 4),
        ("keras_mlp",   "BiasAdd:0",     "Identity:0",    6),
    ];
    for (name, scores, probabilities, features) in cases {
        let graph = derive(&runtime, &file(name), Loss::SoftmaxCrossEntropy, &how(None)).unwrap();
        assert!(graph.loss_at.as_ref().unwrap().ends_with(scores), "{name}: {:?}", graph.loss_at);
        let mut random = SplitMix64::new(4);
        let x: Vec<f32> = (0..3 * features).map(|_| random.normal() as f32).collect();
        let (loss, held) = run(&graph, &x, features, &[0, 2, 1], probabilities);
        let expected = -[held[0], held[3 + 2], held[6 + 1]].map(f32::ln).iter().sum::<f32>() / 3.0;
        assert!((loss - expected).abs() < 1e-5 * expected, "{name}: {loss}, expected {expected}");
    }
}

/// Loss and another output at the initial parameters.
fn run(graph: &TrainingGraph, x: &[f32], features: usize, label: &[i64], output: &str) -> (f32, Vec<f32>) {
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let shape = [label.len(), features];
    let mut fed = vec![
        (graph.data_inputs[0].name.as_str(), TensorView::F32 { shape: &shape, data: x }),
        ("target", TensorView::I64 { shape: &shape[..1], data: label }),
    ];
    for param in &graph.params {
        fed.push((&param.name, TensorView::F32 { shape: &param.shape, data: &param.initial }));
    }
    let outputs = session.run(&fed).unwrap();
    (outputs.scalar("loss").unwrap(), outputs.f32(output).unwrap().to_vec())
}

#[test]
fn a_map_of_probabilities_does_not_leave_the_training_graph() {
    let graph = derive(
        &onnxruntime::runtime(),
        &file("sklearn_pipeline"),
        Loss::SoftmaxCrossEntropy,
        &how(Some("output_probability")),
    )
    .unwrap();
    let outputs: Vec<&str> = graph.forward_outputs.iter().map(|io| io.name.as_str()).collect();
    assert_eq!(outputs, ["output_label"]);
    assert_eq!((graph.classes, graph.loss_at.as_deref()), (Some(3), Some("add_result1")));
}

/// Keras with PyTorch as its backend: only the mean that its normalization remembers, which is subtracted,
/// stays.
#[test]
fn biases_train_also_in_a_file_that_names_nothing() {
    let model = parse_forward(&file("keras_torch")).unwrap();
    let left: Vec<String> = select(&model, &DeriveOptions::default())
        .unwrap()
        .into_iter()
        .filter(|one| one.doubtful)
        .map(|one| one.name)
        .collect();
    assert!(left.len() == 1 && left[0].starts_with("onnx::Sub"), "{left:?}");
}

#[test]
fn what_cannot_train_says_why() {
    #[rustfmt::skip]
    let cases = [
        ("sklearn_binary",   Loss::SoftmaxCrossEntropy, "E252", "node `Concat`"),
        ("sklearn_logistic", Loss::SoftmaxCrossEntropy, "E315", "node `LinearClassifier` (LinearClassifier) keeps its numbers in attributes"),
    ];
    for (name, loss, code, part) in cases {
        let error = derive(&onnxruntime::runtime(), &file(name), loss, &how(None)).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(part), "{name}: {error}");
        assert!(error.hint().is_some(), "{name}");
    }
    let taken = derive(
        &onnxruntime::runtime(),
        &file("sklearn_mlp"),
        Loss::SoftmaxCrossEntropy,
        &DeriveOptions::default(),
    );
    assert_eq!(taken.unwrap_err().code(), "E316");
}

#[test]
fn the_training_graph_that_pytorch_exports_is_accepted() {
    let runtime = onnxruntime::runtime();
    let graph = accept_ready(&runtime, &file("torch_joint"), None).unwrap();
    let names: Vec<&str> = graph.params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"]);
    assert!(graph.params[0].initial.iter().any(|&number| number != 0.0), "the file holds the first values");
    assert_eq!(graph.classes, Some(3));
    assert_right("torch_joint", &check_graph(&runtime, &graph, &options()).unwrap());
}
