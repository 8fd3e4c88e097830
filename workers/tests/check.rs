//! The gradient check finds wrong gradients, names them, and passes right ones.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use syncline_autodiff::{DeriveOptions, Loss, LossOptions, Precision, TrainingGraph, accept_ready, derive};
use syncline_onnx::proto::{NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto};
use syncline_onnx::{
    ElementType, GraphBuilder, ModelProto, SplitMix64, attr_float, attr_int, attr_ints, mlp,
};
use syncline_workers::check::{CheckOptions, Checked, Verdict, check, check_graph, quick_check};

use crate::onnxruntime;

fn options(seed: u64) -> CheckOptions {
    CheckOptions { batch: 4, dims: HashMap::new(), seed }
}

fn numbers(count: usize) -> Vec<f32> {
    let mut random = SplitMix64::new(9);
    (0..count).map(|_| 0.4 * random.normal() as f32).collect()
}

fn wrong(checked: &Checked) -> Vec<&str> {
    checked.params.iter().filter(|param| !checked.passes(param)).map(|param| param.name.as_str()).collect()
}

/// The training graph with `op(gradient, constant)` in the place of the gradient of `param`.
fn spoiled(graph: &TrainingGraph, param: &str, op: &str, constant: TensorProto) -> TrainingGraph {
    let mut model = syncline_onnx::parse(&graph.train_onnx).unwrap();
    let inner = model.graph.as_mut().unwrap();
    let name = format!("{param}.grad");
    let right = format!("{name}/right");
    for node in &mut inner.node {
        let names = node.input.iter_mut().chain(&mut node.output);
        names.filter(|other| **other == name).for_each(|other| other.clone_from(&right));
    }
    inner.initializer.push(TensorProto { name: "spoiler".to_owned(), ..constant });
    inner.node.push(NodeProto {
        input: vec![right, "spoiler".to_owned()],
        output: vec![name],
        op_type: op.to_owned(),
        ..Default::default()
    });
    TrainingGraph { train_onnx: model.to_bytes(), ..graph.clone() }
}

fn number(value: f32) -> TensorProto {
    TensorProto::from_f32("", &[], &[value])
}

/// Conv, BatchNormalization and a pool before two layers, one of them behind a Gelu.
fn image_model() -> ModelProto {
    let mut graph = GraphBuilder::new("image").with_opset(20);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into(), 6.into(), 6.into()]);
    let w = graph.weight("conv.weight", &[4, 2, 3, 3], &numbers(72));
    let y = graph.op("Conv", &[&x, &w], &[attr_ints("pads", &[1, 1, 1, 1])]);
    let scale = graph.weight("bn.weight", &[4], &[1.0, 1.5, 0.7, 1.2]);
    let bias = graph.weight("bn.bias", &[4], &[0.1, -0.2, 0.3, 0.0]);
    let mean = graph.weight("bn.mean", &[4], &[0.0; 4]);
    let var = graph.weight("bn.var", &[4], &[1.0; 4]);
    let y = graph.op("BatchNormalization", &[&y, &scale, &bias, &mean, &var], &[]);
    let y = graph.op("Relu", &[&y], &[]);
    let y =
        graph.op("AveragePool", &[&y], &[attr_ints("kernel_shape", &[2, 2]), attr_ints("strides", &[2, 2])]);
    let y = graph.op("Flatten", &[&y], &[]);
    let hidden = graph.weight("hidden.weight", &[36, 5], &numbers(180));
    let y = graph.op("MatMul", &[&y, &hidden], &[]);
    let y = graph.op("Gelu", &[&y], &[]);
    let head = graph.weight("head.weight", &[5, 3], &numbers(15));
    let y = graph.op("MatMul", &[&y, &head], &[]);
    graph.output(&y);
    graph.finish()
}

