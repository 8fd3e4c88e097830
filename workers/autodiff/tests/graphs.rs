//! Whole models against finite differences, each at two batch sizes with one training graph.

use syncline_autodiff::{DeriveOptions, Loss, Precision, TrainingGraph, accept_ready, derive};
use syncline_onnx::{
    DeclaredTypes, ElementType, GraphBuilder, ModelProto, SplitMix64, TensorType, attr_float, attr_int,
    attr_ints, mlp, parse,
};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::gradcheck::Check;
use crate::onnxruntime;

fn check(model: &ModelProto, loss: Loss, batches: &[&[(&str, &[usize])]]) -> TrainingGraph {
    let runtime = onnxruntime::runtime();
    Check { runtime: &runtime, model, loss, options: DeriveOptions::default(), seed: 21 }
        .at(batches)
        .unwrap_or_else(|why| panic!("{why}"))
}

/// A weight of random numbers.
fn weight(graph: &mut GraphBuilder, name: &str, shape: &[usize]) -> String {
    let mut random = SplitMix64::new(name.len() as u64 + 31 * shape.len() as u64);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32 * 0.7).collect();
    graph.weight(name, shape, &data)
}

fn input(graph: &mut GraphBuilder, width: usize) -> String {
    graph.input("x", ElementType::F32, &["batch".into(), width.into()])
}

#[test]
fn perceptron_with_cross_entropy() {
    let graph =
        check(&mlp(&[5, 7, 6, 4], 3), Loss::SoftmaxCrossEntropy, &[&[("x", &[6, 5])], &[("x", &[1, 5])]]);
    let names: Vec<&str> = graph.params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"]);
    assert!(graph.has_correct);
    let label = graph.label.unwrap();
    assert_eq!((label.element, label.dims), (ElementType::I64, vec!["batch".into()]));
    assert_eq!(graph.data_inputs[0].dims, ["batch".into(), 5.into()]);
    assert_eq!(graph.forward_outputs[0].name, "logits");
}

#[test]
fn the_training_graph_of_a_perceptron_holds_nothing_silly() {
    let runtime = onnxruntime::runtime();
    let model = mlp(&[5, 7, 6, 4], 3).to_bytes();
    let graph = derive(&runtime, &model, Loss::SoftmaxCrossEntropy, &DeriveOptions::default()).unwrap();
    let graph = parse(&graph.train_onnx).unwrap().graph.unwrap();
    let count = |op: &str| graph.node.iter().filter(|node| node.op_type == op).count();
    assert_eq!(count("Gemm"), 3 + 3 + 2, "the first layer needs no gradient of the data");
    assert_eq!(count("Transpose") + count("Identity") + count("Reshape") + count("MatMul"), 0);
    assert_eq!(count("ReduceSum"), 3 + 2, "biases, loss, correct");
    assert_eq!(graph.node.len(), 39);
    assert!(graph.initializer.iter().all(|tensor| tensor.shape().iter().product::<usize>() <= 2));
}

#[test]
fn parameters_that_no_gradient_reaches_are_named() {
    let mut graph = GraphBuilder::new("two heads");
    let x = input(&mut graph, 3);
    let [first, used, other] =
        ["first", "used.weight", "other.weight"].map(|name| weight(&mut graph, name, &[3, 3]));
    let hidden = graph.op("MatMul", &[&x, &first], &[]);
    let whole = graph.op("Round", &[&hidden], &[]);
    let heads = [used, other].map(|head| graph.op("MatMul", &[&whole, &head], &[]));
    heads.iter().for_each(|head| graph.output(head));
    let options = DeriveOptions { output: Some(heads[0].clone()), ..DeriveOptions::default() };
    let model = graph.finish().to_bytes();
    let derived = derive(&onnxruntime::runtime(), &model, Loss::MeanSquaredError, &options).unwrap();
    assert_eq!(derived.params.len(), derived.unreached.len() + 1, "{:?}", derived.unreached);
    assert!(!derived.unreached.contains(&"used.weight".to_owned()));
}

#[test]
fn a_layer_on_sequences_folds_its_batch_into_one_product() {
    let mut graph = GraphBuilder::new("sequence");
    let x = graph.input("x", ElementType::F32, &["batch".into(), "time".into(), 3.into()]);
    let (w, v) = (weight(&mut graph, "w", &[3, 4]), weight(&mut graph, "v.", &[4, 2]));
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let h = graph.op("Tanh", &[&h], &[]);
    let y = graph.op("MatMul", &[&h, &v], &[]);
    graph.output(&y);
    let graph = check(&graph.finish(), Loss::MeanSquaredError, &[&[("x", &[2, 3, 3])], &[("x", &[4, 1, 3])]]);
    let graph = parse(&graph.train_onnx).unwrap().graph.unwrap();
    let grads = graph.node.iter().filter(|node| node.output[0].ends_with(".grad"));
    assert!(grads.map(|node| node.op_type.as_str()).eq(["Gemm", "Gemm"]), "one product for each weight");
}

