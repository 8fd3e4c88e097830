//! Gradient rules of normalizations, Dropout, Einsum and Attention against differences; running statistics
//! against a plain computation in float64.

use syncline_autodiff::{DeriveOptions, EvalMode, Loss, Param, TrainingGraph, accept_ready, derive};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{
    Compiler, Dim, ElementType, GraphBuilder, ModelProto, SplitMix64, attr_float, attr_int, attr_string,
};
use syncline_runtime::TensorView::F32;
use syncline_runtime::{ExecOptions, Executable};

use crate::image::{Image, at_two_batches};
use crate::one_operator::Case;
use crate::onnxruntime;
use crate::slopes::{LINEAR, SMOOTH, Slopes, numbers};

const MEAN: [f32; 3] = [0.1, -0.2, 0.3];
const VARIANCE: [f32; 3] = [0.5, 1.5, 2.0];

/// y = batch normalization of x + w, three channels.
fn batch_norm(sizes: &[usize], opset: i64, epsilon: f32, momentum: f32) -> ModelProto {
    let mut graph = GraphBuilder::new("norm").with_opset(opset);
    let dims: Vec<_> =
        [Dim::from("batch")].into_iter().chain(sizes.iter().map(|&size| size.into())).collect();
    let x = graph.input("x", ElementType::F32, &dims);
    let w = graph.weight("w", sizes, &numbers(&mut SplitMix64::new(3), sizes));
    let image = graph.op("Add", &[&x, &w], &[]);
    let scale = graph.weight("scale", &[3], &[1.2, -0.7, 0.4]);
    let bias = graph.weight("bias", &[3], &[0.1, 0.2, -0.3]);
    let mean = graph.weight("mean", &[3], &MEAN);
    let variance = graph.weight("variance", &[3], &VARIANCE);
    let attributes = [attr_float("epsilon", epsilon), attr_float("momentum", momentum)];
    let y = graph.named("y", "BatchNormalization", &[&image, &scale, &bias, &mean, &variance], &attributes);
    graph.output(&y);
    graph.finish()
}

fn derived(model: &ModelProto, options: &DeriveOptions) -> TrainingGraph {
    let runtime = onnxruntime::runtime();
    derive(&runtime, &model.to_bytes(), Loss::MeanSquaredError, options)
        .unwrap_or_else(|error| panic!("{error}"))
}

const IMAGES: [&[usize]; 4] = [&[3, 2, 4], &[3, 3], &[3], &[3, 2, 2, 2]];

#[test]
fn batch_norm_trains_with_the_statistics_of_the_batch() {
    for sizes in IMAGES {
        let model = batch_norm(sizes, 17, 1e-2, 0.9);
        // A sample alone in its channel has no variance: batches of 4 and 6.
        let shapes = [4, 6].map(|batch| [&[batch], sizes].concat());
        for simplify in [false, true] {
            let options = DeriveOptions { simplify, ..DeriveOptions::default() };
            let batches: [&[(&str, &[usize])]; 2] = [&[("x", &shapes[0])], &[("x", &shapes[1])]];
            let graph = SMOOTH.check_with("batch norm", &model, &options, &batches);
            let names = |params: &[Param]| params.iter().map(|param| param.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&graph.params), ["w", "scale", "bias"]);
            assert_eq!(names(&graph.state), ["mean", "variance"]);
        }
    }
}

#[test]
fn batch_norm_in_evaluation_mode_has_fixed_statistics() {
    for sizes in IMAGES {
        let model = batch_norm(sizes, 15, 1e-3, 0.9);
        at_two_batches(sizes, |batches| {
            let options = DeriveOptions { eval_mode: EvalMode::Whole, ..DeriveOptions::default() };
            let graph = LINEAR.check_with("batch norm", &model, &options, batches);
            assert!(graph.state.is_empty());
            // Asked for, they are parameters like others.
            let all = ["w", "scale", "bias", "mean", "variance"].map(str::to_owned).to_vec();
            let options = DeriveOptions { train: Some(all), ..options };
            SMOOTH.check_with("batch norm, all", &model, &options, batches);
        });
    }
}

/// Mean and variance per channel of `[batch, 3, positions]`, in float64.
fn statistics(x: &[f32], positions: usize) -> Vec<(f64, f64, f64)> {
    let of_channel = |channel: usize| -> Vec<f64> {
        let rows = x.chunks(positions).enumerate().filter(|(row, _)| row % 3 == channel);
        rows.flat_map(|(_, row)| row.iter().map(|&x| f64::from(x))).collect()
    };
    let one = |channel| {
        let values = of_channel(channel);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        (mean, variance, count)
    };
    (0..3).map(one).collect()
}