/// Two convolutions over images of open height and width, whose mean goes into a layer.
pub(crate) fn images_of_open_size() -> ModelProto {
    let mut graph = GraphBuilder::new("open").with_opset(20);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into(), "height".into(), "width".into()]);
    let first = graph.weight("first.weight", &[4, 2, 3, 3], &numbers(72));
    let y = graph.op("Conv", &[&x, &first], &[attr_ints("pads", &[1, 1, 1, 1])]);
    let y = graph.op("Relu", &[&y], &[]);
    let second = graph.weight("second.weight", &[3, 4, 3, 3], &numbers(108));
    let y = graph.op("Conv", &[&y, &second], &[attr_ints("strides", &[2, 2])]);
    let y = graph.op("GlobalAveragePool", &[&y], &[]);
    let y = graph.op("Flatten", &[&y], &[]);
    let head = graph.weight("head.weight", &[3, 3], &numbers(9));
    let y = graph.op("MatMul", &[&y, &head], &[]);
    graph.output(&y);
    graph.finish()
}

#[test]
fn a_convolution_over_images_of_open_size_is_checked_with_the_size_that_is_named() {
    let model = images_of_open_size().to_bytes();
    let dims = [("height", 7), ("width", 5)].map(|(name, size)| (name.to_owned(), size)).into();
    for how in [options(0), CheckOptions { dims, ..options(0) }] {
        let checked = check(
            &onnxruntime::runtime(),
            &model,
            Loss::SoftmaxCrossEntropy,
            &DeriveOptions::default(),
            &how,
        )
        .unwrap();
        assert!(checked.params.len() == 3 && checked.params.iter().all(|param| checked.passes(param)));
    }
}

#[test]
fn a_model_that_was_exported_for_one_sample_is_checked_with_as_many_as_a_job_may_give_it() {
    // Of one sample a BatchNormalization of rows makes zero: nothing in front of it would have a gradient.
    let mut graph = GraphBuilder::new("one").with_opset(20);
    let x = graph.input("x", ElementType::F32, &[1.into(), 3.into()]);
    let w = graph.weight("a.weight", &[3, 4], &numbers(12));
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let scale = graph.weight("bn.weight", &[4], &[1.0, 1.5, 0.7, 1.2]);
    let bias = graph.weight("bn.bias", &[4], &[0.1, -0.2, 0.3, 0.0]);
    let mean = graph.weight("bn.running_mean", &[4], &[0.0; 4]);
    let var = graph.weight("bn.running_var", &[4], &[1.0; 4]);
    let y = graph.op("BatchNormalization", &[&h, &scale, &bias, &mean, &var], &[]);
    graph.output(&y);
    let model = graph.finish().to_bytes();
    let how = DeriveOptions::default();
    let checked =
        check(&onnxruntime::runtime(), &model, Loss::SoftmaxCrossEntropy, &how, &options(1)).unwrap();
    assert_eq!(wrong(&checked), Vec::<&str>::new());
    assert!(checked.params.iter().all(|param| param.norm > 1e-3), "{:?}", checked.params);
}

#[test]
fn a_gradient_that_is_scaled_turned_shifted_or_gone_is_found_by_its_name() {
    let runtime = onnxruntime::runtime();
    let models = [(image_model(), Loss::SoftmaxCrossEntropy), (mlp(&[5, 6, 3], 2), Loss::MeanSquaredError)];
    for (model, loss) in models {
        let graph = derive(&runtime, &model.to_bytes(), loss, &DeriveOptions::default()).unwrap();
        let right = check_graph(&runtime, &graph, &options(1)).unwrap();
        assert_eq!(wrong(&right), Vec::<&str>::new());
        assert_eq!((right.differences, right.gradients), (ElementType::F64, ElementType::F64));
        #[rustfmt::skip]
        let spoilers = [("Mul", -1.0), ("Mul", 1.05), ("Mul", 0.999), ("Mul", 0.0), ("Add", 0.01)];
        for param in &graph.params {
            for (op, value) in spoilers {
                let graph = spoiled(&graph, &param.name, op, number(value));
                let checked = check_graph(&runtime, &graph, &options(1)).unwrap();
                assert_eq!(wrong(&checked), [param.name.as_str()], "{op} {value}");
            }
        }
    }
}

