//! Random small models against finite differences.

use proptest::prelude::*;
use syncline_autodiff::{DeriveOptions, Loss};
use syncline_onnx::{ElementType, GraphBuilder, ModelProto, SplitMix64, attr_int, attr_ints};

use crate::gradcheck::Check;
use crate::onnxruntime;

/// One step of a random model: what to apply, and which earlier values and weights to take (modulo their
/// number).
#[derive(Debug, Clone)]
struct Step {
    kind: u8,
    value: usize,
    other: usize,
    width: usize,
    reuse: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..21, 0usize..64, 0usize..64, 1usize..4, any::<bool>())
        .prop_map(|(kind, value, other, width, reuse)| Step { kind, value, other, width, reuse });
    prop::collection::vec(step, 1..9)
}

struct Values {
    graph: GraphBuilder,
    random: SplitMix64,
    /// Values of shape [batch, width].
    values: Vec<(String, usize)>,
    weights: Vec<(String, Vec<usize>)>,
}

impl Values {
    /// A weight of this shape: an earlier one if asked and there is one.
    fn weight(&mut self, shape: &[usize], reuse: bool) -> String {
        if let Some((name, _)) = self.weights.iter().find(|(_, other)| reuse && other == shape) {
            return name.clone();
        }
        let data: Vec<f32> = (0..shape.iter().product()).map(|_| self.random.normal() as f32 * 0.6).collect();
        let name = self.graph.weight(&format!("w{}", self.weights.len()), shape, &data);
        self.weights.push((name.clone(), shape.to_vec()));
        name
    }

    fn apply(&mut self, step: &Step) {
        let (x, width) = self.values[step.value % self.values.len()].clone();
        let fitting: Vec<String> =
            self.values.iter().filter(|(_, other)| *other == width).map(|(name, _)| name.clone()).collect();
        let other = fitting[step.other % fitting.len()].clone();
        let (y, width) = match step.kind {
            0 => {
                let (w, b) =
                    (self.weight(&[width, step.width], step.reuse), self.weight(&[step.width], step.reuse));
                (self.graph.op("Gemm", &[&x, &w, &b], &[]), step.width)
            }
            1 => {
                let w = self.weight(&[step.width, width], step.reuse);
                (self.graph.op("Gemm", &[&x, &w], &[attr_int("transB", 1)]), step.width)
            }
            2 => {
                let w = self.weight(&[width, step.width], step.reuse);
                (self.graph.op("MatMul", &[&x, &w], &[]), step.width)
            }
            3 => (self.graph.op("Relu", &[&x], &[]), width),
            4 => (self.graph.op("Tanh", &[&x], &[]), width),
            5 => (self.graph.op("Sigmoid", &[&x], &[]), width),
            6 => (self.graph.op("Softmax", &[&x], &[]), width),
            7 => (self.graph.op("Add", &[&x, &other], &[]), width),
            8 => (self.graph.op("Sub", &[&x, &other], &[]), width),
            9 => (self.graph.op("Mul", &[&x, &other], &[]), width),
            10 => {
                let w = self.weight(&[1, width], step.reuse);
                (self.graph.op("Mul", &[&w, &x], &[]), width)
            }
            11 => (self.graph.op("Sin", &[&x], &[]), width),
            12 => (self.graph.op("LogSoftmax", &[&x], &[]), width),
            13 => (self.graph.op("Max", &[&x, &other], &[]), width),
            14 if width <= 4 => (self.graph.op("Concat", &[&x, &other], &[attr_int("axis", 1)]), 2 * width),
            15 if width > 1 => {
                let name = format!("bounds{}", self.values.len());
                let (start, end) =
                    (self.graph.ints(&name, &[1]), self.graph.ints(&format!("{name}e"), &[width as i64]));
                (self.graph.op("Slice", &[&x, &start, &end, &start], &[]), width - 1)
            }
            16 => {
                let picks: Vec<i64> = (0..width as i64).map(|column| -1 - column / 2).collect();
                let picks = self.graph.ints(&format!("picks{}", self.values.len()), &picks);
                (self.graph.op("Gather", &[&x, &picks], &[attr_int("axis", 1)]), width)
            }
            17 => {
                let mean = self.graph.op("ReduceMean", &[&x], &[attr_ints("axes", &[1])]);
                (self.graph.op("Sub", &[&other, &mean], &[]), width)
            }
            18 => {
                let larger = self.graph.op("Greater", &[&x, &other], &[]);
                let half = self.weight(&[1, width], step.reuse);
                (self.graph.op("Where", &[&larger, &x, &half], &[]), width)
            }
            19 => {
                let norm = self.graph.op("ReduceLogSumExp", &[&x], &[attr_ints("axes", &[0])]);
                (self.graph.op("Sub", &[&x, &norm], &[]), width)
            }
            _ => {
                let target = self.graph.ints(&format!("t{}", self.values.len()), &[-1, width as i64]);
                (self.graph.op("Reshape", &[&x, &target], &[]), width)
            }
        };
        self.values.push((y, width));
    }
}

fn build(steps: &[Step], seed: u64) -> ModelProto {
    let mut graph = GraphBuilder::new("random");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let random = SplitMix64::new(seed);
    let mut values = Values { graph, random, values: vec![(x, 2)], weights: Vec::new() };
    steps.iter().for_each(|step| values.apply(step));
    // Three classes from the last value, so that every model has a parameter and fits every loss.
    let (last, width) = values.values[values.values.len() - 1].clone();
    let head = values.weight(&[width, 3], false);
    let y = values.graph.named("y", "MatMul", &[&last, &head], &[]);
    values.graph.output(&y);
    values.graph.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gradients_of_random_models(steps in steps(), seed in any::<u64>(), classify in any::<bool>(), simplify in any::<bool>()) {
        let runtime = onnxruntime::runtime();
        let model = build(&steps, seed);
        let loss = if classify { Loss::SoftmaxCrossEntropy } else { Loss::MeanSquaredError };
        let options = DeriveOptions { simplify, ..DeriveOptions::default() };
        let check = Check { runtime: &runtime, model: &model, loss, options, seed };
        if let Err(why) = check.at(&[&[("x", &[3, 2])], &[("x", &[1, 2])]]) {
            return Err(TestCaseError::fail(why));
        }
    }
}