#[test]
fn running_statistics_follow_the_batch() {
    for (training_mode, momentum) in [(false, 0.9f32), (false, 0.6), (true, 0.9)] {
        let mut model = batch_norm(&[3, 2, 4], 17, 1e-5, momentum);
        if training_mode {
            // As exported for training: three outputs.
            let node = model.graph.as_mut().unwrap().node.last_mut().unwrap();
            node.attribute.push(attr_int("training_mode", 1));
            node.output.extend(["seen_mean".to_owned(), "seen_variance".to_owned()]);
        }
        let graph = derived(&model, &DeriveOptions::default());
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let mut random = SplitMix64::new(9);
        let shape = [5, 3, 2, 4];
        let x = numbers(&mut random, &shape);
        let label = vec![0.0; x.len()];
        let mut views =
            vec![("x", F32 { shape: &shape, data: &x }), ("label", F32 { shape: &shape, data: &label })];
        let held = graph.params.iter().chain(&graph.state);
        views.extend(held.map(|p| (p.name.as_str(), F32 { shape: &p.shape, data: &p.initial })));
        let w = &graph.params[0].initial;
        let image: Vec<f32> = x.iter().enumerate().map(|(at, x)| x + w[at % w.len()]).collect();

        let outputs = session.run(&views).unwrap();
        let (mean, variance) = (outputs.f32("mean.new").unwrap(), outputs.f32("variance.new").unwrap());
        let y = outputs.f32("y").unwrap();
        let (kept, added) = (f64::from(momentum), 1.0 - f64::from(momentum));
        for (channel, (m, v, count)) in statistics(&image, 8).into_iter().enumerate() {
            let want = f64::from(MEAN[channel]) * kept + m * added;
            assert!((f64::from(mean[channel]) - want).abs() < 1e-6, "mean {channel}");
            let want = f64::from(VARIANCE[channel]) * kept + v * count / (count - 1.0) * added;
            assert!((f64::from(variance[channel]) - want).abs() < 1e-6, "variance {channel}");
            let (scale, bias) = ([1.2, -0.7, 0.4][channel], [0.1, 0.2, -0.3][channel]);
            let at = channel * 8 + 3;
            let want = (f64::from(image[at]) - m) / (v + 1e-5).sqrt() * scale + bias;
            assert!((f64::from(y[at]) - want).abs() < 1e-5, "y {channel}: {} {want}", y[at]);
        }

        // Evaluation uses what is remembered.
        let mut session = Executable::new(&runtime, &graph.eval_onnx, &ExecOptions::default()).unwrap();
        let outputs = session.run(&views).unwrap();
        let want = (image[0] - MEAN[0]) / (VARIANCE[0] + 1e-5).sqrt() * 1.2 + 0.1;
        assert!((outputs.f32("y").unwrap()[0] - want).abs() < 1e-5);
    }
}

/// Mean, deviation: a temperature in Kelvin, an air pressure in Pascal, a latitude, a year.
const COLUMNS: [(f64, f64); 4] = [(300.0, 0.1), (101_325.0, 30.0), (37.77, 0.01), (2015.0, 3.0)];

/// What a layer on raw columns should give, from float64: its variance, and gradients of scale, bias and its
/// input.
struct ColumnTruth {
    variance: f64,
    scale: f64,
    bias: f64,
    input: Vec<f64>,
}

impl ColumnTruth {
    /// With scale 1, bias 0, epsilon 1e-5, and the mean of `elements` squared differences as loss.
    fn of(x: &[f64], label: &[f64], elements: usize) -> Self {
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let r = (variance + 1e-5).sqrt().recip();
        let hat: Vec<f64> = x.iter().map(|x| (x - mean) * r).collect();
        let dy: Vec<f64> =
            hat.iter().zip(label).map(|(y, label)| 2.0 * (y - label) / elements as f64).collect();
        let scale: f64 = dy.iter().zip(&hat).map(|(dy, hat)| dy * hat).sum();
        let bias: f64 = dy.iter().sum();
        let input = dy.iter().zip(&hat).map(|(dy, hat)| r * (dy - bias / count - hat * scale / count));
        Self { variance, scale, bias, input: input.collect() }
    }
}

#[test]
fn running_statistics_stay_behind_a_batch_of_one_value_in_each_channel() {
    for (sizes, batch, stay) in
        [(&[3][..], 1, true), (&[3], 2, false), (&[3, 1], 1, true), (&[3, 2], 1, false)]
    {
        let graph = derived(&batch_norm(sizes, 17, 1e-5, 0.9), &DeriveOptions::default());
        let runtime = onnxruntime::runtime();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let shape = [&[batch], sizes].concat();
        let x = numbers(&mut SplitMix64::new(9), &shape);
        let mut views =
            vec![("x", F32 { shape: &shape, data: &x }), ("label", F32 { shape: &shape, data: &x })];
        let held = graph.params.iter().chain(&graph.state);
        views.extend(held.map(|p| (p.name.as_str(), F32 { shape: &p.shape, data: &p.initial })));
        let outputs = session.run(&views).unwrap();
        for (name, before) in [("mean.new", MEAN), ("variance.new", VARIANCE)] {
            assert_eq!(outputs.f32(name).unwrap() == before, stay, "{name} of {batch} x {sizes:?}");
        }
    }
}

