//! Training graphs that recompute: the same numbers, in less memory, whatever ONNX Runtime rewrites.

use std::collections::HashSet;
use std::thread;

use syncline_autodiff::{DeriveOptions, Io, Loss, Precision, TrainingGraph, derive};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{Compiler, Dim, ElementType, GraphBuilder, SplitMix64, TensorType, attr_int, attr_ints};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::exported::{self, Wanted};
use crate::onnxruntime;

const BATCH: usize = 3;
/// How many parts of the models are tried at the same time; one after another they take most of the time of
/// this program.
const PARTS: usize = 4;

fn graphs(model: &[u8], options: &DeriveOptions) -> [TrainingGraph; 2] {
    [false, true].map(|recompute| {
        let options = DeriveOptions { recompute, ..options.clone() };
        derive(&onnxruntime::runtime(), model, Loss::SoftmaxCrossEntropy, &options).unwrap()
    })
}

/// Numbers for an input, the same for every graph.
enum Fed {
    Floats(Vec<usize>, Vec<f32>),
    Integers(Vec<usize>, Vec<i64>),
}

fn feed(io: &Io, classes: usize, random: &mut SplitMix64) -> Fed {
    let shape: Vec<usize> = io.dims.iter().map(|dim| dim.fixed().unwrap_or(BATCH)).collect();
    let count = shape.iter().product();
    match io.element {
        ElementType::I64 => Fed::Integers(shape, (0..count).map(|i| (i % classes) as i64).collect()),
        _ => Fed::Floats(shape, (0..count).map(|_| random.normal() as f32).collect()),
    }
}

/// The bits of an output, by its name.
type Named = (String, Vec<u32>);

/// All float outputs of some runs of a graph, as bits, without those that only some graphs have.
fn bits(graph: &TrainingGraph, runs: usize) -> Vec<Named> {
    let mut random = SplitMix64::new(7);
    let classes = graph.classes.unwrap_or(5).min(5);
    let ios = graph.data_inputs.iter().chain(&graph.label);
    let fed: Vec<(&str, Fed)> = ios.map(|io| (io.name.as_str(), feed(io, classes, &mut random))).collect();
    let mut views: Vec<(&str, TensorView<'_>)> = fed
        .iter()
        .map(|(name, fed)| match fed {
            Fed::Floats(shape, data) => (*name, TensorView::F32 { shape, data }),
            Fed::Integers(shape, data) => (*name, TensorView::I64 { shape, data }),
        })
        .collect();
    for param in graph.params.iter().chain(&graph.state) {
        views.push((&param.name, TensorView::F32 { shape: &param.shape, data: &param.initial }));
    }
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let names = session.output_names().to_vec();
    let mut all = Vec::new();
    for _ in 0..runs {
        let outputs = session.run(&views).unwrap();
        for name in &names {
            let numbers = outputs.f32(name).unwrap();
            all.push((name.clone(), numbers.iter().map(|x| x.to_bits()).collect()));
        }
    }
    all
}

/// Models with an exact Gelu whose Erf only the forward pass reads once the backward pass makes its own: ONNX
/// Runtime then fuses it, and rounds otherwise.
const FUSED: [&str; 2] = ["bert.folded.onnx", "bert.script.onnx"];

/// Names of outputs that differ.
fn differing<'a>(kept: &'a [Named], made: &[Named]) -> Vec<&'a str> {
    kept.iter().zip(made).filter(|(a, b)| a != b).map(|(a, _)| a.0.as_str()).collect()
}

/// Whether every output is the same to within some units in the last place of its largest number.
fn same_but_for_rounding(kept: &[Named], made: &[Named]) -> bool {
    let close = |((name, kept), (also, made)): (&Named, &Named)| {
        let numbers = kept.iter().map(|bits| f32::from_bits(*bits));
        let largest = numbers.clone().map(f32::abs).fold(f32::MIN_POSITIVE, f32::max);
        let made = made.iter().map(|bits| f32::from_bits(*bits));
        name == also && numbers.zip(made).all(|(a, b)| (a - b).abs() <= 2e-6 * largest)
    };
    kept.len() == made.len() && kept.iter().zip(made).all(close)
}

