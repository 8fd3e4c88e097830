//! Operators in every version of the operator set that exporters write, 13 to 23: the same gradient, whether
//! a setting is an attribute or an input, and whatever the version added.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use syncline_autodiff::{DeriveOptions, Loss};
use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64, attr_float, attr_int, attr_ints, attr_string};
use syncline_workers::check::{CheckOptions, check};

use crate::onnxruntime;

type Build = fn(&mut GraphBuilder, i64, String) -> String;

/// Name, versions, the sizes of x besides its batch, and what is done with x.
type Case = (&'static str, RangeInclusive<i64>, &'static [usize], Build);

fn numbers(count: usize) -> Vec<f32> {
    let mut random = SplitMix64::new(4);
    (0..count).map(|_| 0.6 * random.normal() as f32).collect()
}

fn weight(graph: &mut GraphBuilder, name: &str, shape: &[usize]) -> String {
    graph.weight(name, shape, &numbers(shape.iter().product()))
}

/// A reduction whose axes became an input in version `since`.
fn reduced(graph: &mut GraphBuilder, op: &str, opset: i64, since: i64, x: &str) -> String {
    if opset < since {
        return graph.op(op, &[x], &[attr_ints("axes", &[-1]), attr_int("keepdims", 0)]);
    }
    let axes = graph.ints(&format!("{op}/axes"), &[-1]);
    graph.op(op, &[x, &axes], &[attr_int("keepdims", 0)])
}

fn normalized(
    graph: &mut GraphBuilder,
    op: &str,
    x: &str,
    size: usize,
    attributes: &[AttributeProto],
) -> String {
    let (scale, bias) = (weight(graph, "scale", &[size]), weight(graph, "bias", &[size]));
    graph.op(op, &[x, &scale, &bias], attributes)
}

