//! A training graph on blocked kernels computes what it computes on the ordinary ones.

use syncline_autodiff::{DeriveOptions, GRAD_SUFFIX, Loss, TrainingGraph, derive};
use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{ElementType, GraphBuilder, SplitMix64, attr_int, attr_ints};
use syncline_runtime::{ExecOptions, Executable, Optimize, TensorView};

use crate::onnxruntime;

/// Largest difference between the two, of the largest number of a tensor. Sums have up to 50,000 terms.
const TOLERANCE: f32 = 2e-5;

struct Case {
    name: &'static str,
    image: [usize; 3],
    /// Of the second convolution; the first makes its channels out of the image.
    weights: [usize; 4],
    group: usize,
    strides: [i64; 2],
    dilations: [i64; 2],
    pads: [i64; 4],
}

impl Case {
    /// image -> convolution 3x3 -> Relu -> the convolution of the case, with a bias each.
    fn graph(&self) -> TrainingGraph {
        let mut graph = GraphBuilder::new(self.name);
        let mut random = SplitMix64::new(5);
        let [channels, height, width] = self.image;
        let x = graph.input(
            "x",
            ElementType::F32,
            &["batch".into(), channels.into(), height.into(), width.into()],
        );
        let inner = self.weights[1] * self.group;
        let mut convolve = |x: &str, name: &str, weights: [usize; 4], attributes: &[AttributeProto]| {
            let data = numbers(&mut random, weights.iter().product());
            let w = graph.weight(&format!("{name}.w"), &weights, &data);
            let b = graph.weight(&format!("{name}.b"), &[weights[0]], &numbers(&mut random, weights[0]));
            let y = graph.op("Conv", &[x, &w, &b], attributes);
            graph.op("Tanh", &[&y], &[])
        };
        let image = convolve(&x, "first", [inner, channels, 3, 3], &[attr_ints("pads", &[1; 4])]);
        let attributes = [
            attr_int("group", self.group as i64),
            attr_ints("strides", &self.strides),
            attr_ints("dilations", &self.dilations),
            attr_ints("pads", &self.pads),
        ];
        let y = convolve(&image, "second", self.weights, &attributes);
        graph.output(&y);
        let model = graph.finish().to_bytes();
        derive(&onnxruntime::runtime(), &model, Loss::MeanSquaredError, &DeriveOptions::default()).unwrap()
    }
}

fn numbers(random: &mut SplitMix64, count: usize) -> Vec<f32> {
    (0..count).map(|_| (random.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
}

/// Loss and gradients of one batch.
fn run(graph: &TrainingGraph, optimize: Optimize, batch: usize, threads: usize) -> Vec<(String, Vec<f32>)> {
    let options = ExecOptions { optimize, intra_threads: threads, ..ExecOptions::default() };
    let mut session = Executable::new(&onnxruntime::runtime(), &graph.train_onnx, &options).unwrap();
    let mut random = SplitMix64::new(batch as u64);
    let shape = |dims: &[syncline_onnx::Dim]| -> Vec<usize> {
        dims.iter().map(|dim| dim.fixed().unwrap_or(batch)).collect()
    };
    let label = graph.label.as_ref().unwrap();
    let data: Vec<(String, Vec<usize>, Vec<f32>)> = [&graph.data_inputs[0], label]
        .map(|io| {
            let shape = shape(&io.dims);
            let data = numbers(&mut random, shape.iter().product());
            (io.name.clone(), shape, data)
        })
        .into_iter()
        .chain(graph.params.iter().map(|p| (p.name.clone(), p.shape.clone(), p.initial.clone())))
        .collect();
    let inputs: Vec<(&str, TensorView<'_>)> =
        data.iter().map(|(name, shape, data)| (name.as_str(), TensorView::F32 { shape, data })).collect();
    let outputs = session.run(&inputs).unwrap();
    let grads = graph.params.iter().map(|param| format!("{}{GRAD_SUFFIX}", param.name));
    ["loss".to_owned()]
        .into_iter()
        .chain(grads)
        .map(|name| (name.clone(), outputs.f32(&name).unwrap().to_vec()))
        .collect()
}

#[test]
fn blocked_and_ordinary_kernels_agree() {
    #[rustfmt::skip]
    let cases = [
        Case { name: "3x3",           image: [3, 12, 10], weights: [32, 16, 3, 3], group: 1,  strides: [1, 1], dilations: [1, 1], pads: [1, 1, 1, 1] },
        Case { name: "strides",       image: [1, 12, 11], weights: [16, 32, 3, 3], group: 1,  strides: [2, 3], dilations: [1, 1], pads: [1, 0, 0, 2] },
        Case { name: "dilations",     image: [3, 14, 13], weights: [16, 16, 3, 3], group: 1,  strides: [1, 1], dilations: [2, 3], pads: [2, 0, 1, 3] },
        Case { name: "both",          image: [16, 15, 9], weights: [32, 16, 2, 3], group: 1,  strides: [2, 1], dilations: [3, 2], pads: [0, 1, 2, 0] },
        Case { name: "image cropped", image: [3, 10, 10], weights: [16, 16, 3, 3], group: 1,  strides: [4, 3], dilations: [1, 1], pads: [0, 0, 0, 0] },
        Case { name: "5x7",           image: [2, 9, 9],   weights: [48, 32, 5, 7], group: 1,  strides: [1, 1], dilations: [1, 1], pads: [2, 3, 2, 3] },
        Case { name: "1x1",           image: [3, 9, 9],   weights: [32, 32, 1, 1], group: 1,  strides: [1, 1], dilations: [1, 1], pads: [0, 0, 0, 0] },
        Case { name: "1x3",           image: [3, 9, 9],   weights: [32, 16, 1, 3], group: 1,  strides: [1, 1], dilations: [1, 1], pads: [0, 1, 0, 1] },
        Case { name: "depthwise",     image: [3, 9, 8],   weights: [32, 1, 3, 3],  group: 32, strides: [1, 1], dilations: [1, 1], pads: [1, 1, 1, 1] },
        Case { name: "depthwise, strides",  image: [3, 9, 8],   weights: [32, 1, 3, 3],  group: 32, strides: [2, 2], dilations: [1, 1], pads: [1, 1, 1, 1] },
        Case { name: "depthwise, all", image: [3, 13, 11], weights: [32, 1, 3, 2],  group: 32, strides: [3, 2], dilations: [2, 3], pads: [2, 1, 0, 3] },
        Case { name: "depthwise, apart", image: [3, 9, 9], weights: [16, 1, 2, 2],  group: 16, strides: [3, 3], dilations: [1, 1], pads: [0, 0, 0, 0] },
        Case { name: "groups",        image: [3, 9, 8],   weights: [32, 16, 3, 3], group: 2,  strides: [1, 1], dilations: [1, 1], pads: [1, 1, 1, 1] },
        Case { name: "odd channels",  image: [3, 9, 8],   weights: [20, 24, 3, 3], group: 1,  strides: [1, 1], dilations: [1, 1], pads: [1, 1, 1, 1] },
    ];
    for case in cases {
        let graph = case.graph();
        for (batch, threads) in [(1, 1), (16, 2), (19, 1)] {
            let ordinary = run(&graph, Optimize::Basic, batch, 1);
            let blocked = run(&graph, Optimize::All, batch, threads);
            for ((name, want), (_, got)) in ordinary.iter().zip(&blocked) {
                let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
                let off = want.iter().zip(got).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(
                    want.len() == got.len() && off <= TOLERANCE * largest,
                    "{}, batch {batch}: {name} is off by {off} of {largest}",
                    case.name
                );
            }
        }
    }
}
