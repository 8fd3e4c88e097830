//! Training graphs in mixed precision: which values have 16 bits, and how far the numbers are off.
//!
//! ONNX Runtime's CPU provider runs float16 by casting where it has no kernel, and has no bfloat16 products
//! at all. So bfloat16 is run with float32 operators on values that have been rounded, and its types are
//! looked at in the float16 twin, which has casts in the same places.

use std::collections::HashMap;
use std::sync::Arc;

use syncline_autodiff::{
    DeriveOptions, FIRST_LOSS_SCALE, LOSS_SCALE, Loss, Precision, TrainingGraph, derive,
};
use syncline_onnx::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64, attr_int, attr_ints, infer_types, mlp};
use syncline_runtime::{ExecOptions, Executable, Optimize, TensorView, lacks_kernel};

use crate::exported::{self, Wanted};
use crate::onnxruntime;

const BATCH: usize = 4;

fn models() -> Vec<String> {
    let files = exported::files(".script.onnx");
    assert!(files.len() > 8);
    files
}

fn trained(file: &str, precision: Precision) -> Arc<TrainingGraph> {
    exported::derived(Wanted { file: file.to_owned(), precision, recompute: false })
}

/// Loss and gradients of a graph on random numbers.
fn run(graph: &TrainingGraph, model: &ModelProto, optimize: Optimize) -> (f32, Vec<Vec<f32>>) {
    let mut random = SplitMix64::new(11);
    let (mut floats, mut integers) = (HashMap::new(), HashMap::new());
    let classes = graph.classes.unwrap().min(5);
    for io in graph.data_inputs.iter().chain(&graph.label) {
        let shape: Vec<usize> = io.dims.iter().map(|dim| dim.fixed().unwrap_or(BATCH)).collect();
        let count: usize = shape.iter().product();
        match io.element {
            ElementType::I64 => {
                drop(
                    integers.insert(
                        &io.name,
                        (shape, (0..count).map(|i| (i % classes) as i64).collect::<Vec<_>>()),
                    ),
                );
            }
            _ => {
                let data: Vec<f32> = (0..count).map(|_| random.normal() as f32).collect();
                drop(floats.insert(&io.name, (shape, data)));
            }
        }
    }
    let mut views: Vec<(&str, TensorView<'_>)> = Vec::new();
    views.extend(floats.iter().map(|(name, (shape, data))| (name.as_str(), TensorView::F32 { shape, data })));
    views.extend(
        integers.iter().map(|(name, (shape, data))| (name.as_str(), TensorView::I64 { shape, data })),
    );
    for param in graph.params.iter().chain(&graph.state) {
        views.push((&param.name, TensorView::F32 { shape: &param.shape, data: &param.initial }));
    }
    let options = ExecOptions { optimize, ..ExecOptions::default() };
    let mut session = Executable::new(&onnxruntime::runtime(), &model.to_bytes(), &options).unwrap();
    let outputs = session.run(&views).unwrap();
    let grad = |name: &str| outputs.f32(&format!("{name}.grad")).unwrap().to_vec();
    (outputs.scalar("loss").unwrap(), graph.params.iter().map(|param| grad(&param.name)).collect())
}

fn parsed(graph: &TrainingGraph) -> ModelProto {
    syncline_onnx::parse(&graph.train_onnx).unwrap()
}

/// Sine of the angle between two gradients, all parameters taken together: single elements of deep models
/// differ by more, because a rounded value may fall on the other side of a kink.
fn off(got: &[Vec<f32>], want: &[Vec<f32>]) -> f64 {
    let dot = |a: &[Vec<f32>], b: &[Vec<f32>]| -> f64 {
        a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let cosine = dot(got, want) / (dot(got, got) * dot(want, want)).sqrt();
    (1.0 - cosine * cosine).max(0.0).sqrt()
}

/// A float16 graph with another loss scale.
fn scaled(mut model: ModelProto, scale: f32) -> ModelProto {
    let tensors = &mut model.graph.as_mut().unwrap().initializer;
    let at = tensors.iter().position(|tensor| tensor.name == LOSS_SCALE).unwrap();
    assert_eq!(tensors[at].to_f32().unwrap(), [FIRST_LOSS_SCALE]);
    tensors[at] = TensorProto::from_f32(LOSS_SCALE, &[], &[scale]);
    model
}

fn is_cast(node: &NodeProto, to: ElementType) -> bool {
    node.op_type == "Cast" && node.int("to", 0) == i64::from(to.code())
}

/// The graph with bfloat16 instead of float16 or the other way round.
fn twin(mut model: ModelProto, from: ElementType, to: ElementType) -> ModelProto {
    for node in model.graph.as_mut().unwrap().node.iter_mut().filter(|node| is_cast(node, from)) {
        node.attribute = vec![attr_int("to", i64::from(to.code()))];
    }
    model
}

/// The graph with float32 operators on values that are rounded wherever the graph casts to 16 bits.
fn emulated(mut model: ModelProto) -> ModelProto {
    let graph = model.graph.as_mut().unwrap();
    let mut nodes = Vec::new();
    for mut node in std::mem::take(&mut graph.node) {
        if !is_cast(&node, ElementType::Bf16) && !is_cast(&node, ElementType::F16) {
            nodes.push(node);
            continue;
        }
        let (output, rounded) = (node.output[0].clone(), format!("{}/rounded", node.output[0]));
        node.output[0].clone_from(&rounded);
        node.name.clone_from(&rounded);
        let back = NodeProto {
            input: vec![rounded],
            output: vec![output.clone()],
            name: output,
            op_type: "Cast".to_owned(),
            attribute: vec![attr_int("to", i64::from(ElementType::F32.code()))],
            ..Default::default()
        };
        nodes.extend([node, back]);
    }
    graph.node = nodes;
    model
}

#[test]
fn products_have_16_bits_and_what_decides_about_numbers_has_32() {
    let runtime = onnxruntime::runtime();
    const FULL: [&str; 12] = [
        "BatchNormalization",
        "Exp",
        "LayerNormalization",
        "Log",
        "LogSoftmax",
        "Pow",
        "Reciprocal",
        "ReduceMean",
        "ReduceSum",
        "Softmax",
        "Sqrt",
        "Sum",
    ];
    for name in models() {
        for precision in [Precision::Fp16, Precision::Bf16] {
            let graph = parsed(&trained(&name, precision));
            let graph = twin(graph, ElementType::Bf16, ElementType::F16);
            let types = infer_types(&runtime, &graph.to_bytes()).unwrap();
            let element = |value: &String| types.get(value).map(|ty| ty.element);
            let graph = graph.graph.unwrap();
            let mut products = 0;
            for node in &graph.node {
                let half =
                    node.input.iter().chain(&node.output).any(|v| element(v) == Some(ElementType::F16));
                match node.op_type.as_str() {
                    "MatMul" | "Gemm" => {
                        products += 1;
                        assert_ne!(element(&node.input[0]), Some(ElementType::F32), "{name}: {}", node.name);
                    }
                    "Conv" | "ConvTranspose" => {
                        assert_eq!(half, precision == Precision::Fp16, "{name}: {}", node.name)
                    }
                    op if FULL.contains(&op) => assert!(!half || op == "Sum", "{name}: {op} {}", node.name),
                    _ => {}
                }
            }
            assert!(products > 0, "{name}");
            for outlet in graph.input.iter().chain(&graph.output) {
                let half = [Some(ElementType::F16), Some(ElementType::Bf16)];
                assert!(!half.contains(&element(&outlet.name)), "{name}: {}", outlet.name);
            }
        }
    }
}

#[test]
fn float16_trains_as_float32_does_at_every_scale() {
    for name in models() {
        let (plain, half) = (trained(&name, Precision::F32), trained(&name, Precision::Fp16));
        let (loss, grads) = run(&plain, &parsed(&plain), Optimize::All);
        for scale in [1.0, FIRST_LOSS_SCALE] {
            let (half_loss, half_grads) = run(&half, &scaled(parsed(&half), scale), Optimize::All);
            assert!((half_loss - loss).abs() <= 2e-3 * loss.abs(), "{name}: loss {half_loss}, not {loss}");
            let off = off(&half_grads, &grads);
            assert!(off < 0.1, "{name}: gradients are off by {off} at scale {scale}");
        }
    }
}

#[test]
fn rounded_values_train_as_float32_does_up_to_their_digits() {
    for name in models() {
        let plain = trained(&name, Precision::F32);
        let (loss, grads) = run(&plain, &parsed(&plain), Optimize::Off);
        for precision in [Precision::Bf16, Precision::Fp16] {
            let half = trained(&name, precision);
            let (half_loss, half_grads) = run(&half, &emulated(parsed(&half)), Optimize::Off);
            assert!((half_loss - loss).abs() <= 2e-2 * loss.abs(), "{name}: loss {half_loss}, not {loss}");
            let off = off(&half_grads, &grads);
            assert!(off > 1e-5, "{name}: nothing was rounded");
            assert!(off < 0.5, "{name}: gradients are off by {off}");
        }
    }
}

#[test]
fn the_operator_is_named_for_which_the_cpu_has_no_kernel() {
    let runtime = onnxruntime::runtime();
    let model = mlp(&[3, 4, 2], 1).to_bytes();
    let trained = |precision| {
        let options = DeriveOptions { precision, ..DeriveOptions::default() };
        derive(&runtime, &model, Loss::SoftmaxCrossEntropy, &options).unwrap()
    };
    let graph = trained(Precision::Bf16);
    assert_eq!(lacks_kernel(&runtime, &graph.train_onnx).unwrap().as_deref(), Some("Gemm"));
    let graph = trained(Precision::Fp16);
    assert_eq!(lacks_kernel(&runtime, &graph.train_onnx).unwrap(), None);
}

#[test]
fn a_model_with_16_bits_of_its_own_is_refused() {
    let mut graph = GraphBuilder::new("half");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let y = graph.op("MatMul", &[&x, &w], &[]);
    let y = graph.op("Cast", &[&y], &[attr_int("to", i64::from(ElementType::F16.code()))]);
    let y = graph.op("Cast", &[&y], &[attr_int("to", i64::from(ElementType::F32.code()))]);
    graph.output(&y);
    let options = DeriveOptions { precision: Precision::Fp16, ..DeriveOptions::default() };
    let bytes = graph.finish().to_bytes();
    let refused = derive(&onnxruntime::runtime(), &bytes, Loss::SoftmaxCrossEntropy, &options).unwrap_err();
    assert_eq!(refused.code(), "E472");
    assert_eq!("half".parse::<Precision>().unwrap_err().code(), "E471");
}

/// What stands between two convolutions: of `h`, the first, and `g`, another one of the same size, it makes a
/// value with so many channels.
type Middle = fn(&mut GraphBuilder, &str, &str) -> (String, usize);

/// Scores behind two convolutions with `middle` between them; `normalized`: behind the first a batch
/// normalization.
fn between_convolutions(normalized: bool, middle: Middle) -> Vec<u8> {
    let mut graph = GraphBuilder::new("choice").with_opset(18);
    let around = [attr_ints("pads", &[1, 1, 1, 1])];
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 8.into(), 8.into()]);
    let first = random_weight(&mut graph, "first", &[8, 3, 3, 3]);
    let mut h = graph.op("Conv", &[&x, &first], &around);
    if normalized {
        let scale = graph.weight("norm.scale", &[8], &[1.1, 0.9, 1.2, 1.0, 0.8, 1.3, 0.7, 1.0]);
        let bias = random_weight(&mut graph, "norm.bias", &[8]);
        let mean = graph.weight("norm.mean", &[8], &[0.0; 8]);
        let variance = graph.weight("norm.variance", &[8], &[1.0; 8]);
        h = graph.op("BatchNormalization", &[&h, &scale, &bias, &mean, &variance], &[]);
    }
    let other = random_weight(&mut graph, "other", &[8, 3, 3, 3]);
    let g = graph.op("Conv", &[&x, &other], &around);
    let (y, channels) = middle(&mut graph, &h, &g);
    let last = random_weight(&mut graph, "last", &[8, channels, 3, 3]);
    let y = graph.op("Conv", &[&y, &last], &around);
    let y = graph.op("GlobalAveragePool", &[&y], &[]);
    let y = graph.op("Flatten", &[&y], &[]);
    let head = random_weight(&mut graph, "head", &[8, 4]);
    let y = graph.op("MatMul", &[&y, &head], &[]);
    graph.output(&y);
    graph.finish().to_bytes()
}

