//! Gradient rules of convolutions, pools and resizing against differences, over tables of shapes and
//! attributes.

use syncline_autodiff::{DeriveOptions, Loss, derive};
use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{ElementType, GraphBuilder, attr_float, attr_int, attr_ints, attr_string};
use syncline_runtime::TensorView::F32;
use syncline_runtime::{ExecOptions, Executable};

use crate::image::Image;
use crate::onnxruntime;
use crate::slopes::{LINEAR, SMOOTH, Slopes};

type Sizes = &'static [usize];
type List = &'static [i64];

/// Attributes by name; an empty list is left out.
fn lists(lists: &[(&str, &[i64])]) -> Vec<AttributeProto> {
    lists.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| attr_ints(name, list)).collect()
}

#[test]
fn conv() {
    #[rustfmt::skip]
    // name, channels and image, weights, groups, strides, pads, dilations
    let cases: &[(&str, Sizes, Sizes, i64, List, List, List)] = &[
        ("plain",            &[2, 4, 5],    &[3, 2, 3, 2],    1, &[],     &[],           &[]),
        ("same",             &[2, 4, 4],    &[2, 2, 3, 3],    1, &[],     &[1, 1, 1, 1], &[]),
        ("pointwise",        &[3, 3, 2],    &[2, 3, 1, 1],    1, &[],     &[],           &[]),
        ("pointwise strided", &[3, 5, 4],   &[2, 3, 1, 1],    1, &[2, 2], &[],           &[]),
        ("strided, rest",    &[2, 6, 7],    &[2, 2, 3, 3],    1, &[2, 3], &[1, 0, 0, 1], &[]),
        ("dilated",          &[2, 6, 5],    &[2, 2, 2, 3],    1, &[],     &[0, 1, 2, 1], &[3, 2]),
        ("dilated, strided", &[1, 9, 8],    &[2, 1, 3, 2],    1, &[2, 3], &[1, 1, 1, 1], &[2, 3]),
        ("groups",           &[4, 4, 4],    &[6, 2, 3, 3],    2, &[],     &[1, 1, 1, 1], &[]),
        ("groups, strided",  &[4, 5, 5],    &[2, 2, 3, 3],    2, &[2, 2], &[1, 1, 1, 1], &[]),
        ("depthwise",        &[3, 4, 4],    &[3, 1, 3, 3],    3, &[],     &[1, 1, 1, 1], &[]),
        ("depthwise, two",   &[2, 5, 4],    &[4, 1, 3, 2],    2, &[2, 1], &[],           &[]),
        ("many channels",    &[18, 3, 3],   &[2, 18, 2, 2],   1, &[],     &[],           &[]),
        ("line",             &[2, 7],       &[3, 2, 3],       1, &[2],    &[1, 2],       &[]),
        ("line, dilated",    &[2, 7],       &[2, 1, 2],       2, &[],     &[3, 0],       &[3]),
        ("space",            &[2, 3, 3, 4], &[2, 2, 2, 2, 3], 1, &[1, 2, 1], &[0, 1, 0, 1, 0, 1], &[]),
        ("more pad than kernel", &[1, 2, 2], &[2, 1, 2, 2],   1, &[],     &[2, 2, 2, 2], &[]),
    ];
    for (name, sizes, weights, group, strides, pads, dilations) in cases {
        for bias in [false, true] {
            let mut attributes = lists(&[("strides", strides), ("pads", pads), ("dilations", dilations)]);
            attributes.push(attr_int("group", *group));
            let mut image = Image::new(sizes, 17).param(weights);
            if bias {
                image = image.param(&weights[..1]);
            }
            image.check(name, "Conv", &attributes, LINEAR);
        }
    }
}

#[test]
fn conv_with_automatic_padding() {
    for automatic in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
        for strides in [[1, 1], [2, 3]] {
            let attributes = [attr_string("auto_pad", automatic), attr_ints("strides", &strides)];
            let image = Image::new(&[2, 5, 6], 17).param(&[2, 2, 2, 3]);
            image.check(automatic, "Conv", &attributes, LINEAR);
            let kernel = attr_ints("kernel_shape", &[2, 3]);
            let attributes = [attr_string("auto_pad", automatic), attr_ints("strides", &strides), kernel];
            Image::new(&[2, 5, 6], 17).check(automatic, "AveragePool", &attributes, LINEAR);
        }
    }
}