/// Layers with activations that are worth making again.
fn wide(dropout: bool) -> Vec<u8> {
    let mut graph = GraphBuilder::new("wide");
    let mut random = SplitMix64::new(3);
    let mut weight = |graph: &mut GraphBuilder, name: &str, shape: &[usize]| {
        let data: Vec<f32> = (0..shape.iter().product()).map(|_| random.normal() as f32 * 0.2).collect();
        graph.weight(name, shape, &data)
    };
    let mut h = graph.input("x", ElementType::F32, &["batch".into(), 40.into()]);
    for layer in 0..4 {
        let w = weight(&mut graph, &format!("w{layer}"), &[40, 40]);
        h = graph.op("MatMul", &[&h, &w], &[]);
        for activation in ["Sigmoid", "Tanh", "Sigmoid", "Tanh"] {
            h = graph.op(activation, &[&h], &[]);
            if dropout && activation == "Sigmoid" {
                let ratio = graph.constant(TensorProto::from_f32(&format!("ratio{layer}{h}"), &[], &[0.4]));
                let active = graph.constant(TensorProto::from_bool(&format!("active{layer}{h}"), true));
                h = graph.op("Dropout", &[&h, &ratio, &active], &[attr_int("seed", layer)]);
            }
        }
    }
    let w = weight(&mut graph, "head", &[40, 5]);
    let y = graph.op("MatMul", &[&h, &w], &[]);
    graph.output(&y);
    graph.finish().to_bytes()
}