fn random_weight(graph: &mut GraphBuilder, name: &str, shape: &[usize]) -> String {
    let mut random = SplitMix64::new(name.bytes().map(u64::from).sum());
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32 * 0.3).collect();
    graph.weight(name, shape, &data)
}

/// ONNX Runtime leaves out a cast to 16 bits in front of an operator without a kernel for them, so that of a
/// value and what was chosen from it one may be rounded and the other not.
#[test]
fn a_choice_is_found_again_whichever_side_of_it_was_rounded() {
    #[rustfmt::skip]
    let cases: [(&str, Middle); 8] = [
        ("pool", |g, h, _| (g.op("MaxPool", &[h], &halved()), 8)),
        ("pool beside a convolution that reads the same", |g, h, _| {
            let w = random_weight(g, "halving", &[8, 8, 2, 2]);
            let (pool, conv) = (g.op("MaxPool", &[h], &halved()), g.op("Conv", &[h, &w], &halved()));
            (g.op("Concat", &[&pool, &conv], &[attr_int("axis", 1)]), 16)
        }),
        ("larger of two", |g, h, other| {
            let h = g.op("Relu", &[h], &[]);
            (g.op("Max", &[&h, other], &[]), 8)
        }),
        ("smallest of three", |g, h, other| {
            let (relu, back) = (g.op("Relu", &[other], &[]), g.op("Neg", &[other], &[]));
            (g.op("Min", &[h, &relu, &back], &[]), 8)
        }),
        ("largest channel", |g, h, _| {
            let axes = g.ints("axes", &[1]);
            let most = g.op("ReduceMax", &[h, &axes], &[]);
            (g.op("Sub", &[h, &most], &[]), 8)
        }),
        ("smallest of a reshaped image", |g, h, _| {
            let (shape, axes) = (g.ints("shape", &[-1, 8, 8, 4, 2]), g.ints("axes", &[-1]));
            let apart = g.op("Reshape", &[h, &shape], &[]);
            (g.op("ReduceMin", &[&apart, &axes], &[attr_int("keepdims", 0)]), 8)
        }),
        ("largest of the image", |g, h, _| {
            let most = g.op("GlobalMaxPool", &[h], &[]);
            (g.op("Mul", &[h, &most], &[]), 8)
        }),
        ("within bounds", |g, h, _| {
            let low = g.constant(TensorProto::from_f32("low", &[], &[-0.5]));
            let high = g.constant(TensorProto::from_f32("high", &[], &[0.5]));
            (g.op("Clip", &[h, &low, &high], &[]), 8)
        }),
    ];
    for (name, middle) in cases {
        for normalized in [false, true] {
            let forward = between_convolutions(normalized, middle);
            let graph = |precision, recompute| {
                let options = DeriveOptions { precision, recompute, ..DeriveOptions::default() };
                derive(&onnxruntime::runtime(), &forward, Loss::SoftmaxCrossEntropy, &options).unwrap()
            };
            let plain = graph(Precision::F32, false);
            let (_, want) = run(&plain, &parsed(&plain), Optimize::All);
            for (precision, recompute) in
                [(Precision::Fp16, false), (Precision::Fp16, true), (Precision::Bf16, false)]
            {
                let half = graph(precision, recompute);
                let model = twin(parsed(&half), ElementType::Bf16, ElementType::F16);
                let model = if precision == Precision::Fp16 { scaled(model, 64.0) } else { model };
                let (_, got) = run(&half, &model, Optimize::All);
                for (param, (got, want)) in half.params.iter().zip(got.iter().zip(&want)) {
                    let apart: f32 = got.iter().zip(want).map(|(a, b)| (a - b).powi(2)).sum();
                    let size: f32 = want.iter().map(|x| x * x).sum();
                    assert!(
                        apart <= 0.1 * 0.1 * size,
                        "{name}, {precision:?}, normalized {normalized}, recompute {recompute}: {} is off by {} of {}",
                        param.name,
                        apart.sqrt(),
                        size.sqrt()
                    );
                }
            }
        }
    }
}

fn halved() -> [AttributeProto; 2] {
    [attr_ints("kernel_shape", &[2, 2]), attr_ints("strides", &[2, 2])]
}