#[test]
fn conv_transpose() {
    #[rustfmt::skip]
    // name, channels and image, weights, groups, strides, pads, dilations, output_padding, output_shape
    let cases: &[(&str, Sizes, Sizes, i64, [List; 5])] = &[
        ("plain",          &[2, 3, 4], &[2, 3, 3, 2], 1, [&[],     &[],           &[],     &[],     &[]]),
        ("doubling",       &[2, 3, 3], &[2, 2, 3, 3], 1, [&[2, 2], &[1, 1, 1, 1], &[],     &[1, 1], &[]]),
        ("extra rows",     &[2, 3, 2], &[2, 2, 2, 2], 1, [&[3, 2], &[],           &[],     &[2, 1], &[]]),
        ("dilated",        &[2, 3, 3], &[2, 1, 2, 2], 1, [&[1, 2], &[0, 1, 1, 0], &[2, 3], &[],     &[]]),
        ("groups",         &[4, 3, 3], &[4, 2, 3, 3], 2, [&[2, 2], &[1, 1, 1, 1], &[],     &[],     &[]]),
        ("depthwise",      &[3, 3, 3], &[3, 1, 2, 2], 3, [&[2, 2], &[],           &[],     &[],     &[]]),
        ("line",           &[2, 4],    &[2, 3, 3],    1, [&[2],    &[1, 0],       &[],     &[1],    &[]]),
        ("space",          &[1, 2, 2, 2], &[1, 2, 2, 2, 2], 1, [&[2, 1, 2], &[],  &[],     &[],     &[]]),
        ("sized",          &[2, 3, 3], &[2, 2, 3, 3], 1, [&[2, 2], &[],           &[],     &[],     &[6, 5]]),
    ];
    for (name, sizes, weights, group, [strides, pads, dilations, extra, shape]) in cases {
        let mut attributes = lists(&[
            ("strides", strides),
            ("pads", pads),
            ("dilations", dilations),
            ("output_padding", extra),
            ("output_shape", shape),
        ]);
        attributes.push(attr_int("group", *group));
        let channels = weights[1] * *group as usize;
        let image = Image::new(sizes, 17).param(weights).param(&[channels]);
        image.check(name, "ConvTranspose", &attributes, LINEAR);
    }
}

#[test]
fn conv_transpose_with_automatic_padding_and_a_given_size() {
    for automatic in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
        // None, smaller than what the windows touch, as large, larger.
        for shape in [&[][..], &[6, 5], &[5, 6], &[7, 7], &[8, 7]] {
            let mut attributes = lists(&[("strides", &[2, 2]), ("output_shape", shape)]);
            attributes.push(attr_string("auto_pad", automatic));
            let image = Image::new(&[2, 3, 3], 17).param(&[2, 2, 3, 3]);
            image.check(&format!("{automatic} {shape:?}"), "ConvTranspose", &attributes, LINEAR);
        }
    }
}

#[rustfmt::skip]
// name, channels and image, kernel, strides, pads, dilations, ceil
const POOLS: &[(&str, Sizes, List, List, List, List, i64)] = &[
    ("tiles",       &[2, 4, 6],    &[2, 3], &[2, 3], &[],           &[],     0),
    ("tiles, line", &[2, 6],       &[2],    &[2],    &[],           &[],     0),
    ("tiles, space", &[1, 2, 4, 2], &[2, 2, 2], &[2, 2, 2], &[],    &[],     0),
    ("rest",        &[2, 5, 5],    &[2, 2], &[2, 2], &[],           &[],     0),
    ("overlap",     &[2, 5, 4],    &[3, 2], &[1, 1], &[],           &[],     0),
    ("padded",      &[2, 5, 6],    &[3, 3], &[2, 2], &[1, 1, 1, 1], &[],     0),
    ("ceil",        &[2, 5, 6],    &[2, 3], &[2, 2], &[],           &[],     1),
    ("ceil, padded", &[1, 6, 6],   &[3, 3], &[2, 2], &[1, 0, 1, 1], &[],     1),
    ("dilated",     &[1, 6, 7],    &[2, 3], &[2, 1], &[1, 0, 0, 1], &[2, 3], 0),
    ("gaps",        &[1, 7, 7],    &[2, 2], &[3, 3], &[],           &[],     0),
];