fn resized(graph: &mut GraphBuilder, x: &str, axes: Option<&[i64]>, sizes: &[i64], mode: &str) -> String {
    let mut attributes = vec![attr_string("mode", mode)];
    attributes.extend(axes.map(|axes| attr_ints("axes", axes)));
    let sizes = graph.ints("sizes", sizes);
    graph.op("Resize", &[x, "", "", &sizes], &attributes)
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("sum, mean, largest", 13..=23, &[3, 4], |g, opset, x| {
        let parts = [reduced(g, "ReduceSum", opset, 13, &x), reduced(g, "ReduceMean", opset, 18, &x),
            reduced(g, "ReduceMax", opset, 18, &x), reduced(g, "ReduceL2", opset, 18, &x),
            reduced(g, "ReduceLogSumExp", opset, 18, &x), reduced(g, "ReduceProd", opset, 18, &x)];
        g.op("Sum", &parts.each_ref().map(String::as_str), &[])
    }),
    ("split", 13..=23, &[7], |g, opset, x| {
        let (lengths, count) = (g.ints("lengths", &[3, 3, 1]), attr_int("num_outputs", 3));
        let inputs = [x.as_str(), &lengths];
        let (inputs, more) = if opset < 18 { (&inputs[..], None) } else { (&inputs[..1], Some(count)) };
        let attributes: Vec<AttributeProto> = more.into_iter().chain([attr_int("axis", 1)]).collect();
        g.named("split", "Split", inputs, &attributes);
        g.op("Mul", &["split", "split1"], &[])
    }),
    ("squeeze", 13..=23, &[1, 3], |g, _, x| {
        let axes = g.ints("axes", &[1]);
        let y = g.op("Squeeze", &[&x, &axes], &[]);
        g.op("Unsqueeze", &[&y, &axes], &[])
    }),
    ("pad", 13..=23, &[3, 4], |g, opset, x| {
        let (pads, value) = (g.ints("pads", &[0, 1, 2, 0, 0, -1]), g.constant(TensorProto::from_f32("v", &[], &[0.5])));
        let y = g.op("Pad", &[&x, &pads, &value], &[]);
        let around = g.ints("around", &[0, 1, 1, 0, 1, 1]);
        let y = g.op("Pad", &[&y, &around], &[attr_string("mode", "reflect")]);
        if opset < 18 { return y; }
        let (pads, axes) = (g.ints("end", &[1, 2]), g.ints("axes", &[-1]));
        g.op("Pad", &[&y, &pads, "", &axes], &[attr_string("mode", if opset < 19 { "edge" } else { "wrap" })])
    }),
    ("resize", 13..=23, &[2, 3, 4], |g, opset, x| {
        let scales = g.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 2.0, 1.5]));
        let y = g.op("Resize", &[&x, "", &scales], &[attr_string("mode", "linear")]);
        if opset < 18 { return y; }
        let y = resized(g, &y, Some(&[2, 3]), &[4, 9], "nearest");
        if opset < 19 { return y; }
        let scales = g.constant(TensorProto::from_f32("half", &[1], &[0.5]));
        let symmetric = attr_string("coordinate_transformation_mode", "half_pixel_symmetric");
        g.op("Resize", &[&y, "", &scales], &[attr_ints("axes", &[-1]), attr_string("mode", "cubic"), symmetric])
    }),
    ("convolution", 13..=23, &[2, 5, 5], |g, _, x| {
        let (w, b) = (weight(g, "cw", &[4, 1, 3, 3]), weight(g, "cb", &[4]));
        let y = g.op("Conv", &[&x, &w, &b], &[attr_int("group", 2), attr_ints("pads", &[1, 0, 1, 2])]);
        let (w, b) = (weight(g, "tw", &[4, 2, 2, 3]), weight(g, "tb", &[2]));
        g.op("ConvTranspose", &[&y, &w, &b], &[attr_ints("strides", &[2, 1])])
    }),
    ("pools", 13..=23, &[2, 7, 7], |g, opset, x| {
        let kernel = [attr_ints("kernel_shape", &[3, 2]), attr_ints("strides", &[2, 2]), attr_int("ceil_mode", 1)];
        let dilated = [&kernel[..], &[attr_ints("dilations", &[2, 1])]].concat();
        let most = g.op("MaxPool", &[&x], &dilated);
        // AveragePool is dilated from 19 on.
        let mean = g.op("AveragePool", &[&x], if opset < 19 { &kernel } else { &dilated });
        let (most, mean) = (g.op("GlobalAveragePool", &[&most], &[]), g.op("GlobalAveragePool", &[&mean], &[]));
        g.op("Add", &[&most, &mean], &[])
    }),
    ("batch statistics", 13..=23, &[2, 3], |g, _, x| {
        let (mean, variance) = (g.weight("mean", &[2], &[0.0; 2]), g.weight("variance", &[2], &[1.0; 2]));
        let (scale, bias) = (weight(g, "scale", &[2]), weight(g, "bias", &[2]));
        g.op("BatchNormalization", &[&x, &scale, &bias, &mean, &variance], &[attr_float("momentum", 0.8)])
    }),
    ("instance norm", 13..=23, &[3, 4], |g, _, x| normalized(g, "InstanceNormalization", &x, 3, &[])),
    ("layer norm", 17..=23, &[3, 4], |g, _, x| normalized(g, "LayerNormalization", &x, 4, &[])),
    ("group norm, a scale per group", 18..=20, &[4, 3], |g, _, x| normalized(g, "GroupNormalization", &x, 2, &[attr_int("num_groups", 2)])),
    ("group norm, a scale per channel", 21..=23, &[4, 3], |g, _, x| normalized(g, "GroupNormalization", &x, 4, &[attr_int("num_groups", 2)])),
    ("rms norm", 23..=23, &[3, 4], |g, _, x| {
        let scale = weight(g, "scale", &[4]);
        g.op("RMSNormalization", &[&x, &scale], &[])
    }),
    ("gelu", 20..=23, &[5], |g, _, x| {
        let y = g.op("Gelu", &[&x], &[]);
        g.op("Gelu", &[&y], &[attr_string("approximate", "tanh")])
    }),
    ("activations", 13..=23, &[5], |g, opset, x| {
        let slope = weight(g, "slope", &[5]);
        let y = g.op("PRelu", &[&x, &slope], &[]);
        let y = g.op("Elu", &[&y], &[]);
        let y = if opset < 14 { y } else { g.op("HardSwish", &[&y], &[]) };
        let y = g.op("Softplus", &[&y], &[]);
        let y = if opset < 18 { y } else { g.op("Mish", &[&y], &[]) };
        g.op("Softmax", &[&y], &[])
    }),
    ("dropout, cast, clip", 13..=23, &[5], |g, opset, x| {
        let rate = g.constant(TensorProto::from_f32("rate", &[], &[0.3]));
        let y = g.op("Dropout", &[&x, &rate], &[]);
        let saturate = (opset >= 19).then(|| attr_int("saturate", 0));
        let y = g.op("Cast", &[&y], &[attr_int("to", 1)].into_iter().chain(saturate).collect::<Vec<_>>());
        let (low, high) = (g.constant(TensorProto::from_f32("low", &[], &[-0.7])), g.constant(TensorProto::from_f32("high", &[], &[0.9])));
        g.op("Clip", &[&y, &low, &high], &[])
    }),
    ("indices", 13..=23, &[4, 3], |g, opset, x| {
        let at = g.constant(TensorProto::from_i64("at", &[3], &[2, 0, 2]));
        let y = g.op("Gather", &[&x, &at], &[attr_int("axis", 1)]);
        let add = if opset < 16 { Vec::new() } else { vec![attr_string("reduction", "add")] };
        let (indices, updates) = (g.constant(TensorProto::from_i64("indices", &[1, 2], &[0, 1])), weight(g, "updates", &[1, 3]));
        let y = g.op("ScatterND", &[&y, &indices, &updates], &add);
        let step = g.constant(TensorProto::from_i64("axis", &[], &[1]));
        g.op("CumSum", &[&y, &step], &[])
    }),
    ("attention", 23..=23, &[5, 12], |g, _, x| {
        let (q, k) = (weight(g, "q", &[12, 12]), weight(g, "k", &[12, 12]));
        let (q, k) = (g.op("MatMul", &[&x, &q], &[]), g.op("MatMul", &[&x, &k], &[]));
        let heads = [attr_int("q_num_heads", 3), attr_int("kv_num_heads", 3), attr_int("is_causal", 1)];
        g.op("Attention", &[&q, &k, &x], &heads)
    }),
];