#[test]
fn one_wrong_element_of_many_is_found() {
    let runtime = onnxruntime::runtime();
    let model = mlp(&[8, 12, 3], 2).to_bytes();
    let graph = derive(&runtime, &model, Loss::MeanSquaredError, &DeriveOptions::default()).unwrap();
    let mut mask = vec![1.0; 8 * 12];
    mask[17] = 0.0;
    let graph = spoiled(&graph, "fc1.weight", "Mul", TensorProto::from_f32("", &[8, 12], &mask));
    assert_eq!(wrong(&check_graph(&runtime, &graph, &options(3)).unwrap()), ["fc1.weight"]);
}

#[test]
fn without_float64_a_gradient_that_is_5_per_cent_off_is_found() {
    // Tan has no float64 kernel and no other form.
    let runtime = onnxruntime::runtime();
    let mut graph = GraphBuilder::new("tan");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 5.into()]);
    let w = graph.weight("w", &[5, 4], &numbers(20).iter().map(|x| x / 4.0).collect::<Vec<_>>());
    let b = graph.weight("b", &[4], &[0.1, 0.2, -0.1, 0.0]);
    let y = graph.op("Gemm", &[&x, &w, &b], &[]);
    let y = graph.op("Tan", &[&y], &[]);
    graph.output(&y);
    let model = graph.finish().to_bytes();
    let graph = derive(&runtime, &model, Loss::MeanSquaredError, &DeriveOptions::default()).unwrap();
    let right = check_graph(&runtime, &graph, &options(1)).unwrap();
    assert_eq!((wrong(&right), right.differences), (Vec::new(), ElementType::F32));
    for (param, factor) in [("w", 1.05), ("w", 0.95), ("b", 1.05), ("b", -1.0)] {
        let graph = spoiled(&graph, param, "Mul", number(factor));
        assert_eq!(wrong(&check_graph(&runtime, &graph, &options(1)).unwrap()), [param], "{factor}");
    }
}

#[test]
fn models_of_every_kind_pass() {
    let runtime = onnxruntime::runtime();
    let ids = |then: fn(&mut GraphBuilder, String) -> String| {
        let mut graph = GraphBuilder::new("ids");
        let ids = graph.input("ids", ElementType::I64, &["batch".into(), "time".into()]);
        let table = graph.weight("table", &[7, 6], &numbers(42));
        let rows = graph.op("Gather", &[&table, &ids], &[]);
        let scale = graph.weight("norm.weight", &[6], &[1.0, 0.9, 1.1, 1.2, 0.8, 1.0]);
        let bias = graph.weight("norm.bias", &[6], &[0.1; 6]);
        let rows = graph.op("LayerNormalization", &[&rows, &scale, &bias], &[attr_int("axis", -1)]);
        let rate = graph.constant(TensorProto::from_f32("rate", &[], &[0.5]));
        let rows = graph.op("Dropout", &[&rows, &rate], &[]);
        let y = then(&mut graph, rows);
        graph.output(&y);
        graph.finish()
    };
    let per_position = ids(|graph, rows| {
        let head = graph.weight("head", &[6, 7], &numbers(42));
        graph.op("MatMul", &[&rows, &head], &[])
    });
    let whole = ids(|graph, rows| {
        graph.op("ReduceMean", &[&rows], &[attr_ints("axes", &[1]), attr_int("keepdims", 0)])
    });
    let upsampled = {
        let mut graph = GraphBuilder::new("up").with_opset(18);
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into(), 3.into(), 4.into()]);
        let w = graph.weight("w", &[2, 3, 3, 2], &numbers(36));
        let b = graph.weight("b", &[3], &[0.1, 0.2, 0.3]);
        let stretched = [
            attr_ints("strides", &[2, 1]),
            attr_ints("pads", &[1, 0, 0, 1]),
            attr_ints("output_padding", &[1, 0]),
        ];
        let y = graph.op("ConvTranspose", &[&x, &w, &b], &stretched);
        let scales = graph.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 2.0, 1.5]));
        let y = graph.op("Resize", &[&y, "", &scales], &[syncline_onnx::attr_string("mode", "linear")]);
        let s = graph.weight("s", &[3], &[1.0, 1.1, 0.9]);
        let y = graph.op("InstanceNormalization", &[&y, &s, &b], &[]);
        let y = graph.op("Elu", &[&y], &[attr_float("alpha", 0.7)]);
        let y = graph.op("HardSwish", &[&y], &[]);
        let y = graph.op("Softplus", &[&y], &[]);
        graph.output(&y);
        graph.finish()
    };
    let weighted = LossOptions {
        class_weights: vec![1.0, 2.0, 0.5].into(),
        label_smoothing: 0.1,
        ..LossOptions::default()
    };
    #[rustfmt::skip]
    let cases = [
        ("labels per position", per_position,  Loss::SoftmaxCrossEntropy, LossOptions::default()),
        ("integers and dropout", whole,        Loss::Huber,               LossOptions::default()),
        ("batch statistics",    image_model(), Loss::SoftmaxCrossEntropy, weighted),
        ("bce",                 image_model(), Loss::BinaryCrossEntropy,  LossOptions::default()),
        ("resized",             upsampled,     Loss::MeanSquaredError,    LossOptions::default()),
    ];
    for (name, model, loss, settings) in cases {
        let how = DeriveOptions { loss: settings, ..DeriveOptions::default() };
        let checked = check(&runtime, &model.to_bytes(), loss, &how, &options(2)).unwrap();
        assert_eq!(wrong(&checked), Vec::<&str>::new(), "{name}");
        assert_eq!(checked.gradients, ElementType::F64, "{name}");
        assert!(checked.params.iter().all(|param| param.error < 1e-6), "{name}: {:?}", checked.params);
    }
}

