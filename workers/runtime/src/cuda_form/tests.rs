use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{Extent, GraphBuilder, TensorView, attr_int};

use super::*;
use crate::{ExecOptions, Executable, Optimize, onnxruntime::runtime};

/// What the CPU makes of a model exactly as it is written.
fn computed(model: &ModelProto, inputs: &[(&str, &[usize], &[f32])], output: &str) -> (Vec<usize>, Vec<f32>) {
    let options = ExecOptions { optimize: Optimize::Off, ..ExecOptions::default() };
    let mut executable = Executable::new(&runtime(), &model.to_bytes(), &options).unwrap();
    let inputs: Vec<_> =
        inputs.iter().map(|&(name, shape, data)| (name, TensorView::F32 { shape, data })).collect();
    let outputs = executable.run(&inputs).unwrap();
    (outputs.shape(output).unwrap(), outputs.f32(output).unwrap().to_vec())
}

fn ops(model: &ModelProto) -> Vec<&str> {
    model.graph.iter().flat_map(|graph| &graph.node).map(|node| node.op_type.as_str()).collect()
}

/// Small whole numbers, so that sums are exact in whatever order.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 as f32 % 7.0 - 3.0).collect()
}

fn summing(axes: &[i64], attributes: &[AttributeProto]) -> ModelProto {
    let mut graph = GraphBuilder::new("sum");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into(), 4.into(), 5.into()]);
    let axes = graph.ints("axes", axes);
    graph.named("y", "ReduceSum", &[&x, &axes], attributes);
    graph.output("y");
    graph.finish()
}

#[test]
fn sums_over_axes_that_are_apart_are_taken_one_group_after_the_other() {
    let x = numbers(2 * 3 * 4 * 5);
    #[rustfmt::skip]
    let cases: [(&[i64], usize); 7] = [
        (&[0, 2, 3], 2), (&[3, 0, 2], 2), (&[0, 2], 2), (&[1, 3], 2),
        (&[2, 3], 1), (&[0, 1, 2, 3], 1), (&[0, -1], 1),
    ];
    for (axes, nodes) in cases {
        for keep in [0, 1] {
            let model = summing(axes, &[attr_int("keepdims", keep)]);
            let arranged = arrange(&model);
            let arranged = arranged.as_ref().unwrap_or(&model);
            assert_eq!(ops(arranged), vec!["ReduceSum"; nodes], "{axes:?}");
            let inputs: [(&str, &[usize], &[f32]); 1] = [("x", &[2, 3, 4, 5], &x)];
            let (want, found) = (computed(&model, &inputs, "y"), computed(arranged, &inputs, "y"));
            assert_eq!(found, want, "{axes:?}, keepdims {keep}");
        }
    }
}

#[test]
fn a_product_with_a_condition_becomes_a_choice() {
    for mask_first in [false, true] {
        let mut graph = GraphBuilder::new("relu");
        let shape = ["batch".into(), 4.into()];
        let (y, dy) =
            (graph.input("y", ElementType::F32, &shape), graph.input("dy", ElementType::F32, &shape));
        let zero = graph.constant(TensorProto::from_f32("zero", &[], &[0.0]));
        let positive = graph.op("Greater", &[&y, &zero], &[]);
        let mask = graph.op("Cast", &[&positive], &[attr_int("to", 1)]);
        let factors = if mask_first { [mask.as_str(), &dy] } else { [dy.as_str(), &mask] };
        graph.named("dx", "Mul", &factors, &[]);
        graph.output("dx");
        let model = graph.finish();
        let arranged = arrange(&model).unwrap();
        assert_eq!(ops(&arranged), ["Greater", "Where"]);
        let inputs: [(&str, &[usize], &[f32]); 2] =
            [("y", &[2, 4], &[1.0, -1.0, 0.0, 2.0, -0.0, 3.0, -4.0, 5.0]), ("dy", &[2, 4], &numbers(8))];
        assert_eq!(computed(&arranged, &inputs, "dx").1, computed(&model, &inputs, "dx").1);
        assert!(arrange(&arranged).is_none(), "not twice");
    }
}