#[test]
fn a_transposed_matrix_times_a_vector_is_what_it_says() {
    // ONNX Runtime 1.31.1 fuses the two and computes something else.
    let mut graph = GraphBuilder::new("pooling");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 2.into()]);
    let q = graph.weight("q", &[3], &[1.0, 10.0, 200.0]);
    let turned = graph.op("Transpose", &[&x], &[attr_ints("perm", &[0, 2, 1])]);
    let y = graph.op("MatMul", &[&turned, &q], &[]);
    graph.output(&y);
    let model = graph.finish();
    let graph = check(&model, Loss::MeanSquaredError, &[&[("x", &[2, 3, 2])], &[("x", &[1, 3, 2])]]);

    let runtime = onnxruntime::runtime();
    let exported = syncline_autodiff::with_columns(model).to_bytes();
    for (what, onnx) in
        [("training", graph.train_onnx), ("evaluation", graph.eval_onnx), ("exported", exported)]
    {
        let mut session = Executable::new(&runtime, &onnx, &ExecOptions::default()).unwrap();
        let views = [
            ("x", TensorView::F32 { shape: &[1, 3, 2], data: &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0] }),
            ("label", TensorView::F32 { shape: &[1, 2], data: &[0.0; 2] }),
            ("q", TensorView::F32 { shape: &[3], data: &[1.0, 10.0, 200.0] }),
        ];
        let wanted: Vec<_> =
            views.into_iter().filter(|(name, _)| session.input_names().iter().any(|n| n == name)).collect();
        let outputs = session.run(&wanted).unwrap();
        assert_eq!(outputs.f32(&y).unwrap(), [621.0, 1254.0], "{what}");
    }
}

#[test]
fn residual_branches() {
    let mut graph = GraphBuilder::new("residual");
    let x = input(&mut graph, 4);
    let (w1, w2, w3) = (
        weight(&mut graph, "w1", &[4, 6]),
        weight(&mut graph, "w2.", &[6, 6]),
        weight(&mut graph, "w3..", &[6, 3]),
    );
    let h = graph.op("Gemm", &[&x, &w1], &[]);
    let inner = graph.op("Tanh", &[&h], &[]);
    let inner = graph.op("MatMul", &[&inner, &w2], &[]);
    let gate = graph.op("Sigmoid", &[&h], &[]);
    let gated = graph.op("Mul", &[&inner, &gate], &[]);
    let sum = graph.op("Add", &[&h, &gated], &[]);
    let twice = graph.op("Add", &[&sum, &h], &[]);
    let y = graph.op("MatMul", &[&twice, &w3], &[]);
    graph.output(&y);
    check(&graph.finish(), Loss::SoftmaxCrossEntropy, &[&[("x", &[4, 4])], &[("x", &[2, 4])]]);
}

#[test]
fn one_weight_in_three_places() {
    let mut graph = GraphBuilder::new("shared");
    let x = input(&mut graph, 3);
    let w = weight(&mut graph, "w", &[3, 3]);
    let b = weight(&mut graph, "b", &[3]);
    let one = graph.op("Gemm", &[&x, &w, &b], &[]);
    let one = graph.op("Tanh", &[&one], &[]);
    let two = graph.op("Gemm", &[&one, &w, &b], &[attr_int("transB", 1), attr_float("alpha", 0.5)]);
    let three = graph.op("Mul", &[&two, &b], &[]);
    let y = graph.op("MatMul", &[&three, &w], &[]);
    graph.output(&y);
    check(&graph.finish(), Loss::MeanSquaredError, &[&[("x", &[5, 3])], &[("x", &[2, 3])]]);
}

#[test]
fn regression_with_tanh_and_sigmoid() {
    let mut graph = GraphBuilder::new("regression");
    let x = input(&mut graph, 3);
    let w1 = weight(&mut graph, "w1", &[8, 3]);
    let b1 = weight(&mut graph, "b1", &[8]);
    let w2 = weight(&mut graph, "w2", &[8, 2]);
    let b2 = weight(&mut graph, "b2", &[1, 2]);
    let h = graph.op("Gemm", &[&x, &w1, &b1], &[attr_int("transB", 1)]);
    let h = graph.op("Tanh", &[&h], &[]);
    let h = graph.op("MatMul", &[&h, &w2], &[]);
    let h = graph.op("Sub", &[&h, &b2], &[]);
    let y = graph.op("Sigmoid", &[&h], &[]);
    graph.output(&y);
    let graph = check(&graph.finish(), Loss::MeanSquaredError, &[&[("x", &[7, 3])], &[("x", &[3, 3])]]);
    assert!(!graph.has_correct);
    let label = graph.label.unwrap();
    assert_eq!((label.element, label.dims), (ElementType::F32, vec!["batch".into(), 2.into()]));
}