#[test]
fn every_operator_set_gives_right_gradients() {
    let runtime = onnxruntime::runtime();
    let options = CheckOptions { batch: 3, dims: HashMap::new(), seed: 5 };
    for (name, opsets, sizes, build) in CASES {
        for opset in opsets.clone() {
            let mut graph = GraphBuilder::new(name).with_opset(opset);
            let dims: Vec<_> = [3].iter().chain(*sizes).map(|&size| size.into()).collect();
            let x = graph.input("x", ElementType::F32, &dims);
            let w = weight(&mut graph, "w", sizes);
            let scaled = graph.op("Mul", &[&x, &w], &[]);
            let y = build(&mut graph, opset, scaled);
            graph.output(&y);
            let mut model = graph.finish();
            for node in
                model.graph.iter_mut().flat_map(|graph| &mut graph.node).filter(|node| node.name == "split")
            {
                node.output.extend(["split1".to_owned(), "split2".to_owned()]);
            }
            let checked = check(
                &runtime,
                &model.to_bytes(),
                Loss::MeanSquaredError,
                &DeriveOptions::default(),
                &options,
            )
            .unwrap_or_else(|error| panic!("{name}, operator set {opset}: {error}"));
            for param in &checked.params {
                assert!(checked.passes(param), "{name}, operator set {opset}: {param:?}");
            }
            assert_eq!(checked.gradients, ElementType::F64, "{name}, operator set {opset}");
        }
    }
}