#[test]
fn batch_norm_of_columns_far_from_zero_is_near_the_truth_in_float32() {
    const ROWS: usize = 32;
    const WIDTH: usize = COLUMNS.len();
    let mut random = SplitMix64::new(8);
    let rows: Vec<f32> = (0..ROWS)
        .flat_map(|_| COLUMNS)
        .map(|(mean, deviation)| (mean + deviation * random.normal()) as f32)
        .collect();
    let label = numbers(&mut random, &[ROWS, WIDTH]);
    let mut graph = GraphBuilder::new("columns");
    let x = graph.input("x", ElementType::F32, &["batch".into(), WIDTH.into()]);
    // Trained, so that the gradient of what the layer reads is an output.
    let p = graph.weight("p", &[ROWS, WIDTH], &rows);
    let columns = graph.op("Add", &[&x, &p], &[]);
    let scale = graph.weight("scale", &[WIDTH], &[1.0; WIDTH]);
    let bias = graph.weight("bias", &[WIDTH], &[0.0; WIDTH]);
    let mean = graph.weight("mean", &[WIDTH], &[0.0; WIDTH]);
    let variance = graph.weight("variance", &[WIDTH], &[0.0; WIDTH]);
    let y = graph.op("BatchNormalization", &[&columns, &scale, &bias, &mean, &variance], &[]);
    graph.output(&y);
    let graph = derived(&graph.finish(), &DeriveOptions::default());

    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let (shape, zeros) = ([ROWS, WIDTH], [0.0; ROWS * WIDTH]);
    let mut views =
        vec![("x", F32 { shape: &shape, data: &zeros }), ("label", F32 { shape: &shape, data: &label })];
    let held = graph.params.iter().chain(&graph.state);
    views.extend(held.map(|p| (p.name.as_str(), F32 { shape: &p.shape, data: &p.initial })));
    let outputs = session.run(&views).unwrap();
    let of_column = |numbers: &[f32], at: usize| -> Vec<f64> {
        numbers.iter().skip(at).step_by(WIDTH).map(|&number| f64::from(number)).collect()
    };
    for (at, column) in COLUMNS.iter().enumerate() {
        let truth = ColumnTruth::of(&of_column(&rows, at), &of_column(&label, at), ROWS * WIDTH);
        // The rounding of a mean alone moves the whole column by 1e-4 of its deviation, which gradients feel
        // and a variance does not.
        let near = |what: &str, got: f64, want: f64, allowed: f64| {
            assert!((got - want).abs() <= allowed, "{what} of {column:?} is {got}, not {want}");
        };
        let one = |name: &str| of_column(outputs.f32(name).unwrap(), at)[0];
        let unbiased = truth.variance * ROWS as f64 / (ROWS - 1) as f64;
        near("variance", one("variance.new"), unbiased * 0.1, unbiased * 1e-6);
        near("the gradient of the scale", one("scale.grad"), truth.scale, truth.scale.abs() * 3e-3);
        near("the gradient of the bias", one("bias.grad"), truth.bias, truth.scale.abs() * 3e-3);
        let largest = truth.input.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
        for (got, want) in of_column(outputs.f32("p.grad").unwrap(), at).into_iter().zip(truth.input) {
            near("a gradient of the input", got, want, largest * 3e-3);
        }
    }
}

#[test]
fn a_ready_made_graph_may_have_running_statistics() {
    let graph = derived(&batch_norm(&[3, 2], 17, 1e-2, 0.9), &DeriveOptions::default());
    let ready = accept_ready(&onnxruntime::runtime(), &graph.with_first_values().unwrap(), None).unwrap();
    let shapes = |params: &[Param]| -> Vec<(String, Vec<usize>)> {
        params.iter().map(|param| (param.name.clone(), param.shape.clone())).collect()
    };
    assert_eq!(shapes(&ready.params), shapes(&graph.params));
    assert_eq!(shapes(&ready.state), shapes(&graph.state));
    assert_eq!((ready.data_inputs, ready.forward_outputs), (graph.data_inputs, graph.forward_outputs));
}

#[test]
fn statistics_behind_casts_and_reshapes_are_known() {
    let mut model = batch_norm(&[3, 2], 17, 1e-2, 0.9);
    let graph = model.graph.as_mut().unwrap();
    let mut norm = graph.node.pop().unwrap();
    // As one exporter writes them: the type of another value, then a reshape.
    let mut rounded = GraphBuilder::new("rounded");
    let flat = rounded.ints("flat", &[3]);
    for name in ["mean", "variance"] {
        let like = rounded.op("CastLike", &[name, "x"], &[]);
        rounded.named(&format!("{name}_rounded"), "Reshape", &[&like, &flat], &[]);
    }
    let rounded = rounded.finish().graph.unwrap();
    graph.node.extend(rounded.node);
    graph.initializer.extend(rounded.initializer);
    norm.input.truncate(3);
    norm.input.extend(["mean_rounded".to_owned(), "variance_rounded".to_owned()]);
    graph.node.push(norm);

    let train = Some(["w", "scale", "bias"].map(str::to_owned).to_vec());
    let options = DeriveOptions { train, simplify: false, ..DeriveOptions::default() };
    let graph = SMOOTH.check_with("rounded", &model, &options, &[&[("x", &[4, 3, 2])]]);
    assert_eq!(graph.state.iter().map(|param| &param.name).collect::<Vec<_>>(), ["mean", "variance"]);
}