#[test]
fn exported_models_pass_in_float64() {
    let runtime = onnxruntime::runtime();
    for name in
        ["convnet.dynamo", "unet.script", "gpt2.script", "bert.dynamo", "vit.script", "densenet.script"]
    {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("autodiff/tests/models/{name}.onnx"));
        let model = fs::read(file).unwrap();
        let how = DeriveOptions::default();
        let checked = check(&runtime, &model, Loss::SoftmaxCrossEntropy, &how, &options(0)).unwrap();
        assert_eq!(wrong(&checked), Vec::<&str>::new(), "{name}");
        assert_eq!(checked.gradients, ElementType::F64, "{name}");
    }
}

#[test]
fn a_ready_made_graph_is_checked_as_it_is() {
    let runtime = onnxruntime::runtime();
    let how = DeriveOptions::default();
    let derived = derive(&runtime, &image_model().to_bytes(), Loss::SoftmaxCrossEntropy, &how).unwrap();
    let ready = accept_ready(&runtime, &derived.with_first_values().unwrap(), None).unwrap();
    assert_eq!(wrong(&check_graph(&runtime, &ready, &options(1)).unwrap()), Vec::<&str>::new());
}

/// The folder of models that tests/checks/make_checks.py made.
fn made(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/checks/{name}.onnx"))).unwrap()
}

#[test]
fn dropout_is_checked_with_the_mask_that_its_seed_draws() {
    let runtime = onnxruntime::runtime();
    for name in ["dropout.dynamo", "dropout.script"] {
        let of_seed = |seed: i64| {
            let how = DeriveOptions { seed, ..DeriveOptions::default() };
            check(&runtime, &made(name), Loss::SoftmaxCrossEntropy, &how, &options(0)).unwrap()
        };
        let (one, again, other) = (of_seed(1), of_seed(1), of_seed(2));
        for checked in [&one, &other] {
            assert_eq!(wrong(checked), Vec::<&str>::new(), "{name}");
            assert_eq!(checked.gradients, ElementType::F64, "{name}");
        }
        assert!(one.loss == again.loss && one.loss != other.loss, "{name}: {} {}", one.loss, other.loss);
        // What the mask does to the gradient is looked at as well.
        let graph =
            derive(&runtime, &made(name), Loss::SoftmaxCrossEntropy, &DeriveOptions::default()).unwrap();
        let mut model = syncline_onnx::parse(&graph.train_onnx).unwrap();
        let inner = model.graph.as_mut().unwrap();
        let masks: Vec<String> = inner
            .node
            .iter()
            .filter(|node| node.op_type == "Dropout")
            .filter_map(|node| node.output.get(1).cloned())
            .collect();
        assert!(!masks.is_empty(), "{name}");
        for node in inner.node.iter_mut().filter(|node| node.op_type == "Cast") {
            if node.input[0] == masks[0] {
                "Not".clone_into(&mut node.op_type);
                node.attribute.clear();
                let turned = node.output[0].clone();
                node.output[0] = "turned".to_owned();
                let back = NodeProto {
                    input: vec!["turned".to_owned()],
                    output: vec![turned],
                    op_type: "Cast".to_owned(),
                    attribute: vec![attr_int("to", i64::from(ElementType::F32.code()))],
                    ..Default::default()
                };
                let at = inner.node.iter().position(|node| node.output[0] == "turned").unwrap();
                inner.node.insert(at + 1, back);
                break;
            }
        }
        let spoiled = TrainingGraph { train_onnx: model.to_bytes(), ..graph };
        assert!(!wrong(&check_graph(&runtime, &spoiled, &options(0)).unwrap()).is_empty(), "{name}");
    }
}

