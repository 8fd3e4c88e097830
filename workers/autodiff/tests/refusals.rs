//! What cannot be trained is refused, and the message says why. Ready-made training graphs are accepted.

use safetensors::{Dtype, tensor::TensorView};
use syncline_autodiff::{AutodiffError, DeriveOptions, Loss, accept_ready, derive, supported_operators};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, attr_int, attr_ints, mlp};

use crate::onnxruntime;

fn refused(model: &ModelProto, loss: Loss, options: &DeriveOptions) -> AutodiffError {
    derive(&onnxruntime::runtime(), &model.to_bytes(), loss, options).expect_err("a refusal")
}

/// x [batch, 2] -> before -> MatMul w -> after -> y
fn around_a_weight(before: Option<&str>, after: Option<&str>) -> ModelProto {
    let mut graph = GraphBuilder::new("around");
    let mut value = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 3], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
    if let Some(op) = before {
        value = graph.named("before", op, &[&value], &[]);
    }
    value = graph.op("MatMul", &[&value, &w], &[]);
    if let Some(op) = after {
        value = graph.named("after", op, &[&value], &[]);
    }
    graph.output(&value);
    graph.finish()
}

#[test]
fn an_operator_without_a_rule_is_named_with_its_node_and_the_alternatives() {
    let error =
        refused(&around_a_weight(None, Some("Unique")), Loss::MeanSquaredError, &DeriveOptions::default());
    assert_eq!(error.to_string(), "[E310] no gradient for operator Unique (node `after`)");
    let hint = error.hint().unwrap();
    assert!(["docs/operators.md", "freeze", "model.ready"].iter().all(|way| hint.contains(way)), "{hint}");
    let supported = supported_operators();
    assert!(supported.is_sorted() && supported.contains(&"Gemm") && supported.contains(&"Split"));
}

#[test]
fn an_operator_off_the_path_needs_no_rule() {
    let runtime = onnxruntime::runtime();
    let model = around_a_weight(Some("Shrink"), None).to_bytes();
    derive(&runtime, &model, Loss::MeanSquaredError, &DeriveOptions::default()).unwrap();
}

#[test]
fn refusals() {
    let model = mlp(&[2, 3], 1);
    let renamed = |from: &str, to: &str| {
        let mut model = model.clone();
        let graph = model.graph.as_mut().unwrap();
        let inputs = graph.input.iter_mut().chain(&mut graph.output).map(|value| &mut value.name);
        let tensors = graph.initializer.iter_mut().map(|tensor| &mut tensor.name);
        let nodes = graph.node.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        inputs
            .chain(tensors)
            .chain(nodes)
            .filter(|name| *name == from)
            .for_each(|name| *name = to.to_owned());
        model
    };
    let old = {
        let mut model = model.clone();
        model.opset_import[0].version = 11;
        model
    };
    let bare = {
        let mut graph = GraphBuilder::new("bare");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let y = graph.op("Relu", &[&x], &[]);
        graph.output(&y);
        graph.finish()
    };
    let next_statistic = {
        let mut graph = GraphBuilder::new("next statistic");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let (scale, bias) = (graph.weight("scale", &[2], &[1.0; 2]), graph.weight("bias", &[2], &[0.0; 2]));
        let (mean, variance) = (graph.weight("m", &[2], &[0.0; 2]), graph.weight("v", &[2], &[1.0; 2]));
        let h = graph.named("m.new", "Tanh", &[&x], &[]);
        let y = graph.op("BatchNormalization", &[&h, &scale, &bias, &mean, &variance], &[]);
        graph.output(&y);
        graph.finish()
    };
    let flat = {
        let mut graph = GraphBuilder::new("flat");
        let x = graph.input("x", ElementType::F32, &[2.into()]);
        let w = graph.weight("w", &[2, 2], &[1.0; 4]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        graph.finish()
    };
    let with = |change: fn(&mut DeriveOptions)| {
        let mut options = DeriveOptions::default();
        change(&mut options);
        options
    };
    let plain = DeriveOptions::default();
    #[rustfmt::skip]
    let cases = [
        ("old operator set",  "E312", &old,                         plain.clone()),
        ("no such output",    "E313", &model,                       with(|o| o.output = Some("nobody".into()))),
        ("wrong output rank", "E314", &flat,                        plain.clone()),
        ("no weight",         "E315", &bare,                        plain.clone()),
        ("input is `label`",  "E316", &renamed("x", "label"),       plain.clone()),
        ("output is `loss`",  "E316", &renamed("logits", "loss"),   plain.clone()),
        ("value is `m.new`",  "E316", &next_statistic,              plain.clone()),
        ("frozen nobody",     "E317", &model,                       with(|o| o.freeze = vec!["nobody".into()])),
        ("trained nobody",    "E317", &model,                       with(|o| o.train = Some(vec!["nobody".into()]))),
    ];
    for (name, code, model, options) in cases {
        let error = refused(model, Loss::SoftmaxCrossEntropy, &options);
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(code), "{name}: {error}");
    }
    let garbage = derive(&onnxruntime::runtime(), b"no model", Loss::MeanSquaredError, &plain).unwrap_err();
    assert_eq!(garbage.code(), "E302");
}