#[test]
fn layer_norm() {
    for (axis, shape) in [(-1, &[4][..]), (2, &[3, 4]), (1, &[2, 3, 4]), (-2, &[3, 4])] {
        let attributes = [attr_int("axis", axis), attr_float("epsilon", 1e-2)];
        let name = format!("layer norm {axis}");
        Image::new(&[2, 3, 4], 17).param(shape).check(&name, "LayerNormalization", &attributes, SMOOTH);
        let image = Image::new(&[2, 3, 4], 17).param(shape).param(shape);
        image.check(&name, "LayerNormalization", &attributes, SMOOTH);
    }
    let image = Image::new(&[2, 3, 4], 17).param(&[4]);
    image.check("repeated scale", "LayerNormalization", &[attr_int("axis", 2)], SMOOTH);
}

#[test]
fn rms_norm() {
    for (axis, shape) in [(-1, &[4][..]), (2, &[3, 4]), (1, &[2, 3, 4])] {
        let attributes = [attr_int("axis", axis), attr_float("epsilon", 1e-2)];
        let image = Image::new(&[2, 3, 4], 23).param(shape);
        image.check(&format!("rms norm {axis}"), "RMSNormalization", &attributes, SMOOTH);
    }
}

#[test]
fn group_norm() {
    for (opset, scales) in [(18, 2), (21, 4)] {
        for sizes in [&[4, 2, 3][..], &[4, 5], &[4, 1, 2, 3]] {
            let attributes = [attr_int("num_groups", 2), attr_float("epsilon", 1e-2)];
            let image = Image::new(sizes, opset).param(&[scales]).param(&[scales]);
            image.check(&format!("group norm {opset} {sizes:?}"), "GroupNormalization", &attributes, SMOOTH);
        }
    }
}

#[test]
fn group_norm_of_images_of_open_size() {
    for (opset, scales) in [(18, 2), (21, 4)] {
        let mut graph = GraphBuilder::new("open").with_opset(opset);
        let dims = ["batch".into(), 4.into(), "height".into(), 3.into()];
        let x = graph.input("x", ElementType::F32, &dims);
        let mut random = SplitMix64::new(6);
        let w = graph.weight("w", &[4, 1, 3], &numbers(&mut random, &[4, 1, 3]));
        let scale = graph.weight("scale", &[scales], &numbers(&mut random, &[scales]));
        let bias = graph.weight("bias", &[scales], &numbers(&mut random, &[scales]));
        let image = graph.op("Add", &[&x, &w], &[]);
        let attributes = [attr_int("num_groups", 2), attr_float("epsilon", 1e-2)];
        let y = graph.named("y", "GroupNormalization", &[&image, &scale, &bias], &attributes);
        graph.output(&y);
        // Simplified, the operator is taken apart by its definition, and other rules see its parts.
        let options = DeriveOptions { simplify: false, ..DeriveOptions::default() };
        let batches: [&[(&str, &[usize])]; 2] = [&[("x", &[2, 4, 2, 3])], &[("x", &[3, 4, 1, 3])]];
        SMOOTH.check_with("group norm", &graph.finish(), &options, &batches);
    }
}

#[test]
fn a_convolution_behind_group_norms_knows_its_size() {
    let mut image = Image::new(&[4, 3, 3], 21).param(&[4]).param(&[4]);
    let inputs: Vec<&str> = image.inputs.iter().map(String::as_str).collect();
    let groups = [attr_int("num_groups", 2), attr_float("epsilon", 1e-2)];
    let first = image.graph.op("GroupNormalization", &inputs, &groups);
    let again = image.graph.op("GroupNormalization", &[&first, inputs[1], inputs[2]], &groups);
    image.inputs = vec![again];
    image.param(&[2, 4, 2, 2]).check("conv of group norms", "Conv", &[], SMOOTH);
}

#[test]
fn instance_norm() {
    for sizes in [&[3, 2, 3][..], &[3, 5], &[2, 2, 1, 3]] {
        let image = Image::new(sizes, 17).param(&sizes[..1]).param(&sizes[..1]);
        image.check("instance norm", "InstanceNormalization", &[attr_float("epsilon", 1e-2)], SMOOTH);
    }
}

#[test]
fn lp_norm() {
    for axis in [-1, 1] {
        for p in [1, 2] {
            // No element of these images lies within a step of the kink at 0.
            let how = Slopes { step: 2e-3, ..SMOOTH };
            let attributes = [attr_int("axis", axis), attr_int("p", p)];
            Image::new(&[3, 5], 17).check(&format!("lp {p} {axis}"), "LpNormalization", &attributes, how);
        }
    }
}