#[test]
fn blocks_that_begin_at_zero_are_no_false_alarm() {
    let runtime = onnxruntime::runtime();
    for name in ["zero_init.dynamo", "zero_init.script"] {
        let how = DeriveOptions::default();
        let checked = check(&runtime, &made(name), Loss::SoftmaxCrossEntropy, &how, &options(0)).unwrap();
        assert_eq!(wrong(&checked), Vec::<&str>::new(), "{name}");
        assert_eq!(checked.gradients, ElementType::F64, "{name}");
        assert!(checked.params.iter().all(|param| param.norm > 0.0), "{name}: parameters are away from zero");
    }
}

#[test]
fn a_quick_look_refuses_a_sum_that_its_exporter_lost_and_says_where() {
    let runtime = onnxruntime::runtime();
    let how = DeriveOptions::default();
    let graph = derive(&runtime, &made("index_add.script"), Loss::SoftmaxCrossEntropy, &how).unwrap();
    let error = quick_check(&runtime, &graph).unwrap_err();
    assert_eq!(error.code(), "E256", "{error}");
    let text = error.to_string();
    let says = ["message.weight, message.bias;", "`/ScatterElements`", "`reduction` is none"];
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_loss_whose_gradients_are_no_numbers_is_refused_with_the_node_and_what_helps() {
    let (runtime, how) = (onnxruntime::runtime(), DeriveOptions::default());
    let graph = derive(&runtime, &made("distance.script"), Loss::SoftmaxCrossEntropy, &how).unwrap();
    let error = quick_check(&runtime, &graph).unwrap_err();
    assert_eq!(error.code(), "E263", "{error}");
    let text = error.to_string();
    assert!(text.contains("place.weight, place.bias are not, at node `/Pow_1` (Pow)"), "{text}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("epsilon") && !hint.contains("exporter"), "{hint}");
}

#[test]
fn a_graph_whose_gradients_cannot_be_computed_is_refused_where_its_loss_can() {
    let (runtime, how) = (onnxruntime::runtime(), DeriveOptions::default());
    let graph = derive(&runtime, &mlp(&[5, 6, 3], 2).to_bytes(), Loss::SoftmaxCrossEntropy, &how).unwrap();
    // Rows that no gradient has, which only the run finds out.
    let mut model = syncline_onnx::parse(&graph.train_onnx).unwrap();
    let inner = model.graph.as_mut().unwrap();
    inner.initializer.push(TensorProto::from_i64("far", &[], &[1000]));
    inner.node.push(NodeProto::named("rows", "Add", &["label", "far"], &[]));
    inner.node.push(NodeProto::named("odd", "Gather", &["fc1.weight.grad", "rows"], &[]));
    inner.output.push(ValueInfoProto { name: "odd".to_owned(), ..ValueInfoProto::default() });
    let odd = TrainingGraph { train_onnx: model.to_bytes(), ..graph };
    let error = quick_check(&runtime, &odd).unwrap_err();
    assert_eq!(error.code(), "E265", "{error}");
    assert!(error.to_string().contains("Gather"), "{error}");

    // A model that takes no batch of two may take others.
    let mut sevens = GraphBuilder::new("sevens");
    let x = sevens.input("x", ElementType::F32, &["batch".into(), 5.into()]);
    let (w, shape) = (sevens.weight("w", &[7, 3], &numbers(21)), sevens.ints("shape", &[-1, 7]));
    let y = sevens.op("Reshape", &[&x, &shape], &[]);
    let y = sevens.op("MatMul", &[&y, &w], &[]);
    sevens.output(&y);
    let graph = derive(&runtime, &sevens.finish().to_bytes(), Loss::SoftmaxCrossEntropy, &how).unwrap();
    assert!(matches!(quick_check(&runtime, &graph), Ok(Verdict::Unknown(_))));
}

#[test]
fn a_loss_that_is_another_one_in_float32_is_told() {
    let runtime = onnxruntime::runtime();
    let model = |offset: f32| {
        let mut graph = GraphBuilder::new("offset");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 5.into()]);
        let w = graph.weight("w", &[5, 3], &numbers(15));
        let far = graph.constant(TensorProto::from_f32("far", &[], &[offset]));
        let y = graph.op("MatMul", &[&x, &w], &[]);
        let y = graph.op("Add", &[&y, &far], &[]);
        let y = graph.op("Sub", &[&y, &far], &[]);
        graph.output(&y);
        derive(&runtime, &graph.finish().to_bytes(), Loss::MeanSquaredError, &DeriveOptions::default())
            .unwrap()
    };
    assert_eq!(quick_check(&runtime, &model(2.0)).unwrap(), Verdict::Right);
    match quick_check(&runtime, &model(3e7)).unwrap() {
        Verdict::Doubtful(told) => assert!(told.contains("in float64"), "{told}"),
        other => panic!("{other:?}"),
    }
}