/// x and dy, and a marked node that stands for their gradient.
fn marked(gradient: &WeightGradient, size: [usize; 2]) -> ModelProto {
    let mut graph = GraphBuilder::new("marked");
    let [channels, columns, ..] = gradient.weights.map(|size| size as usize);
    let [rows_axis, columns_axis] = gradient.axes.map(|axis| axis.output as usize);
    let x = ["batch".into(), columns.into(), size[0].into(), size[1].into()];
    let x = graph.input("x", ElementType::F32, &x);
    let dy = ["batch".into(), channels.into(), rows_axis.into(), columns_axis.into()];
    graph.input("dy", ElementType::F32, &dy);
    let dw = graph.named("dw", "Neg", &[&x], &[]);
    graph.output(&dw);
    let mut model = graph.finish();
    let graph = model.graph.as_mut().unwrap();
    graph.node[0].metadata_props = gradient.metadata();
    graph.output[0].r#type = None;
    model
}

/// The sum as it is defined.
fn summed(gradient: &WeightGradient, batch: usize, size: [usize; 2], x: &[f32], dy: &[f32]) -> Vec<f32> {
    let [channels, columns, height, width] = gradient.weights;
    let [rows_axis, columns_axis] = gradient.axes;
    let mut dw = Vec::new();
    for at in 0..channels * columns * height * width {
        let (m, c) = (at / (columns * height * width), at / (height * width) % columns);
        let (t, u) = (at / width % height, at % width);
        let mut sum = 0.0;
        for n in 0..batch as i64 {
            for (o, p) in (0..rows_axis.output).flat_map(|o| (0..columns_axis.output).map(move |p| (o, p))) {
                let row = o * rows_axis.stride + t * rows_axis.dilation - rows_axis.begin;
                let column = p * columns_axis.stride + u * columns_axis.dilation - columns_axis.begin;
                let inside = (0..size[0] as i64).contains(&row) && (0..size[1] as i64).contains(&column);
                if inside {
                    let read = ((n * columns + c) * size[0] as i64 + row) * size[1] as i64 + column;
                    let from = ((n * channels + m) * rows_axis.output + o) * columns_axis.output + p;
                    sum += dy[from as usize] * x[read as usize];
                }
            }
        }
        dw.push(sum);
    }
    dw
}

#[test]
fn the_gradient_of_weights_is_the_sum_that_defines_it() {
    let axis = |input: i64, kernel: i64, begin: i64, end: i64, stride: i64, dilation: i64| {
        let output = (input + begin + end - (kernel - 1) * dilation - 1) / stride + 1;
        // What the windows touch, less what there is: the end as the annotation has it.
        let end = (output - 1) * stride + (kernel - 1) * dilation + 1 - begin - input;
        (Extent { begin, end, output, stride, dilation }, input as usize, kernel)
    };
    #[rustfmt::skip]
    let cases = [
        ("as large as the image",       [axis(7, 3, 1, 1, 1, 1),   axis(7, 3, 1, 1, 1, 1)],   "Gemm"),
        ("one element, few positions",  [axis(5, 1, 0, 0, 1, 1),   axis(5, 1, 0, 0, 1, 1)],   "Gemm"),
        ("strides leave a row out",     [axis(8, 3, 1, 1, 2, 1),   axis(9, 3, 1, 1, 2, 1)],   "Gemm"),
        ("one element, in strides",     [axis(8, 1, 0, 0, 2, 1),   axis(7, 1, 0, 0, 3, 1)],   "Gemm"),
        ("uneven padding, dilated",     [axis(9, 3, 0, 1, 2, 2),   axis(6, 2, 2, 0, 1, 3)],   "Gemm"),
        ("negative padding",            [axis(9, 2, -1, -2, 1, 1), axis(9, 2, -2, 0, 1, 1)],  "Gemm"),
        ("many positions",              [axis(16, 3, 1, 1, 1, 1),  axis(15, 3, 1, 1, 1, 1)],  "MatMul"),
        ("many positions, in strides",  [axis(31, 7, 3, 3, 2, 1),  axis(30, 7, 3, 3, 2, 1)],  "MatMul"),
    ];
    for (name, [rows, columns], product) in cases {
        let size = [rows.1, columns.1];
        let gradient = WeightGradient {
            image: "x".to_owned(),
            signal: "dy".to_owned(),
            weights: [4, 3, rows.2, columns.2],
            group: 1,
            axes: [rows.0, columns.0],
        };
        let arranged = arrange(&marked(&gradient, size)).unwrap();
        assert!(ops(&arranged).contains(&product), "{name}: {:?}", ops(&arranged));
        assert!(!ops(&arranged).contains(&"Neg"), "{name}");
        let batch = 2;
        let x = numbers(batch * 3 * size[0] * size[1]);
        let outputs = gradient.axes.map(|axis| axis.output as usize);
        let dy = numbers(batch * 4 * outputs[0] * outputs[1]);
        let (x_shape, dy_shape) = ([batch, 3, size[0], size[1]], [batch, 4, outputs[0], outputs[1]]);
        let inputs: [(&str, &[usize], &[f32]); 2] = [("x", &x_shape, &x), ("dy", &dy_shape, &dy)];
        let (shape, found) = computed(&arranged, &inputs, "dw");
        assert_eq!(shape, gradient.weights.map(|size| size as usize), "{name}");
        assert_eq!(found, summed(&gradient, batch, size, &x, &dy), "{name}");
    }
}