#[test]
fn max_pool() {
    // Elements differ by far more than the step, so that no other becomes the largest.
    let how = Slopes { step: 1e-3, tolerance: 5e-3, fresh: false };
    for (name, sizes, kernel, strides, pads, dilations, ceil) in POOLS {
        let mut attributes = lists(&[
            ("kernel_shape", kernel),
            ("strides", strides),
            ("pads", pads),
            ("dilations", dilations),
        ]);
        attributes.push(attr_int("ceil_mode", *ceil));
        Image::new(sizes, 17).check(name, "MaxPool", &attributes, how);
    }
}

#[test]
fn average_pool() {
    for (name, sizes, kernel, strides, pads, dilations, ceil) in POOLS {
        for include in [0, 1] {
            let mut attributes = lists(&[
                ("kernel_shape", kernel),
                ("strides", strides),
                ("pads", pads),
                ("dilations", dilations),
            ]);
            attributes.extend([attr_int("ceil_mode", *ceil), attr_int("count_include_pad", include)]);
            let name = format!("{name}, padding counts {include}");
            Image::new(sizes, 19).check(&name, "AveragePool", &attributes, LINEAR);
        }
    }
}

#[test]
fn a_last_window_that_would_begin_in_the_padding_is_none() {
    // Image, kernel, strides and pads: inference of old operator sets counts one window more than there is.
    #[rustfmt::skip]
    let cases: &[(Sizes, [List; 3])] = &[
        (&[2, 7, 7], [&[2, 2], &[2, 2], &[1, 1, 1, 1]]),
        (&[2, 5, 6], [&[2, 2], &[3, 2], &[1, 0, 1, 0]]),
        (&[2, 7],    [&[2],    &[2],    &[1, 1]]),
    ];
    for (sizes, [kernel, strides, pads]) in cases {
        let rank = kernel.len();
        for opset in [13, 19, 22] {
            for (op, padding_counts) in
                [("AveragePool", 0), ("AveragePool", 1), ("LpPool", 0), ("MaxPool", 0)]
            {
                if op == "LpPool" && opset < 18 {
                    continue;
                }
                let mut attributes = lists(&[("kernel_shape", kernel), ("strides", strides), ("pads", pads)]);
                attributes.push(attr_int("ceil_mode", 1));
                if op == "AveragePool" {
                    attributes.push(attr_int("count_include_pad", padding_counts));
                }
                let name = format!("{op} {padding_counts} of {sizes:?}, opset {opset}");
                let how = Slopes { step: 2e-3, ..SMOOTH };
                Image::new(sizes, opset).check(&name, op, &attributes, how);
                // What stands behind it has the right size as well.
                let mut image = Image::new(sizes, opset);
                let pool = image.graph.op(op, &[&image.inputs[0]], &attributes);
                image.inputs = vec![pool];
                let weights: Vec<usize> = [2, 2].into_iter().chain(vec![3; rank]).collect();
                let around = [attr_ints("pads", &vec![1; 2 * rank])];
                image.param(&weights).check(&format!("Conv behind {name}"), "Conv", &around, how);
            }
        }
    }
    // Along one axis no such window, along the other one that reaches behind the padding, where nothing
    // counts.
    let attributes = [
        lists(&[("kernel_shape", &[2, 2]), ("strides", &[3, 2]), ("pads", &[1, 0, 1, 0])]),
        vec![attr_int("ceil_mode", 1), attr_int("count_include_pad", 1)],
    ];
    let mut image = Image::new(&[2, 5, 5], 17);
    let pool = image.graph.op("AveragePool", &[&image.inputs[0]], &attributes.concat());
    image.inputs = vec![pool];
    image.check("both", "GlobalAveragePool", &[], LINEAR);
}