#[test]
fn image_like_input_through_flatten_reshape_and_inner_softmax() {
    let mut graph = GraphBuilder::new("image");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into(), 3.into(), 4.into()]);
    let scale = weight(&mut graph, "scale", &[1, 3, 1]);
    let w = weight(&mut graph, "w", &[12, 5]);
    let target = graph.ints("target", &[-1, 12]);
    let h = graph.op("Mul", &[&x, &scale], &[]);
    let attention = graph.op("Softmax", &[&h], &[attr_int("axis", 2)]);
    let h = graph.op("Mul", &[&h, &attention], &[]);
    let h = graph.op("Flatten", &[&h], &[]);
    let h = graph.op("Reshape", &[&h, &target], &[]);
    let y = graph.op("MatMul", &[&h, &w], &[]);
    graph.output(&y);
    check(&graph.finish(), Loss::SoftmaxCrossEntropy, &[&[("x", &[3, 1, 3, 4])], &[("x", &[2, 1, 3, 4])]]);
}

#[test]
fn an_unused_parameter_has_a_zero_gradient() {
    let mut graph = GraphBuilder::new("unused");
    let x = input(&mut graph, 2);
    let w = weight(&mut graph, "w", &[2, 2]);
    weight(&mut graph, "never", &[3, 1]);
    let side = weight(&mut graph, "side", &[2, 2]);
    let y = graph.op("MatMul", &[&x, &w], &[]);
    let z = graph.op("MatMul", &[&y, &side], &[]);
    graph.output(&y);
    graph.output(&z);
    let graph = check(&graph.finish(), Loss::MeanSquaredError, &[&[("x", &[2, 2])], &[("x", &[3, 2])]]);
    assert_eq!(graph.params.len(), 3);
    assert_eq!(graph.forward_outputs.len(), 2);
}

#[test]
fn a_parameter_may_be_an_output_and_gradients_may_coincide() {
    let mut graph = GraphBuilder::new("twins");
    let x = input(&mut graph, 2);
    let (a, b) = (weight(&mut graph, "a", &[2]), weight(&mut graph, "b", &[2]));
    let sum = graph.op("Add", &[&x, &a], &[]);
    let y = graph.op("Add", &[&sum, &b], &[]);
    graph.output(&y);
    graph.output(&sum);
    check(&graph.finish(), Loss::MeanSquaredError, &[&[("x", &[2, 2])], &[("x", &[4, 2])]]);
}

#[test]
fn the_loss_may_look_at_another_output_and_weights_may_be_frozen() {
    let mut graph = GraphBuilder::new("heads");
    let x = input(&mut graph, 3);
    let (a, b) = (weight(&mut graph, "a", &[3, 4]), weight(&mut graph, "b.", &[4, 2]));
    let h = graph.op("MatMul", &[&x, &a], &[]);
    let probabilities = graph.op("Softmax", &[&h], &[]);
    let y = graph.named("scores", "MatMul", &[&probabilities, &b], &[]);
    graph.output(&h);
    graph.output(&y);
    let options = DeriveOptions {
        output: Some("scores".into()),
        freeze: vec!["b.".into()],
        ..DeriveOptions::default()
    };
    let runtime = onnxruntime::runtime();
    let model = graph.finish();
    let graph = Check { runtime: &runtime, model: &model, loss: Loss::SoftmaxCrossEntropy, options, seed: 2 }
        .at(&[&[("x", &[3, 3])], &[("x", &[1, 3])]])
        .unwrap();
    assert_eq!(graph.params.len(), 1);
}

#[test]
fn every_output_says_its_type_in_a_file_whose_parameters_can_be_fed() {
    let mut old = mlp(&[5, 7, 4], 3);
    old.ir_version = 3;
    let runtime = onnxruntime::runtime();
    for precision in [Precision::F32, Precision::Fp16, Precision::Bf16] {
        let options = DeriveOptions { precision, ..DeriveOptions::default() };
        let graph = derive(&runtime, &old.to_bytes(), Loss::SoftmaxCrossEntropy, &options).unwrap();
        for (bytes, least) in [(&graph.train_onnx, 7), (&graph.eval_onnx, 3)] {
            let model = parse(bytes).unwrap();
            assert!(model.ir_version >= 8, "{precision:?}: {}", model.ir_version);
            let outputs = model.graph.unwrap().output;
            assert!(outputs.len() >= least);
            for output in outputs {
                let ty = TensorType::from_value_info(&output);
                assert!(ty.is_some(), "{precision:?}: {} has no type", output.name);
                if let Some(param) = graph.params.iter().find(|p| output.name == format!("{}.grad", p.name)) {
                    assert_eq!(ty.unwrap().fixed_shape(), Some(param.shape.clone()), "{}", output.name);
                }
            }
        }
        assert!(accept_ready(&DeclaredTypes, &graph.with_first_values().unwrap(), None).is_ok());
    }
}