#[test]
fn weights_of_nan_are_named_where_nothing_is_left_to_train() {
    let mut graph = GraphBuilder::new("diverged");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let (w, b) = (graph.weight("w", &[2, 2], &[f32::NAN; 4]), graph.weight("b", &[2], &[f32::NAN; 2]));
    let y = graph.op("Gemm", &[&x, &w, &b], &[]);
    graph.output(&y);
    let error = refused(&graph.finish(), Loss::SoftmaxCrossEntropy, &DeriveOptions::default());
    let text = "[E315] model has no trainable float32 weight; left alone: `w` (holds NaN) and 1 more";
    assert_eq!(error.to_string(), text);
    assert!(error.hint().unwrap().contains("diverged"), "{error}");
}

#[test]
fn a_model_that_onnx_runtime_refuses_is_refused() {
    let mut graph = GraphBuilder::new("ill-typed");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[3, 3], &[0.0; 9]);
    let y = graph.op("MatMul", &[&x, &w], &[]);
    graph.output(&y);
    let error = refused(&graph.finish(), Loss::MeanSquaredError, &DeriveOptions::default());
    assert_eq!(error.code(), "E323");
}

#[test]
fn a_resize_of_an_axis_of_open_size_to_a_number_is_refused() {
    for (axis, why) in [(0, "of those of the batch"), (1, "the axis `open` of")] {
        let mut dims = ["batch".into(), 4.into(), 3.into()];
        dims[axis] = "open".into();
        let mut graph = GraphBuilder::new("resize").with_opset(18);
        let x = graph.input("x", ElementType::F32, &dims);
        let w = graph.weight("w", &[3], &[0.5; 3]);
        let h = graph.op("Mul", &[&x, &w], &[]);
        let size = graph.ints("size", &[2]);
        let y = graph.op("Resize", &[&h, "", "", &size], &[attr_ints("axes", &[axis as i64])]);
        graph.output(&y);
        let error = refused(&graph.finish(), Loss::MeanSquaredError, &DeriveOptions::default()).to_string();
        assert!(error.starts_with("[E311]") && error.contains(why), "axis {axis}: {error}");
    }
}

#[test]
fn losses_have_names() {
    for loss in Loss::ALL {
        assert_eq!(loss.to_string().parse::<Loss>().unwrap(), loss);
    }
    let error = "hinge".parse::<Loss>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "[E319] no loss is called `hinge`, there are softmax-cross-entropy, bce-with-logits, mse, l1, huber, output"
    );
    let error = "softmax-crossentropy".parse::<Loss>().unwrap_err().to_string();
    assert!(error.ends_with("huber, output; did you mean `softmax-cross-entropy`?"), "{error}");
}

/// Loss (w . x)^2 with its gradient by hand.
fn ready(initial: Option<&[f32]>, weighted: bool) -> ModelProto {
    let mut graph = GraphBuilder::new("ready");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.input("w", ElementType::F32, &[2.into()]);
    if let Some(initial) = initial {
        graph.weight("w", &[2], initial);
    }
    let y = graph.op("MatMul", &[&x, &w], &[]);
    let square = graph.op("Mul", &[&y, &y], &[]);
    graph.named("loss", "ReduceSum", &[&square], &[attr_int("keepdims", 0)]);
    let two = graph.constant(TensorProto::from_f32("two", &[], &[2.0]));
    let slope = graph.op("Mul", &[&y, &two], &[]);
    let turned = graph.transpose(&x, &[1, 0]);
    graph.named("w.grad", "MatMul", &[&turned, &slope], &[]);
    graph.output("loss");
    graph.output("w.grad");
    graph.output(&y);
    if weighted {
        let one = graph.constant(TensorProto::from_f32("one", &[], &[1.0]));
        let weight = graph.named("loss_weight", "Identity", &[&one], &[]);
        graph.output(&weight);
    }
    graph.finish()
}

#[test]
fn a_ready_made_training_graph_is_accepted() {
    let runtime = onnxruntime::runtime();
    let graph = accept_ready(&runtime, &ready(Some(&[3.0, -1.0]), true).to_bytes(), None).unwrap();
    assert_eq!(graph.params.len(), 1);
    assert_eq!((graph.params[0].shape.clone(), graph.params[0].initial.clone()), (vec![2], vec![3.0, -1.0]));
    assert_eq!(graph.data_inputs.len(), 1);
    assert!(graph.label.is_none() && !graph.has_correct);
    assert_eq!(graph.train_onnx, graph.eval_onnx);
    let inner = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap();
    assert!(inner.initializer.iter().all(|tensor| tensor.name != "w"), "the parameter has to be fed");
}