#[test]
fn a_pool_may_be_as_large_as_its_image() {
    let attributes = [attr_ints("kernel_shape", &[65, 65])];
    let (model, _, _) = Image::new(&[1, 65, 65], 17).finish("AveragePool", &attributes);
    let graph =
        derive(&onnxruntime::runtime(), &model.to_bytes(), Loss::MeanSquaredError, &DeriveOptions::default());
    let graph = graph.unwrap();
    let mut session =
        Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &ExecOptions::default()).unwrap();
    let (image, ones) = ([1, 1, 65, 65], vec![1.0; 65 * 65]);
    let (x, w) = (F32 { shape: &image, data: &ones }, F32 { shape: &image[1..], data: &ones });
    let label = F32 { shape: &[1, 1, 1, 1], data: &[0.0] };
    let outputs = session.run(&[("x", x), ("w", w), ("label", label)]).unwrap();
    // y = 2, and each element has the same part in it.
    let want = 4.0 / (65.0 * 65.0);
    assert!(outputs.f32("w.grad").unwrap().iter().all(|g| (g - want).abs() < 1e-6));
}

#[test]
fn lp_pool() {
    for p in [1, 2, 3] {
        let attributes = [
            attr_ints("kernel_shape", &[2, 3]),
            attr_ints("strides", &[1, 2]),
            attr_ints("pads", &[1, 1, 0, 1]),
            attr_int("p", p),
        ];
        let how = Slopes { step: 2e-3, ..SMOOTH };
        Image::new(&[2, 4, 5], 17).check(&format!("lp pool {p}"), "LpPool", &attributes, how);
        Image::new(&[2, 4, 5], 17).check(&format!("global {p}"), "GlobalLpPool", &[attr_int("p", p)], how);
    }
}

#[test]
fn global_pools() {
    Image::new(&[2, 3, 4], 17).check("mean", "GlobalAveragePool", &[], LINEAR);
    Image::new(&[2, 5], 17).check("mean of a line", "GlobalAveragePool", &[], LINEAR);
    let how = Slopes { step: 1e-3, tolerance: 5e-3, fresh: false };
    Image::new(&[2, 3, 4], 17).check("max", "GlobalMaxPool", &[], how);
}

/// Where several elements are largest, each window passes its gradient on once in all.
#[test]
fn equal_elements_of_a_pool_share_one_gradient() {
    for (op, kernel, strides) in [("MaxPool", 2, 2), ("MaxPool", 2, 1), ("GlobalMaxPool", 0, 0)] {
        let mut graph = GraphBuilder::new("ties");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 1.into(), 4.into(), 4.into()]);
        let w = graph.weight("w", &[1], &[0.5]);
        let image = graph.op("Mul", &[&x, &w], &[]);
        let attributes = match kernel {
            0 => Vec::new(),
            _ => lists(&[("kernel_shape", &[kernel, kernel]), ("strides", &[strides, strides])]),
        };
        let y = graph.named("y", op, &[&image], &attributes);
        graph.output(&y);
        let model = graph.finish();
        let runtime = onnxruntime::runtime();
        let graph =
            derive(&runtime, &model.to_bytes(), Loss::MeanSquaredError, &DeriveOptions::default()).unwrap();
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let side = match kernel {
            0 => 1,
            _ => (4 - kernel as usize) / strides as usize + 1,
        };
        let label = vec![0.0; side * side];
        let outputs = session
            .run(&[
                ("x", F32 { shape: &[1, 1, 4, 4], data: &[1.0; 16] }),
                ("w", F32 { shape: &[1], data: &[0.5] }),
                ("label", F32 { shape: &[1, 1, side, side], data: &label }),
            ])
            .unwrap();
        // loss = mean (w x)^2 = w^2.
        assert!((outputs.f32("w.grad").unwrap()[0] - 1.0).abs() < 1e-6, "{op} {strides}");
    }
}

#[test]
fn resize() {
    #[rustfmt::skip]
    let coordinates = [
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    ];
    let scales: [&[f32]; 4] =
        [&[1.0, 1.0, 2.0, 2.0], &[1.0, 1.0, 2.0, 3.0], &[1.0, 1.0, 0.6, 1.7], &[1.0, 1.0, 1.0, 0.5]];
    for mode in ["nearest", "linear", "cubic"] {
        for coordinates in coordinates {
            for scale in scales {
                let attributes =
                    [attr_string("mode", mode), attr_string("coordinate_transformation_mode", coordinates)];
                let image = Image::new(&[2, 4, 5], 19).without();
                let image = image.constant(TensorProto::from_f32("scales", &[4], scale));
                image.check(&format!("{mode} {coordinates} {scale:?}"), "Resize", &attributes, LINEAR);
            }
        }
    }
}