#[test]
fn a_row_of_zeros_has_no_part_in_the_gradients_of_its_norm() {
    for p in [1, 2] {
        let mut graph = GraphBuilder::new("dead");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        // Of the first sample all units are dead, of the second one.
        let w = graph.weight("w", &[2, 3], &[1.0, 2.0, 3.0, 0.5, -1.0, 0.25]);
        let h = graph.op("MatMul", &[&x, &w], &[]);
        let h = graph.op("Relu", &[&h], &[]);
        let y = graph.named("y", "LpNormalization", &[&h], &[attr_int("axis", -1), attr_int("p", p)]);
        graph.output(&y);
        let derived = derive(
            &onnxruntime::runtime(),
            &graph.finish().to_bytes(),
            Loss::MeanSquaredError,
            &DeriveOptions::default(),
        );
        let derived = derived.unwrap();
        let mut session =
            Executable::new(&onnxruntime::runtime(), &derived.train_onnx, &ExecOptions::default()).unwrap();
        let mut grad = |rows: &[f32], label: &[f32]| {
            let shape = [rows.len() / 2, 2];
            let (x, label) =
                (F32 { shape: &shape, data: rows }, F32 { shape: &[rows.len() / 2, 3], data: label });
            let w = F32 { shape: &[2, 3], data: &derived.params[0].initial };
            let outputs = session.run(&[("x", x), ("label", label), ("w", w)]).unwrap();
            outputs.f32("w.grad").unwrap().to_vec()
        };
        let alone = grad(&[0.0, 1.0], &[0.3, 0.4, -0.1]);
        let both = grad(&[-1.0, 0.0, 0.0, 1.0], &[1.0, 1.0, 1.0, 0.3, 0.4, -0.1]);
        assert!(alone.iter().any(|g| *g != 0.0), "p {p}: {alone:?}");
        // The mean is over twice as many.
        let close = both.iter().zip(&alone).all(|(both, alone)| (2.0 * both - alone).abs() < 1e-6);
        assert!(close, "p {p}: {both:?}, alone {alone:?}");
    }
}

/// y = dropout(x * w).
fn dropout(ratio: Option<f32>, training: Option<bool>) -> ModelProto {
    let mut image = Image::new(&[4, 5], 17);
    image = match ratio {
        Some(ratio) => image.constant(TensorProto::from_f32("ratio", &[], &[ratio])),
        None => image.without(),
    };
    if let Some(training) = training {
        image = image.constant(TensorProto::from_bool("training", training));
    }
    image.finish("Dropout", &[]).0
}

#[test]
fn dropout_drops_in_training_and_not_in_evaluation() {
    let fresh = Slopes { fresh: true, ..LINEAR };
    for ratio in [None, Some(0.25)] {
        for training in [None, Some(false), Some(true)] {
            let model = dropout(ratio, training);
            for simplify in [false, true] {
                let options = DeriveOptions { simplify, seed: 3, ..DeriveOptions::default() };
                at_two_batches(&[4, 5], |batches| {
                    fresh.check_with("dropout", &model, &options, batches);
                });
                let graph = derived(&model, &options);
                let (train, eval) = (zeros_of(&graph.train_onnx, &graph), zeros_of(&graph.eval_onnx, &graph));
                let expected = 200.0 * f64::from(ratio.unwrap_or(0.5));
                assert!((train as f64 - expected).abs() < 40.0, "{train} of 200 dropped, ratio {ratio:?}");
                assert_eq!(eval, 0);
                assert_eq!(zeros_of(&graph.train_onnx, &graph), train, "the seed repeats");
                let options = DeriveOptions { eval_mode: EvalMode::Whole, ..options };
                let graph = derived(&model, &options);
                assert_eq!(zeros_of(&graph.train_onnx, &graph), 0);
                at_two_batches(&[4, 5], |batches| {
                    LINEAR.check_with("dropout, evaluated", &model, &options, batches);
                });
            }
        }
    }
}

#[test]
fn dropout_in_the_middle_of_a_model_is_not_simplified_away() {
    let mut graph = GraphBuilder::new("middle");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let w = graph.weight("w", &[2, 3], &[0.5; 6]);
    let h = graph.op("MatMul", &[&x, &w], &[]);
    let h = graph.op("Dropout", &[&h], &[]);
    let y = graph.op("Tanh", &[&h], &[]);
    graph.output(&y);
    let model = graph.finish();
    for (eval_mode, kept) in [(false, 1), (true, 0)] {
        let options = DeriveOptions { eval_mode: eval_mode.into(), ..DeriveOptions::default() };
        let graph = derived(&model, &options);
        let loaded = onnxruntime::runtime().simplify(&graph.train_onnx).unwrap();
        let nodes = syncline_onnx::parse(&loaded).unwrap().graph.unwrap().node;
        assert_eq!(nodes.iter().filter(|node| node.op_type == "Dropout").count(), kept);
    }
}

/// How many elements of y = dropout(x + w) are 0 where none of x + w is, for 10 samples of 20.
fn zeros_of(onnx: &[u8], graph: &TrainingGraph) -> usize {
    let mut session = Executable::new(&onnxruntime::runtime(), onnx, &ExecOptions::default()).unwrap();
    let (shape, x) = ([10, 4, 5], [3.0; 200]);
    let w = &graph.params[0];
    let views = [
        ("x", F32 { shape: &shape, data: &x }),
        ("label", F32 { shape: &shape, data: &x }),
        ("w", F32 { shape: &w.shape, data: &w.initial }),
    ];
    let outputs = session.run(&views).unwrap();
    outputs.f32("y").unwrap().iter().filter(|y| **y == 0.0).count()
}

/// Shapes of the other operands.
type Others = &'static [&'static [usize]];