/// Of 3 x 3 taps and so many positions each way.
fn without_padding(output: i64) -> WeightGradient {
    let axis = Extent { begin: 0, end: 0, output, stride: 1, dilation: 1 };
    let (image, signal) = ("x".to_owned(), "dy".to_owned());
    WeightGradient { image, signal, weights: [4, 3, 3, 3], group: 1, axes: [axis; 2] }
}

#[test]
fn a_gradient_that_is_as_good_as_it_is_stays() {
    let right = without_padding(20);
    let stays = |change: fn(&mut WeightGradient)| {
        let mut gradient = right.clone();
        change(&mut gradient);
        arrange(&marked(&gradient, [22, 22])).is_none()
    };
    assert!(!stays(|_| {}));
    assert!(stays(|g| g.weights = [4, 3, 1, 1]), "one element, many positions");
    assert!(stays(|g| (g.weights, g.group) = ([4, 1, 3, 3], 4)), "depthwise");
    assert!(stays(|g| g.axes[0].output = 1 << 40), "too large");
    assert!(stays(|g| g.weights[1] = i64::MAX), "absurd");
    assert!(stays(|g| g.image = "gone".to_owned()));
}

#[test]
fn gradients_are_computed_in_what_the_graph_computes_its_products_in() {
    let gradient = without_padding(3);
    let casting = |elements: &[ElementType]| {
        let mut model = marked(&gradient, [5, 5]);
        let graph = model.graph.as_mut().unwrap();
        for (at, element) in elements.iter().enumerate() {
            let to = attr_int("to", i64::from(element.code()));
            graph.node.insert(0, NodeProto::named(&format!("short{at}"), "Cast", &["x"], &[to]));
        }
        arrange(&model).map(|arranged| {
            let casts = ops(&arranged).into_iter().filter(|op| *op == "Cast").count();
            let to = i64::from(elements.first().map_or(0, |element| element.code()));
            (casts, arranged.graph.unwrap().node.iter().any(|node| node.int("to", 0) == to && to != 0))
        })
    };
    assert_eq!(casting(&[]), Some((0, false)));
    for half in [ElementType::Bf16, ElementType::F16] {
        assert_eq!(
            casting(&[half]),
            Some((4, true)),
            "an image to be padded and a factor, the other one, and the result"
        );
    }
    assert_eq!(casting(&[ElementType::Bf16, ElementType::F16]), None);
    assert_eq!(casting(&[ElementType::F64]), None);
}