#[test]
fn resize_to_sizes_and_other_variants() {
    for nearest in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] {
        for coordinates in ["half_pixel", "asymmetric"] {
            let attributes = [
                attr_string("nearest_mode", nearest),
                attr_string("coordinate_transformation_mode", coordinates),
                attr_ints("axes", &[2, 3]),
            ];
            let image = Image::new(&[2, 4, 5], 18).without().without();
            let image = image.constant(TensorProto::from_i64("sizes", &[2], &[7, 3]));
            image.check(nearest, "Resize", &attributes, LINEAR);
        }
    }
    let attributes =
        [attr_string("mode", "cubic"), attr_int("exclude_outside", 1), attr_float("cubic_coeff_a", -0.5)];
    let image = Image::new(&[1, 4, 4], 18).without();
    let image = image.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 1.5, 2.0]));
    image.check("cubic, inside", "Resize", &attributes, LINEAR);
    let image = Image::new(&[2, 4], 17).without();
    let image = image.constant(TensorProto::from_f32("scales", &[3], &[1.0, 1.0, 2.5]));
    image.check("line", "Resize", &[attr_string("mode", "linear")], LINEAR);
}

#[test]
fn resize_rounds_as_onnx_runtime_does() {
    #[rustfmt::skip]
    let sizes = [
        ("half_pixel", "round_prefer_floor", 14, 19),
        ("half_pixel", "round_prefer_ceil", 14, 1),
        ("asymmetric", "round_prefer_ceil", 7, 2),
        ("asymmetric", "round_prefer_floor", 11, 26),
        ("align_corners", "round_prefer_floor", 7, 4),
    ];
    for (coordinates, nearest, from, to) in sizes {
        let attributes = [
            attr_string("nearest_mode", nearest),
            attr_string("coordinate_transformation_mode", coordinates),
        ];
        let name = format!("{coordinates} {nearest} {from} {to}");
        let by_size = Image::new(&[2, from, 2], 18).without().without();
        let by_size = by_size.constant(TensorProto::from_i64("sizes", &[1], &[to as i64]));
        let axes = [attr_ints("axes", &[2])];
        by_size.check(&name, "Resize", &[attributes.as_slice(), &axes].concat(), LINEAR);
        let scale = to as f32 / from as f32;
        // Where only rounding reaches the size, ONNX Runtime itself finds one when it loads a model and
        // another when it runs it.
        if f64::from(scale) * from as f64 >= to as f64 {
            let by_scale = Image::new(&[2, from, 2], 18).without();
            let by_scale = by_scale.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, scale, 1.0]));
            by_scale.check(&name, "Resize", &attributes, LINEAR);
        }
    }
}

#[test]
fn resize_copies_where_no_size_changes_whatever_its_scales_are() {
    for mode in ["nearest", "linear", "cubic"] {
        let image = Image::new(&[2, 4, 5], 18).without();
        let image = image.constant(TensorProto::from_f32("scales", &[4], &[1.0, 1.0, 1.2, 1.1]));
        image.check(mode, "Resize", &[attr_string("mode", mode)], LINEAR);
    }
}

#[test]
fn resize_with_antialias_and_in_proportion() {
    for mode in ["linear", "cubic"] {
        for scales in [[0.5, 0.4], [0.7, 1.6], [1.0, 0.25]] {
            for outside in [0, 1] {
                let attributes = [
                    attr_string("mode", mode),
                    attr_int("antialias", 1),
                    attr_int("exclude_outside", outside),
                    attr_ints("axes", &[2, 3]),
                ];
                let image = Image::new(&[1, 6, 8], 18).without();
                let image = image.constant(TensorProto::from_f32("scales", &[2], &scales));
                let name = format!("{mode} {scales:?} {outside}");
                image.check(&name, "Resize", &attributes, LINEAR);
            }
        }
    }
    for policy in ["not_larger", "not_smaller"] {
        let attributes = [
            attr_string("mode", "linear"),
            attr_string("keep_aspect_ratio_policy", policy),
            attr_ints("axes", &[2, 3]),
        ];
        let image = Image::new(&[1, 4, 6], 18).without().without();
        let image = image.constant(TensorProto::from_i64("sizes", &[2], &[7, 5]));
        image.check(policy, "Resize", &attributes, LINEAR);
    }
}