#[test]
fn einsum() {
    #[rustfmt::skip]
    // equation, image (without its batch), other operands
    let cases: &[(&str, &[usize], Others)] = &[
        ("bij,jk->bik",         &[3, 4],    &[&[4, 2]]),
        ("bij,jk",              &[3, 4],    &[&[4, 2]]),
        ("b i j , j k -> k b i", &[3, 4],   &[&[4, 2]]),
        ("bij->bji",            &[3, 4],    &[]),
        ("bij->bi",             &[3, 4],    &[]),
        ("bij,ik->bk",          &[3, 4],    &[&[3, 2]]),
        ("bij,ij->bij",         &[3, 4],    &[&[3, 4]]),
        ("bij,i,jk->bk",        &[3, 4],    &[&[3], &[4, 2]]),
        ("...j,jk->...k",       &[3, 4],    &[&[4, 2]]),
        ("...ij,...jk->...ik",  &[2, 3, 4], &[&[1, 2, 4, 2]]),
        ("...ij,...jk->...ik",  &[2, 3, 4], &[&[1, 1, 4, 2]]),
        ("...ij,jk",            &[2, 3, 4], &[&[4, 2]]),
        ("bhqd,hkd->bhqk",      &[2, 3, 4], &[&[2, 5, 4]]),
        ("bij,kl->bik",         &[3, 4],    &[&[2, 2]]),
        ("bii->bi",             &[3, 3],    &[]),
        ("bii->b",              &[3, 3],    &[]),
        ("bii,ij->bj",          &[3, 3],    &[&[3, 2]]),
        ("bi,ii->bi",           &[3],       &[&[3, 3]]),
        ("bi,jij->b",           &[3],       &[&[2, 3, 2]]),
        ("biii->bi",            &[3, 3, 3], &[]),
        ("bj,jk->bk",           &[3],       &[&[1, 4]]),
        ("bij,ij->b",           &[2, 3],    &[&[2, 1]]),
        ("bij,i,ik->bk",        &[3, 4],    &[&[1], &[1, 2]]),
        ("bij,i,ik->bk",        &[3, 4],    &[&[1], &[3, 2]]),
        ("bii,ij->bj",          &[3, 3],    &[&[1, 2]]),
        ("bij,i,ijk->bk",       &[3, 4],    &[&[1], &[3, 4, 2]]),
        ("bij,i,ijk->bk",       &[3, 4],    &[&[3], &[1, 4, 2]]),
        ("...ij,jk->...ik",     &[2, 3, 4], &[&[1, 2]]),
    ];
    for (equation, sizes, others) in cases {
        let mut image = Image::new(sizes, 17);
        for other in *others {
            image = image.param(other);
        }
        image.check(equation, "Einsum", &[attr_string("equation", equation)], LINEAR);
    }
}

/// Of which the shape inference of ONNX knows the result only where it has that of whoever names a letter
/// first.
#[test]
fn an_einsum_repeats_axes_of_size_1_of_any_operand_whatever_reads_it() {
    #[rustfmt::skip]
    // equation, a parameter, the data (without its batch)
    let cases: &[(&str, &[usize], &[usize])] = &[
        ("bqd,bkd->bqk",         &[1, 3, 4],     &[5, 4]),
        ("bqd,bdk->bqk",         &[1, 3, 4],     &[4, 5]),
        ("bhqd,bhkd->bhqk",      &[1, 1, 3, 4],  &[2, 5, 4]),
        ("...qd,...kd->...qk",   &[1, 1, 3, 4],  &[2, 5, 4]),
        ("bqd,bkd->bk",          &[1, 3, 1],     &[5, 4]),
        ("bij,bij->bji",         &[1, 1, 4],     &[3, 4]),
    ];
    for (equation, query, sizes) in cases {
        let case = Case::new("Einsum").param(query).open(sizes);
        case.attr(attr_string("equation", equation)).check_with(equation, |graph, y| {
            let bias = graph.weight("bias", &[1], &[0.3]);
            let shifted = graph.op("Add", &[&y, &bias], &[]);
            graph.op("Tanh", &[&shifted], &[])
        });
    }
}

#[test]
fn an_einsum_has_gradients_of_operands_that_are_left_with_no_axis_of_more_than_1() {
    let einsum = |equation| Case::new("Einsum").attr(attr_string("equation", equation)).open(&[1, 1]);
    let shifted = |graph: &mut GraphBuilder, y: String| {
        let bias = graph.weight("bias", &[1], &[0.3]);
        let shifted = graph.op("Add", &[&y, &bias], &[]);
        graph.op("Tanh", &[&shifted], &[])
    };
    einsum("bmk,bkm,m->bk").param(&[1, 4, 2]).param(&[1]).check_with("a learned scale", shifted);
    einsum("bim,bi,bi->bm").param(&[1, 1]).param(&[1, 2]).check_with("a scale between two", shifted);
}

/// What a mask says of pairs that do not count.
#[derive(Debug, Clone, Copy)]
enum Excluded {
    False,
    Plus(f32),
}