/// A student that learns what a teacher says, which PyTorch has detached, one number for each sample or for
/// the batch; the loss is an output once more, detached.
fn student(of_batch: bool) -> ModelProto {
    let mut graph = GraphBuilder::new("student");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
    let parts = ["student", "teacher"].map(|part| {
        let w = graph.weight(part, &[3, 2], &numbers(6));
        let y = graph.op("MatMul", &[&x, &w], &[]);
        graph.op("Tanh", &[&y], &[])
    });
    let mixed = graph.op("Add", &[&parts[0], &parts[1]], &[]);
    let dropped = graph.op("Dropout", &[&mixed], &[]);
    let wanted = graph.named("wanted", "Identity", &[&dropped], &[]);
    let y = graph.op("Sub", &[&parts[0], &wanted], &[]);
    let y = graph.op("Mul", &[&y, &y], &[]);
    let axes = graph.ints("axes", if of_batch { &[0, 1] } else { &[1] });
    let y = graph.op("ReduceMean", &[&y, &axes], &[attr_int("keepdims", 0)]);
    let log = graph.named("log", "Identity", &[&y], &[]);
    [&y, &log].into_iter().for_each(|output| graph.output(output));
    let mut model = graph.with_opset(18).finish();
    for node in &mut model.graph.as_mut().unwrap().node {
        if ["wanted", "log"].contains(&node.name.as_str()) {
            let (key, value) = ("pkg.torch.onnx.fx_node".to_owned(), "aten.detach.default".to_owned());
            node.metadata_props.push(StringStringEntryProto { key, value });
        }
    }
    model
}