#[test]
fn whole_models_give_the_same_bits_and_are_never_estimated_to_need_more() {
    let files = exported::files(".onnx");
    assert!(files.len() > 20);
    let compare = |file: &String| {
        let [plain, saving] = [false, true].map(|recompute| {
            exported::derived(Wanted { file: file.clone(), precision: Precision::F32, recompute })
        });
        let (kept, made) = (bits(&plain, 1), bits(&saving, 1));
        match FUSED.contains(&file.as_str()) {
            false => assert!(kept == made, "{file}: {:?}", differing(&kept, &made)),
            true => assert!(same_but_for_rounding(&kept, &made), "{file}: {:?}", differing(&kept, &made)),
        }
        let saved = saving.saving.unwrap();
        assert!(saved.with.peak_bytes <= saved.without.peak_bytes, "{file}: {saved:?}");
        (saved.with.peak_bytes * 10 <= saved.without.peak_bytes * 9).then(|| file.clone())
    };
    let smaller: Vec<String> = thread::scope(|scope| {
        let parts: Vec<_> = files
            .chunks(files.len().div_ceil(PARTS))
            .map(|part| scope.spawn(|| part.iter().filter_map(compare).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    for name in ["resnet20", "gpt2", "vit", "densenet", "mobilenet"] {
        assert!(
            smaller.iter().any(|found| found.starts_with(name)),
            "{name} saves less than a tenth: {smaller:?}"
        );
    }
}

#[test]
fn dropout_draws_the_same_mask_again_run_for_run() {
    let [plain, saving] = graphs(&wide(true), &DeriveOptions::default());
    let dropouts = |graph: &TrainingGraph| {
        let nodes = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap().node;
        nodes.iter().filter(|node| node.op_type == "Dropout").count()
    };
    assert!(dropouts(&saving) > dropouts(&plain), "some mask is drawn again");
    let runs = bits(&plain, 3);
    assert_eq!(runs, bits(&saving, 3));
    assert_ne!(
        runs[..runs.len() / 3],
        runs[runs.len() / 3..2 * runs.len() / 3],
        "masks differ from run to run"
    );
}

#[test]
fn onnx_runtime_does_not_merge_copies_with_their_originals() {
    let runtime = onnxruntime::runtime();
    let [plain, saving] = graphs(&wide(false), &DeriveOptions::default());
    let activations = |bytes: &[u8]| {
        let nodes = syncline_onnx::parse(bytes).unwrap().graph.unwrap().node;
        nodes.iter().filter(|node| ["Sigmoid", "Tanh"].contains(&node.op_type.as_str())).count()
    };
    let simplified = |graph: &TrainingGraph| runtime.simplify(&graph.train_onnx).unwrap();
    assert_eq!(activations(&plain.train_onnx), 16);
    assert!(activations(&saving.train_onnx) >= 16 + 12, "those of the last layer may as well be kept");
    assert_eq!(activations(&simplified(&saving)), activations(&saving.train_onnx));
}

#[test]
fn a_gradient_is_there_before_the_backward_pass_goes_on() {
    let saving = graphs(&wide(false), &DeriveOptions::default()).into_iter().nth(1).unwrap();
    let nodes = syncline_onnx::parse(&saving.train_onnx).unwrap().graph.unwrap().node;
    let needs = |value: &str| {
        let mut needed = HashSet::from([value.to_owned()]);
        for node in nodes.iter().rev() {
            if node.output.iter().any(|output| needed.contains(output)) {
                needed.extend(node.input.iter().cloned());
            }
        }
        needed
    };
    for [later, sooner] in [["w2.grad", "w3.grad"], ["w1.grad", "w2.grad"], ["w0.grad", "w1.grad"]] {
        assert!(needs(later).contains(sooner), "{later} does not wait for {sooner}");
    }
}

#[test]
fn copies_wait_for_a_gradient_where_every_axis_is_fixed_too() {
    let runtime = onnxruntime::runtime();
    let mut model = syncline_onnx::parse(&wide(false)).unwrap();
    let x = &mut model.graph.as_mut().unwrap().input[0];
    *x = TensorType::new(ElementType::F32, vec![Dim::Fixed(BATCH), Dim::Fixed(40)]).to_value_info("x");
    let saving = graphs(&model.to_bytes(), &DeriveOptions::default()).into_iter().nth(1).unwrap();
    let nodes = |bytes: &[u8]| syncline_onnx::parse(bytes).unwrap().graph.unwrap().node.len();
    let slices = |bytes: &[u8]| {
        let nodes = syncline_onnx::parse(bytes).unwrap().graph.unwrap().node;
        nodes.iter().filter(|node| node.op_type == "Slice").count()
    };
    let folded = runtime.simplify(&saving.train_onnx).unwrap();
    assert!(nodes(&folded) > 0);
    assert_eq!(
        slices(&folded),
        slices(&saving.train_onnx),
        "constant folding does not see through the order"
    );
}

/// `maximum` of an exact GELU, which operator sets below 20 write by Div, Erf, Add, Mul and Mul: ONNX Runtime
/// fuses the one of the forward pass once the backward pass reads a copy, and rounds it otherwise.
fn largest_of_gelu(maximum: impl Fn(&mut GraphBuilder, &str) -> String) -> Vec<u8> {
    let mut graph = GraphBuilder::new("largest");
    let mut random = SplitMix64::new(3);
    let mut numbers =
        |count: usize| -> Vec<f32> { (0..count).map(|_| random.normal() as f32 * 0.4).collect() };
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 16.into(), 16.into()]);
    let mut h = x;
    for (layer, inputs) in [3, 8].into_iter().enumerate() {
        let w = graph.weight(&format!("w{layer}"), &[8, inputs, 3, 3], &numbers(8 * inputs * 9));
        h = graph.op("Conv", &[&h, &w], &[attr_ints("pads", &[1; 4])]);
        let [root, one, half] =
            [("root", std::f32::consts::SQRT_2), ("one", 1.0), ("half", 0.5)].map(|(name, number)| {
                graph.constant(TensorProto::from_f32(&format!("{name}{layer}"), &[], &[number]))
            });
        let erf = graph.op("Div", &[&h, &root], &[]);
        let erf = graph.op("Erf", &[&erf], &[]);
        let above = graph.op("Add", &[&erf, &one], &[]);
        let twice = graph.op("Mul", &[&h, &above], &[]);
        h = graph.op("Mul", &[&twice, &half], &[]);
        if layer == 0 {
            h = maximum(&mut graph, &h);
        }
    }
    let h = graph.op("GlobalAveragePool", &[&h], &[]);
    let flat = graph.op("Flatten", &[&h], &[]);
    let w = graph.weight("head", &[8, 5], &numbers(40));
    let y = graph.op("MatMul", &[&flat, &w], &[]);
    graph.output(&y);
    graph.finish().to_bytes()
}

#[test]
fn gradients_of_maxima_are_there_where_onnx_runtime_fuses_what_they_look_at() {
    let options = DeriveOptions {
        params: Some(["w0", "w1", "head"].map(str::to_owned).to_vec()),
        ..DeriveOptions::default()
    };
    type Maximum = fn(&mut GraphBuilder, &str) -> String;
    let cases: [(&str, Maximum); 4] = [
        ("MaxPool", |graph, h| {
            graph.op("MaxPool", &[h], &[attr_ints("kernel_shape", &[2, 2]), attr_ints("strides", &[2, 2])])
        }),
        ("ReduceMax", |graph, h| graph.op("ReduceMax", &[h], &[attr_ints("axes", &[3])])),
        ("GlobalMaxPool", |graph, h| graph.op("GlobalMaxPool", &[h], &[])),
        ("Max", |graph, h| {
            let turned = graph.transpose(h, &[0, 1, 3, 2]);
            graph.op("Max", &[h, &turned], &[])
        }),
    ];
    for (name, maximum) in cases {
        let [plain, saving] = graphs(&largest_of_gelu(maximum), &options);
        let (kept, made) = (bits(&plain, 1), bits(&saving, 1));
        assert!(same_but_for_rounding(&kept, &made), "{name}: {:?}", differing(&kept, &made));
    }
}