#[test]
fn a_query_without_keys_has_no_gradients() {
    use Excluded::{False, Plus};
    #[rustfmt::skip]
    // shape and numbers of the mask, causal
    let cases: &[(&[usize], &[i64], i64)] = &[
        (&[3, 3],          &[0, 0, 0,  0, 1, 1,  1, 1, 0], 0),
        (&[3, 3],          &[1, 1, 1,  0, 0, 1,  0, 1, 1], 1),
        // Padding in front of the second sample: its first query may see no other key.
        (&[2, 1, 3, 3],    &[1, 1, 1,  1, 1, 1,  1, 1, 1,  0, 1, 1,  0, 1, 1,  0, 1, 1], 1),
        (&[1, 2, 3, 3],    &[0, 0, 0,  0, 1, 1,  1, 1, 0,  1, 1, 1,  0, 0, 0,  0, 0, 0], 0),
    ];
    for (shape, counts, causal) in cases {
        for excluded in [False, Plus(f32::NEG_INFINITY), Plus(f32::MIN)] {
            for kv_heads in [1, 2] {
                let name = format!("{excluded:?} {shape:?} {causal} {kv_heads}");
                let mut graph = GraphBuilder::new("masked").with_opset(23);
                let mut random = SplitMix64::new(4);
                let (mut inputs, mut params) = (Vec::new(), Vec::new());
                for (input, heads) in [("q", 2), ("k", kv_heads), ("v", kv_heads)] {
                    let dims = ["batch".into(), heads.into(), 3.into(), 4.into()];
                    let x = graph.input(input, ElementType::F32, &dims);
                    let w = graph.weight(
                        &format!("w{input}"),
                        &[heads, 3, 4],
                        &numbers(&mut random, &[heads, 3, 4]),
                    );
                    inputs.push(graph.op("Add", &[&x, &w], &[]));
                    params.push(w);
                }
                let counts = graph.constant(TensorProto::from_i64("counts", shape, counts));
                let counts =
                    graph.op("Cast", &[&counts], &[attr_int("to", i64::from(ElementType::Bool.code()))]);
                inputs.push(match excluded {
                    False => counts,
                    Plus(number) => {
                        // The numbers of pairs that count are trained.
                        let bias = graph.weight("bias", shape, &numbers(&mut random, shape));
                        params.push(bias.clone());
                        let number = graph.constant(TensorProto::from_f32("number", &[], &[number]));
                        graph.op("Where", &[&counts, &bias, &number], &[])
                    }
                });
                let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
                let y = graph.named("y", "Attention", &inputs, &[attr_int("is_causal", *causal)]);
                graph.output(&y);
                let params: Vec<&str> = params.iter().map(String::as_str).collect();
                let (q, kv) = ([2, 2, 3, 4], [2, kv_heads, 3, 4]);
                SMOOTH.check(&name, &graph.finish(), &params, &[&[("q", &q), ("k", &kv), ("v", &kv)]]);
            }
        }
    }
}

#[test]
fn attention() {
    #[rustfmt::skip]
    // causal, softcap, mask, heads of K and V
    let cases: &[(i64, f32, Option<&[usize]>, usize)] = &[
        (0, 0.0, None,                2),
        (1, 0.0, None,                2),
        (0, 2.0, None,                2),
        (0, 0.0, Some(&[3, 3]),       2),
        (1, 0.0, Some(&[2, 3, 3]),    2),
        (0, 0.0, Some(&[1, 2, 3, 3]), 1),
        (1, 2.0, None,                1),
        // The mask is added behind the cap, and has nothing of its slope.
        (0, 0.2, Some(&[3, 3]),       2),
        (1, 0.2, Some(&[1, 2, 3, 3]), 1),
    ];
    for (causal, softcap, mask, kv_heads) in cases {
        for own_axis in [false, true] {
            let name = format!("attention {causal} {softcap} {mask:?} {kv_heads} {own_axis}");
            let mut attributes = vec![attr_int("is_causal", *causal), attr_float("softcap", *softcap)];
            if !own_axis {
                attributes.extend([attr_int("q_num_heads", 2), attr_int("kv_num_heads", *kv_heads as i64)]);
            }
            // Three queries; three keys and values of width 4.
            let sizes = |heads: usize| if own_axis { vec![heads, 3, 4] } else { vec![3, heads * 4] };
            let mut graph = GraphBuilder::new("attention").with_opset(23);
            let mut random = SplitMix64::new(4);
            let (mut inputs, mut params) = (Vec::new(), Vec::new());
            for (input, heads) in [("q", 2), ("k", *kv_heads), ("v", *kv_heads)] {
                let sizes = sizes(heads);
                let dims: Vec<Dim> =
                    [Dim::from("batch")].into_iter().chain(sizes.iter().map(|&size| size.into())).collect();
                let x = graph.input(input, ElementType::F32, &dims);
                let w = graph.weight(&format!("w{input}"), &sizes, &numbers(&mut random, &sizes));
                inputs.push(graph.op("Add", &[&x, &w], &[]));
                params.push(w);
            }
            if let Some(mask) = mask {
                let mask = graph.weight("mask", mask, &numbers(&mut random, mask));
                inputs.push(mask.clone());
                params.push(mask);
            }
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let y = graph.named("y", "Attention", &inputs, &attributes);
            graph.output(&y);
            let params: Vec<&str> = params.iter().map(String::as_str).collect();
            let shapes = [2, 3]
                .map(|batch| [sizes(2), sizes(*kv_heads)].map(|sizes| [&[batch], sizes.as_slice()].concat()));
            let batches = shapes
                .each_ref()
                .map(|[q, kv]| [("q", q.as_slice()), ("k", kv.as_slice()), ("v", kv.as_slice())]);
            let batches: Vec<&[(&str, &[usize])]> = batches.iter().map(|batch| batch.as_slice()).collect();
            SMOOTH.check(&name, &graph.finish(), &params, &batches);
        }
    }
}

