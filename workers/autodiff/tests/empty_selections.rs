//! Gradients of what a model computes of the samples it has selected, where it has selected none: nothing,
//! and no error.

use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::proto::TensorProto;
use syncline_onnx::{Dim, ElementType, GraphBuilder, attr_int, attr_ints, attr_string};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;

const BATCH: usize = 2;
/// Channels, height and width.
const IMAGE: [usize; 3] = [4, 5, 6];
const SAMPLE: usize = 4 * 5 * 6;

/// What is computed of the selected samples.
type Part = fn(&mut GraphBuilder, &str) -> String;

/// y = mean of each sample of `x + w`, and what `part` makes of the samples with an element above 100.
fn model(part: Part) -> Vec<u8> {
    let mut graph = GraphBuilder::new("selection").with_opset(18);
    let dims: Vec<Dim> = [Dim::from("batch")].into_iter().chain(IMAGE.map(Dim::from)).collect();
    let x = graph.input("x", ElementType::F32, &dims);
    let w = graph.weight("w", &IMAGE, &[0.5; SAMPLE]);
    let images = graph.op("Add", &[&x, &w], &[]);
    let space = graph.ints("space", &[1, 2, 3]);
    let keep = attr_int("keepdims", 0);
    let highest = graph.op("ReduceMax", &[&x, &space], std::slice::from_ref(&keep));
    let bound = graph.constant(TensorProto::from_f32("bound", &[], &[100.0]));
    let wanted = graph.op("Greater", &[&highest, &bound], &[]);
    let selected = graph.op("Compress", &[&images, &wanted], &[attr_int("axis", 0)]);
    let made = part(&mut graph, &selected);
    let total = graph.op("ReduceSum", &[&made], std::slice::from_ref(&keep));
    let mean = graph.op("ReduceMean", &[&images, &space], &[keep]);
    let y = graph.named("y", "Add", &[&mean, &total], &[]);
    graph.output(&y);
    graph.finish().to_bytes()
}

fn gradient(part: Part, threads: usize, simplify: bool) -> Result<Vec<f32>, String> {
    let runtime = onnxruntime::runtime();
    let options = DeriveOptions { train: Some(vec!["w".to_owned()]), simplify, ..DeriveOptions::default() };
    let graph =
        derive(&runtime, &model(part), Loss::MeanSquaredError, &options).map_err(|e| e.to_string())?;
    let options = ExecOptions { intra_threads: threads, ..ExecOptions::default() };
    let mut session = Executable::new(&runtime, &graph.train_onnx, &options).map_err(|e| e.to_string())?;
    let x: Vec<f32> = (0..BATCH * SAMPLE).map(|i| (i % 11) as f32 * 0.1).collect();
    let shape = [&[BATCH], IMAGE.as_slice()].concat();
    let outputs = session.run(&[
        ("x", TensorView::F32 { shape: &shape, data: &x }),
        ("w", TensorView::F32 { shape: &IMAGE, data: &[0.5; SAMPLE] }),
        ("label", TensorView::F32 { shape: &[BATCH], data: &[0.0; BATCH] }),
    ]);
    let outputs = outputs.map_err(|e| e.to_string())?;
    Ok(outputs.f32("w.grad").map_err(|e| e.to_string())?.to_vec())
}