#[test]
fn a_detached_value_is_kept_while_differences_are_taken() {
    let runtime = onnxruntime::runtime();
    for of_batch in [false, true] {
        let model = student(of_batch).to_bytes();
        for recompute in [false, true] {
            let how = DeriveOptions { recompute, ..DeriveOptions::default() };
            let graph = derive(&runtime, &model, Loss::Output, &how).unwrap();
            assert_eq!(graph.unreached, ["teacher"]);
            assert_eq!(quick_check(&runtime, &graph).unwrap(), Verdict::Right, "{of_batch} {recompute}");
            let text = quick_check(&runtime, &spoiled(&graph, "student", "Mul", number(1.3))).unwrap_err();
            assert_eq!(text.code(), "E256", "{text}");
            let text = quick_check(&runtime, &spoiled(&graph, "teacher", "Add", number(0.1))).unwrap_err();
            assert_eq!(text.code(), "E256", "{text}");
            let ready = accept_ready(&runtime, &graph.with_first_values().unwrap(), None).unwrap();
            assert_eq!(wrong(&check_graph(&runtime, &ready, &options(1)).unwrap()), Vec::<&str>::new());
        }
        for precision in [Precision::Bf16, Precision::Fp16] {
            let how = DeriveOptions { precision, ..DeriveOptions::default() };
            let graph = derive(&runtime, &model, Loss::Output, &how).unwrap();
            let seen = quick_check(&runtime, &graph);
            assert!(seen.is_ok(), "{precision:?}: {seen:?}");
        }
        let checked = check(&runtime, &model, Loss::Output, &DeriveOptions::default(), &options(1)).unwrap();
        assert_eq!(wrong(&checked), Vec::<&str>::new(), "{of_batch}");
        assert!((checked.loss - checked.exact_loss).abs() < 1e-5, "{checked:?}");
    }
}

#[test]
fn another_exporter_is_advised_only_where_one_may_have_lost_a_sum() {
    let (runtime, how) = (onnxruntime::runtime(), DeriveOptions::default());
    let advised = |graph: &TrainingGraph| {
        quick_check(&runtime, graph).unwrap_err().hint().unwrap().contains("exporter")
    };
    let graph = derive(&runtime, &made("index_add.script"), Loss::SoftmaxCrossEntropy, &how).unwrap();
    assert!(advised(&graph));
    let graph = derive(&runtime, &mlp(&[5, 6, 3], 2).to_bytes(), Loss::SoftmaxCrossEntropy, &how).unwrap();
    assert!(!advised(&spoiled(&graph, "fc1.weight", "Mul", number(-1.0))));
}

#[test]
fn a_quick_look_passes_right_graphs_and_finds_each_wrong_parameter_with_its_place() {
    let runtime = onnxruntime::runtime();
    let how = DeriveOptions::default();
    for model in [image_model(), mlp(&[5, 6, 3], 2)] {
        let graph = derive(&runtime, &model.to_bytes(), Loss::SoftmaxCrossEntropy, &how).unwrap();
        assert_eq!(quick_check(&runtime, &graph).unwrap(), Verdict::Right);
        for param in &graph.params {
            for factor in [-1.0, 0.0, 1.3] {
                let graph = spoiled(&graph, &param.name, "Mul", number(factor));
                let text = quick_check(&runtime, &graph).unwrap_err().to_string();
                let want = format!("[E256] gradients are not those of the loss, for {}", param.name);
                assert!(text.starts_with(&want), "{factor}: {text}");
            }
        }
    }
    for name in ["zero_init.script", "dropout.script", "dropout.dynamo"] {
        let graph = derive(&runtime, &made(name), Loss::SoftmaxCrossEntropy, &how).unwrap();
        assert_eq!(quick_check(&runtime, &graph).unwrap(), Verdict::Right, "{name}");
    }
}

#[test]
fn a_quick_look_at_a_large_graph_finds_what_is_far_off() {
    let runtime = onnxruntime::runtime();
    let how = DeriveOptions::default();
    let model = mlp(&[350, 400, 10], 2).to_bytes();
    let graph = derive(&runtime, &model, Loss::SoftmaxCrossEntropy, &how).unwrap();
    // A machine that is busy has no time for a large graph; another try may find it.
    let patient = |graph: &TrainingGraph| {
        let tries = (0..100).map(|_| quick_check(&runtime, graph));
        tries.into_iter().find(|looked| !matches!(looked, Ok(Verdict::Unknown(_)))).unwrap()
    };
    assert_eq!(patient(&graph).unwrap(), Verdict::Right);
    let turned = spoiled(&graph, "fc1.weight", "Mul", number(-1.0));
    assert_eq!(patient(&turned).unwrap_err().code(), "E256");
}