/// The mean and variance of the running statistics after one step of y = norm(a) + norm(b), with one
/// normalization.
fn statistics_of_two_calls(chained: bool, simplify: bool) -> [Vec<f32>; 2] {
    let mut graph = GraphBuilder::new("twice");
    let dims = [Dim::from("batch"), 2.into()];
    let [a, b] = ["a", "b"].map(|name| graph.input(name, ElementType::F32, &dims));
    let scale = graph.weight("scale", &[2], &[1.2, -0.7]);
    let bias = graph.weight("bias", &[2], &[0.1, 0.2]);
    let mean = graph.weight("mean", &[2], &[0.1, -0.2]);
    let variance = graph.weight("variance", &[2], &[0.5, 1.5]);
    let first = graph.named("first", "BatchNormalization", &[&a, &scale, &bias, &mean, &variance], &[]);
    let [mean, variance] = match chained {
        true => ["mean1", "variance1"].map(str::to_owned),
        false => [mean, variance],
    };
    let second = graph.named("second", "BatchNormalization", &[&b, &scale, &bias, &mean, &variance], &[]);
    let y = graph.op("Add", &[&first, &second], &[]);
    graph.output(&y);
    let mut model = graph.finish();
    if chained {
        let nodes = &mut model.graph.as_mut().unwrap().node;
        for (node, call) in nodes.iter_mut().zip(1..=2) {
            node.attribute.push(attr_int("training_mode", 1));
            node.output.extend([format!("mean{call}"), format!("variance{call}")]);
        }
    }
    let train = Some(["scale", "bias"].map(str::to_owned).to_vec());
    let graph = derived(&model, &DeriveOptions { train, simplify, ..DeriveOptions::default() });
    let names: Vec<&str> = graph.state.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["mean", "variance"]);
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let shape = [3, 2];
    let numbers: [(&str, &[f32]); 3] = [
        ("a", &[1.0, 2.0, 3.0, -2.0, 5.0, 0.5]),
        ("b", &[-4.0, 8.0, 2.0, 6.0, 0.0, 1.0]),
        ("label", &[0.0; 6]),
    ];
    let mut views: Vec<_> =
        numbers.into_iter().map(|(name, data)| (name, F32 { shape: &shape, data })).collect();
    let held = graph.params.iter().chain(&graph.state);
    views.extend(held.map(|p| (p.name.as_str(), F32 { shape: &p.shape, data: &p.initial })));
    let outputs = session.run(&views).unwrap();
    ["mean.new", "variance.new"].map(|name| outputs.f32(name).unwrap().to_vec())
}

#[test]
fn every_call_of_a_normalization_moves_its_running_statistics() {
    // PyTorch 2.15: BatchNorm1d(2) in training, called with a and then with b.
    let want = [[0.284_333_35, 0.353_000_02], [1.698_333_3, 2.882_5]];
    for (chained, simplify) in [(false, false), (false, true), (true, false), (true, true)] {
        let got = statistics_of_two_calls(chained, simplify);
        let close =
            got.iter().flatten().zip(want.iter().flatten()).all(|(a, b): (&f32, &f32)| (a - b).abs() < 1e-6);
        assert!(close, "chained {chained}, simplify {simplify}: {got:?}");
    }
}

#[test]
fn attention_in_float16_scales_queries_before_the_product() {
    let mut graph = GraphBuilder::new("attention").with_opset(23);
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 8.into()]);
    let w = graph.weight("w", &[8, 8], &numbers(&mut SplitMix64::new(4), &[8, 8]));
    let x = graph.op("MatMul", &[&x, &w], &[]);
    let attributes = [attr_int("q_num_heads", 2), attr_int("kv_num_heads", 2), attr_float("scale", 0.125)];
    let y = graph.named("y", "Attention", &[&x, &x, &x], &attributes);
    graph.output(&y);
    let graph = derived(&graph.finish(), &DeriveOptions { simplify: false, ..DeriveOptions::default() });
    let graph = syncline_onnx::parse(&graph.train_onnx).unwrap().graph.unwrap();
    let producer =
        |value: &str| graph.node.iter().find(|node| node.output.iter().any(|output| output == value));
    let softmax = graph.node.iter().find(|node| node.op_type == "Softmax").unwrap();
    let product = producer(&softmax.input[0]).unwrap();
    assert_eq!(product.op_type, "MatMul", "q k^T would be eight times as large as what is softmaxed");
    assert_eq!(producer(&product.input[0]).unwrap().op_type, "Mul");
}