#[test]
fn no_operator_minds_that_no_sample_was_selected() {
    #[rustfmt::skip]
    let parts: [(&str, Part); 32] = [
        ("GlobalAveragePool", |g, x| g.op("GlobalAveragePool", &[x], &[])),
        ("GlobalMaxPool", |g, x| g.op("GlobalMaxPool", &[x], &[])),
        ("GlobalLpPool", |g, x| g.op("GlobalLpPool", &[x], &[])),
        ("AveragePool", |g, x| g.op("AveragePool", &[x], &[attr_ints("kernel_shape", &[2, 2])])),
        ("MaxPool", |g, x| g.op("MaxPool", &[x], &[attr_ints("kernel_shape", &[2, 2])])),
        ("Conv", |g, x| {
            let w = g.weight("kernel", &[2, 4, 3, 3], &[0.1; 72]);
            g.op("Conv", &[x, &w], &[])
        }),
        ("ConvTranspose", |g, x| {
            let w = g.weight("kernel", &[4, 2, 3, 3], &[0.1; 72]);
            g.op("ConvTranspose", &[x, &w], &[])
        }),
        ("LayerNormalization", |g, x| {
            let scale = g.constant(TensorProto::from_f32("scale", &[6], &[1.0; 6]));
            g.op("LayerNormalization", &[x, &scale], &[])
        }),
        ("InstanceNormalization", |g, x| {
            let (scale, bias) = (g.weight("scale", &[4], &[1.0; 4]), g.weight("bias", &[4], &[0.0; 4]));
            g.op("InstanceNormalization", &[x, &scale, &bias], &[])
        }),
        ("GroupNormalization", |g, x| {
            let (scale, bias) = (g.weight("scale", &[2], &[1.0; 2]), g.weight("bias", &[2], &[0.0; 2]));
            g.op("GroupNormalization", &[x, &scale, &bias], &[attr_int("num_groups", 2)])
        }),
        ("Einsum", |g, x| {
            let w = g.weight("kernel", &[4, 3], &[0.1; 12]);
            g.op("Einsum", &[x, &w], &[attr_string("equation", "nchw,cd->ndhw")])
        }),
        ("Einsum of selected samples with themselves", |g, x| {
            g.op("Einsum", &[x, x], &[attr_string("equation", "nchw,nchk->nwk")])
        }),
        ("Einsum of selected samples with each other", |g, x| {
            g.op("Einsum", &[x, x], &[attr_string("equation", "nchw,mchw->nm")])
        }),
        ("Einsum with an operand that is turned", |g, x| {
            let turned = g.op("Transpose", &[x], &[attr_ints("perm", &[0, 1, 3, 2])]);
            g.op("Einsum", &[x, &turned], &[attr_string("equation", "...hw,...wh->...h")])
        }),
        ("Softmax", |g, x| g.op("Softmax", &[x], &[attr_int("axis", 1)])),
        ("ReduceMean over space", |g, x| {
            let axes = g.ints("axes", &[2, 3]);
            g.op("ReduceMean", &[x, &axes], &[])
        }),
        ("ReduceMean over channels, flat", |g, x| {
            let axes = g.ints("axes", &[1]);
            g.op("ReduceMean", &[x, &axes], &[attr_int("keepdims", 0)])
        }),
        ("ReduceMean over an axis from the end, flat", |g, x| {
            let axes = g.ints("axes", &[-1]);
            g.op("ReduceMean", &[x, &axes], &[attr_int("keepdims", 0)])
        }),
        ("ReduceL2 over axes from the end", |g, x| {
            let axes = g.ints("axes", &[-2, 1]);
            g.op("ReduceL2", &[x, &axes], &[attr_int("keepdims", 0)])
        }),
        ("ReduceMax", |g, x| {
            let axes = g.ints("axes", &[2, 3]);
            g.op("ReduceMax", &[x, &axes], &[])
        }),
        ("Tile", |g, x| {
            let repeats = g.ints("repeats", &[1, 2, 1, 3]);
            g.op("Tile", &[x, &repeats], &[])
        }),
        ("Resize, repeated", |g, x| {
            let scales = g.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 2.0, 2.0]));
            g.op("Resize", &[x, "", &scales], &[])
        }),
        ("Resize, linear", |g, x| {
            let scales = g.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 1.5, 0.5]));
            g.op("Resize", &[x, "", &scales], &[attr_string("mode", "linear")])
        }),
        ("Pad, reflecting", |g, x| {
            let pads = g.ints("pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
            g.op("Pad", &[x, &pads], &[attr_string("mode", "reflect")])
        }),
        ("Gather of channels", |g, x| {
            let channels = g.ints("channels", &[1, 1, 3]);
            g.op("Gather", &[x, &channels], &[attr_int("axis", 1)])
        }),
        ("Gather of one channel", |g, x| {
            let channel = g.ints("channel", &[1]);
            g.op("Gather", &[x, &channel], &[attr_int("axis", 1)])
        }),
        ("Slice", |g, x| {
            let (starts, ends, axes) = (g.ints("starts", &[1]), g.ints("ends", &[3]), g.ints("axes", &[2]));
            g.op("Slice", &[x, &starts, &ends, &axes], &[])
        }),
        ("Flatten", |g, x| g.op("Flatten", &[x], &[])),
        ("Transpose", |g, x| g.op("Transpose", &[x], &[attr_ints("perm", &[0, 2, 3, 1])])),
        ("DepthToSpace", |g, x| g.op("DepthToSpace", &[x], &[attr_int("blocksize", 2)])),
        ("CumSum", |g, x| {
            let axis = g.constant(TensorProto::from_i64("axis", &[], &[1]));
            g.op("CumSum", &[x, &axis], &[])
        }),
        ("an embedding", |g, x| {
            let axes = g.ints("axes", &[1, 2, 3]);
            let ids = g.op("ReduceSum", &[x, &axes], &[attr_int("keepdims", 0)]);
            let ids = g.op("Cast", &[&ids], &[attr_int("to", 7)]);
            let table = g.weight("table", &[3, 2], &[0.1; 6]);
            g.op("Gather", &[&table, &ids], &[])
        }),
    ];
    let nothing = gradient(|g, x| g.op("Relu", &[x], &[]), 1, true).unwrap();
    assert!(nothing.iter().all(|slope| *slope > 0.0), "{nothing:?}");
    let mut failed = Vec::new();
    for (name, part) in parts {
        for (threads, simplify) in [(1, false), (1, true), (2, true)] {
            match gradient(part, threads, simplify) {
                Ok(slopes) if slopes == nothing => {}
                Ok(slopes) => failed.push(format!("{name}, {threads} threads: {:?}", &slopes[..4])),
                Err(error) => failed.push(format!("{name}, {threads} threads, {simplify}: {error}")),
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

const MEAN: [f32; 4] = [0.1, -0.2, 0.3, 0.0];
const VARIANCE: [f32; 4] = [0.5, 1.5, 2.0, 1.0];

fn batch_norm(graph: &mut GraphBuilder, x: &str) -> String {
    let (scale, bias) = (graph.weight("scale", &[4], &[1.0; 4]), graph.weight("bias", &[4], &[0.0; 4]));
    let (mean, variance) = (graph.weight("mean", &[4], &MEAN), graph.weight("variance", &[4], &VARIANCE));
    graph.op("BatchNormalization", &[x, &scale, &bias, &mean, &variance], &[])
}

#[test]
fn a_batch_normalization_that_no_sample_reaches_has_no_gradient_and_keeps_its_statistics() {
    let parts: [(&str, Part); 2] = [
        ("images", batch_norm),
        ("rows", |g, x| {
            let space = g.ints("positions", &[2, 3]);
            let rows = g.op("ReduceMean", &[x, &space], &[attr_int("keepdims", 0)]);
            batch_norm(g, &rows)
        }),
    ];
    let runtime = onnxruntime::runtime();
    for (name, part) in parts {
        for simplify in [false, true] {
            let options = DeriveOptions { simplify, ..DeriveOptions::default() };
            let graph = derive(&runtime, &model(part), Loss::MeanSquaredError, &options).unwrap();
            let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
            let shape = [&[BATCH], IMAGE.as_slice()].concat();
            let mut views = vec![
                ("x", TensorView::F32 { shape: &shape, data: &[0.5; BATCH * SAMPLE] }),
                ("label", TensorView::F32 { shape: &[BATCH], data: &[0.0; BATCH] }),
            ];
            let held = graph.params.iter().chain(&graph.state);
            views.extend(
                held.map(|p| (p.name.as_str(), TensorView::F32 { shape: &p.shape, data: &p.initial })),
            );
            let outputs = session.run(&views).unwrap();
            let wanted = [
                ("scale.grad", [0.0; 4]),
                ("bias.grad", [0.0; 4]),
                ("mean.new", MEAN),
                ("variance.new", VARIANCE),
            ];
            for (output, wanted) in wanted {
                assert_eq!(outputs.f32(output).unwrap(), wanted, "{output}, {name}, simplify {simplify}");
            }
        }
    }
}