/// A safetensors file with one tensor.
fn weights(name: &str, numbers: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let view =
        TensorView::new(Dtype::F32, vec![numbers.len()], &bytes).expect("as many bytes as the shape says");
    safetensors::serialize([(name, view)], None).expect("a tensor can be written")
}

#[test]
fn a_ready_made_graph_starts_from_its_own_values_or_from_named_ones_and_never_from_zeros() {
    let runtime = onnxruntime::runtime();
    let start = |initial: Option<&[f32]>, weights: Option<&[u8]>| {
        let graph = accept_ready(&runtime, &ready(initial, true).to_bytes(), weights);
        graph.map(|graph| graph.params[0].initial.clone())
    };
    let own = Some(&[3.0, -1.0][..]);
    let named = weights("w", &[0.5, 0.25]);
    assert_eq!(start(own, Some(&named)).unwrap(), [0.5, 0.25]);
    assert_eq!(start(None, Some(&named)).unwrap(), [0.5, 0.25]);
    let error = start(None, None).unwrap_err();
    assert_eq!(error.code(), "E261");
    assert!(error.to_string().contains("`w`") && error.hint().is_some(), "{error}");
    for (name, weights) in [("another", weights("v", &[0.5, 0.25])), ("longer", weights("w", &[1.0; 3]))] {
        assert_eq!(start(own, Some(&weights)).unwrap_err().code(), "E318", "{name}");
    }
    assert_eq!(start(own, Some(b"nothing")).unwrap_err().code(), "E318");
}

#[test]
fn a_derived_graph_is_a_ready_made_one() {
    let runtime = onnxruntime::runtime();
    let model = mlp(&[4, 5, 3], 9).to_bytes();
    let derived = derive(&runtime, &model, Loss::SoftmaxCrossEntropy, &DeriveOptions::default()).unwrap();
    let ready = accept_ready(&runtime, &derived.with_first_values().unwrap(), None).unwrap();
    assert_eq!(ready.params, derived.params);
    let shape = |graph: &syncline_autodiff::TrainingGraph| {
        graph.params.iter().map(|param| (param.name.clone(), param.shape.clone())).collect::<Vec<_>>()
    };
    assert_eq!(shape(&ready), shape(&derived));
    assert_eq!((ready.label, ready.data_inputs), (derived.label, derived.data_inputs));
    assert_eq!(ready.forward_outputs, derived.forward_outputs);
    assert!(ready.has_correct);
}

#[test]
fn graphs_that_are_no_training_graphs_are_refused() {
    let runtime = onnxruntime::runtime();
    #[rustfmt::skip]
    let cases = [
        ("no loss_weight", ready(None, false), "[E318] not a training graph: it has no output `loss_weight`"),
        ("forward model",  mlp(&[2, 2], 1),    "[E318] not a training graph: it has no output `loss`"),
    ];
    for (name, model, message) in cases {
        let error = accept_ready(&runtime, &model.to_bytes(), None).unwrap_err();
        assert_eq!(error.to_string(), message, "{name}");
    }
}

#[test]
fn a_few_bytes_that_ask_for_gigabytes_are_refused_by_the_nodes_name() {
    for (op, sizes) in
        [("ConstantOfShape", &[1i64 << 20, 1 << 12][..]), ("ConstantOfShape", &[i64::MAX, i64::MAX])]
    {
        let mut graph = GraphBuilder::new("large");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight("w", &[2, 2], &[0.0; 4]);
        let shape = graph.ints("shape", sizes);
        let many = graph.named("many", op, &[&shape], &[]);
        let count = graph.op("ReduceMax", &[&many], &[]);
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.output(&y);
        graph.output(&count);
        let error = refused(&graph.finish(), Loss::MeanSquaredError, &DeriveOptions::default());
        assert_eq!(error.code(), "E248");
        assert!(error.to_string().contains("node `many`"), "{error}");
    }
}

#[test]
fn cut_files_are_refused_and_no_damaged_one_panics() {
    let runtime = onnxruntime::runtime();
    let whole = mlp(&[3, 4, 2], 1).to_bytes();
    for length in (0..whole.len()).step_by(7) {
        let cut = derive(&runtime, &whole[..length], Loss::MeanSquaredError, &DeriveOptions::default());
        assert!(cut.is_err(), "{length} bytes");
    }
    let mut random = syncline_onnx::SplitMix64::new(5);
    for _ in 0..200 {
        let mut damaged = whole.clone();
        let at = (random.next_u64() % whole.len() as u64) as usize;
        damaged[at] = random.next_u64() as u8;
        let _ = derive(&runtime, &damaged, Loss::SoftmaxCrossEntropy, &DeriveOptions::default());
    }
}
