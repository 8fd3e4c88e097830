//! LSTM, GRU and RNN against differences of the recurrences themselves, computed in float64 by
//! `support/recurrence.rs`.

use syncline_autodiff::{DeriveOptions, Loss, Precision, TrainingGraph, derive};
use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{
    Dim, ElementType, GraphBuilder, ModelProto, SplitMix64, attr_float, attr_int, attr_string,
};
use syncline_runtime::{ExecOptions, Executable, TensorView};

use crate::onnxruntime;
use crate::recurrence::Recurrent;
use crate::seeds::write_seed;
use crate::slopes::{SMOOTH, numbers};

const INPUT: usize = 3;
const HIDDEN: usize = 4;
const STEP: f64 = 1e-5;
/// Allowed difference, relative to the largest element of a gradient.
const TOLERANCE: f64 = 2e-5;

/// What a node reads beyond X, W and R, and which of its outputs the loss sees.
struct Case {
    op: &'static str,
    direction: &'static str,
    /// `b`: biases, `h`, `c`: first states, `l`: lengths of the samples.
    reads: &'static str,
    /// `y`: all states, `h`, `c`: the last ones.
    outputs: &'static str,
    extra: Vec<AttributeProto>,
}

fn case(op: &'static str, direction: &'static str, reads: &'static str, outputs: &'static str) -> Case {
    Case { op, direction, reads, outputs, extra: Vec::new() }
}

impl Case {
    fn with(mut self, attribute: AttributeProto) -> Self {
        self.extra.push(attribute);
        self
    }

    fn name(&self) -> String {
        let extra: Vec<&str> = self.extra.iter().map(|attribute| attribute.name.as_str()).collect();
        format!("{} {} reads {} gives {} {extra:?}", self.op, self.direction, self.reads, self.outputs)
    }

    fn ways(&self) -> &'static [bool] {
        match self.direction {
            "reverse" => &[true],
            "bidirectional" => &[false, true],
            _ => &[false],
        }
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.extra.iter().find(|attribute| attribute.name == name)
    }

    fn recurrent(&self, steps: usize, samples: usize) -> Recurrent<'_> {
        let mut random = SplitMix64::new(3);
        let (ways, mut plain) = (
            self.ways(),
            Recurrent {
                op: self.op,
                linear_before_reset: self.attribute("linear_before_reset").is_some_and(|a| a.i == Some(1)),
                relu: self.attribute("activations").is_some_and(|a| a.strings[0] == b"Relu"),
                ways: self.ways(),
                steps,
                samples,
                input: INPUT,
                hidden: HIDDEN,
                lengths: vec![steps; samples],
                x: Vec::new(),
                w: Vec::new(),
                r: Vec::new(),
                b: Vec::new(),
                h0: Vec::new(),
                c0: Vec::new(),
            },
        );
        let rows = plain.gates() * HIDDEN;
        let mut draw = |shape: &[usize], there: bool| -> Vec<f64> {
            let drawn = numbers(&mut random, shape);
            drawn.into_iter().map(|x| if there { f64::from(x) } else { 0.0 }).collect()
        };
        let (passes, reads) = (ways.len(), |letter| self.reads.contains(letter));
        plain.w = draw(&[passes, rows, INPUT], true);
        plain.r = draw(&[passes, rows, HIDDEN], true);
        plain.b = draw(&[passes, 2 * rows], reads('b'));
        plain.x = draw(&[steps, samples, INPUT], true);
        plain.h0 = draw(&[passes, samples, HIDDEN], reads('h'));
        plain.c0 = draw(&[passes, samples, HIDDEN], reads('c'));
        if reads('l') {
            plain.lengths = (0..samples).map(|sample| 1 + (sample * 2) % steps).collect();
        }
        plain
    }

    /// X is `x + dx`, a parameter, so that its gradient shows. The states follow each other in one output.
    fn model(&self, plain: &Recurrent<'_>, open: bool) -> ModelProto {
        let mut graph = GraphBuilder::new("recurrent");
        let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        let (passes, rows) = (plain.ways.len(), plain.gates() * HIDDEN);
        let shape = [plain.steps, plain.samples, INPUT];
        let dims: Vec<Dim> = match open {
            true => vec!["steps".into(), "batch".into(), INPUT.into()],
            false => shape.iter().map(|&size| size.into()).collect(),
        };
        let x = graph.input("x", ElementType::F32, &dims);
        let dx = graph.weight("dx", &shape, &vec![0.0; shape.iter().product()]);
        let x = graph.op("Add", &[&x, &dx], &[]);
        let mut inputs = vec![x];
        inputs.push(graph.weight("w", &[passes, rows, INPUT], &single(&plain.w)));
        inputs.push(graph.weight("r", &[passes, rows, HIDDEN], &single(&plain.r)));
        let reads = |letter| self.reads.contains(letter);
        let state = [passes, plain.samples, HIDDEN];
        inputs.push(match reads('b') {
            true => graph.weight("b", &[passes, 2 * rows], &single(&plain.b)),
            false => String::new(),
        });
        inputs.push(match reads('l') {
            true => {
                let lengths: Vec<u8> =
                    plain.lengths.iter().flat_map(|&length| (length as i32).to_le_bytes()).collect();
                graph.constant(TensorProto {
                    name: "lengths".to_owned(),
                    dims: vec![plain.samples as i64],
                    data_type: ElementType::I32.code(),
                    raw_data: Some(lengths),
                    ..TensorProto::default()
                })
            }
            false => String::new(),
        });
        for (letter, name, data) in [('h', "h0", &plain.h0), ('c', "c0", &plain.c0)] {
            inputs.push(match reads(letter) {
                true => graph.weight(name, &state, &single(data)),
                false => String::new(),
            });
        }
        let mut attributes =
            vec![attr_int("hidden_size", HIDDEN as i64), attr_string("direction", self.direction)];
        attributes.extend(self.extra.iter().cloned());
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        graph.named("node", self.op, &inputs, &attributes);
        let flat = graph.ints("flat", &[1, -1]);
        let parts: Vec<String> = self
            .outputs
            .chars()
            .map(|letter| graph.op("Reshape", &[&format!("out_{letter}"), &flat], &[]))
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let y = graph.op("Concat", &parts, &[attr_int("axis", 1)]);
        graph.output(&y);
        let mut model = graph.finish();
        let node = model.graph.iter_mut().flat_map(|graph| &mut graph.node).find(|node| node.name == "node");
        let letters = if self.op == "LSTM" { "yhc" } else { "yh" };
        let output = |letter| match self.outputs.contains(letter) {
            true => format!("out_{letter}"),
            false => String::new(),
        };
        node.unwrap().output = letters.chars().map(output).collect();
        model
    }

    /// The loss, as the graph computes it.
    fn loss(&self, plain: &Recurrent<'_>, label: &[f32]) -> f64 {
        let outputs = plain.run().0;
        let index = |letter| "yhc".find(letter).unwrap();
        let seen = self.outputs.chars().flat_map(|letter| &outputs[index(letter)]);
        let squares: Vec<f64> = seen.zip(label).map(|(y, label)| (y - f64::from(*label)).powi(2)).collect();
        squares.iter().sum::<f64>() / squares.len() as f64
    }

    fn check(&self, options: &DeriveOptions, open: bool, tolerance: f64) -> TrainingGraph {
        let (name, mut plain) = (self.name(), self.recurrent(5, 3));
        let model = self.model(&plain, open);
        write_seed(&name, &model);
        let runtime = onnxruntime::runtime();
        let all = ["dx", "w", "r", "b", "h0", "c0"].map(str::to_owned);
        let weights: Vec<&str> =
            model.graph.as_ref().unwrap().initializer.iter().map(|t| t.name.as_str()).collect();
        let train = all.into_iter().filter(|name| weights.contains(&name.as_str())).collect();
        let options = DeriveOptions { train: Some(train), ..options.clone() };
        let graph = derive(&runtime, &model.to_bytes(), Loss::MeanSquaredError, &options)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let letters = self.outputs.chars();
        let count: usize = letters.map(|letter| plain.run().0["yhc".find(letter).unwrap()].len()).sum();
        let label = numbers(&mut SplitMix64::new(8), &[1, count]);
        let x: Vec<f32> = plain.x.iter().map(|&x| x as f32).collect();
        let (shape, label_shape) = ([5, 3, INPUT], [1, count]);
        let mut fed = vec![
            ("x", TensorView::F32 { shape: &shape, data: &x }),
            ("label", TensorView::F32 { shape: &label_shape, data: &label }),
        ];
        for param in &graph.params {
            fed.push((&param.name, TensorView::F32 { shape: &param.shape, data: &param.initial }));
        }
        let mut session = Executable::new(&runtime, &graph.train_onnx, &ExecOptions::default()).unwrap();
        let outputs = session.run(&fed).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (loss, expected) = (f64::from(outputs.scalar("loss").unwrap()), self.loss(&plain, &label));
        assert!(
            (loss - expected).abs() <= tolerance * (1.0 + expected),
            "{name}: {loss}, expected {expected}"
        );
        for param in &graph.params {
            let got = outputs.f32(&format!("{}.grad", param.name)).unwrap();
            let slopes: Vec<f64> = (0..got.len())
                .map(|element| {
                    let mut at = |step: f64| {
                        let operand = operand(&mut plain, &param.name);
                        let start = operand[element];
                        operand[element] = start + step;
                        let loss = self.loss(&plain, &label);
                        self::operand(&mut plain, &param.name)[element] = start;
                        loss
                    };
                    (at(STEP) - at(-STEP)) / (2.0 * STEP)
                })
                .collect();
            let largest = slopes.iter().fold(1e-3f64, |most, slope| most.max(slope.abs()));
            for (element, (got, slope)) in got.iter().zip(&slopes).enumerate() {
                let difference = (f64::from(*got) - slope).abs();
                let what = format!("{name}: {}[{element}]", param.name);
                assert!(difference <= tolerance * largest, "{what} is {got}, differences say {slope}");
            }
        }
        graph
    }
}

fn operand<'p>(plain: &'p mut Recurrent<'_>, name: &str) -> &'p mut Vec<f64> {
    match name {
        "dx" => &mut plain.x,
        "w" => &mut plain.w,
        "r" => &mut plain.r,
        "b" => &mut plain.b,
        "h0" => &mut plain.h0,
        _ => &mut plain.c0,
    }
}

fn strings(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    AttributeProto { name: name.to_owned(), strings, kind: 8, ..AttributeProto::default() }
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let reset = || attr_int("linear_before_reset", 1);
    vec![
        case("LSTM", "forward",       "",     "y"),
        case("LSTM", "forward",       "bhc",  "yhc"),
        case("LSTM", "forward",       "b",    "h"),
        case("LSTM", "forward",       "bc",   "c"),
        case("LSTM", "reverse",       "bhc",  "yhc"),
        case("LSTM", "bidirectional", "b",    "y"),
        case("LSTM", "bidirectional", "bhc",  "hc"),
        case("LSTM", "forward",       "blhc", "yhc"),
        case("LSTM", "reverse",       "blhc", "yhc"),
        case("LSTM", "bidirectional", "bl",   "yh"),
        case("LSTM", "forward",       "b",    "y").with(strings("activations", &["sigmoid", "TANH", "tanh"])),
        case("GRU",  "forward",       "",     "y"),
        case("GRU",  "forward",       "bh",   "yh"),
        case("GRU",  "reverse",       "bh",   "h"),
        case("GRU",  "bidirectional", "bh",   "yh"),
        case("GRU",  "bidirectional", "blh",  "yh"),
        case("GRU",  "forward",       "",     "h").with(reset()),
        case("GRU",  "forward",       "bh",   "yh").with(reset()),
        case("GRU",  "reverse",       "bh",   "y").with(reset()),
        case("GRU",  "bidirectional", "bh",   "yh").with(reset()),
        case("GRU",  "bidirectional", "blh",  "yh").with(reset()),
        case("RNN",  "forward",       "",     "y"),
        case("RNN",  "reverse",       "bh",   "yh"),
        case("RNN",  "bidirectional", "bh",   "h"),
        case("RNN",  "bidirectional", "blh",  "yh"),
        case("RNN",  "forward",       "bh",   "yh").with(strings("activations", &["Relu"])),
        case("RNN",  "bidirectional", "b",    "y").with(strings("activations", &["Relu", "Relu"])),
    ]
}

#[test]
fn recurrences_have_the_gradients_of_their_definitions() {
    for case in cases() {
        for (simplify, open) in [(false, false), (true, true)] {
            let options = DeriveOptions { simplify, ..DeriveOptions::default() };
            case.check(&options, open, TOLERANCE);
        }
    }
}

#[test]
fn what_no_gradient_is_known_for_is_refused_by_name() {
    #[rustfmt::skip]
    let cases = [
        ("LSTM", attr_float("clip", 1.0),                              "clips"),
        ("LSTM", attr_int("input_forget", 1),                          "input and forget gates are one"),
        ("LSTM", strings("activations", &["Sigmoid", "Relu", "Tanh"]), "its activations are Sigmoid, Relu, Tanh"),
        ("GRU",  strings("activations", &["HardSigmoid", "Tanh"]),     "a gradient is known for Sigmoid, Tanh"),
        ("RNN",  strings("activations", &["Sigmoid"]),                 "a gradient is known for Tanh or Relu"),
    ];
    for (op, attribute, reason) in cases {
        let case = case(op, "forward", "b", "y").with(attribute);
        let model = case.model(&case.recurrent(5, 3), false);
        let error = derive(
            &onnxruntime::runtime(),
            &model.to_bytes(),
            Loss::MeanSquaredError,
            &DeriveOptions { train: Some(vec!["w".to_owned()]), ..DeriveOptions::default() },
        );
        let (error, node) = (error.unwrap_err(), format!("{op} (node `node`)"));
        let text = error.to_string();
        assert!(error.code() == "E311" && text.contains(&node) && text.contains(reason), "{text}");
    }
}

/// As PyTorch writes `nn.LSTM(..., proj_size=3)`, without the weights of the projection.
#[test]
fn a_projection_of_states_is_refused_by_its_name() {
    let mut random = SplitMix64::new(5);
    let mut graph = GraphBuilder::new("projected");
    let x = graph.input("x", ElementType::F32, &["steps".into(), "batch".into(), INPUT.into()]);
    let w = graph.weight("w", &[1, 20, INPUT], &numbers(&mut random, &[20, INPUT]));
    let r = graph.weight("r", &[1, 20, 3], &numbers(&mut random, &[20, 3]));
    let states = graph.op("LSTM", &[&x, &w, &r], &[attr_int("hidden_size", 5)]);
    let flat = graph.ints("flat", &[1, -1]);
    let y = graph.op("Reshape", &[&states, &flat], &[]);
    graph.output(&y);
    let (loss, options) = (Loss::MeanSquaredError, DeriveOptions::default());
    let refused = derive(&onnxruntime::runtime(), &graph.finish().to_bytes(), loss, &options).unwrap_err();
    assert!(refused.code() == "E311" && refused.to_string().contains("`proj_size`"), "{refused}");
}

#[test]
fn recomputed_and_rounded_gradients_are_the_same_as_far_as_they_can_be() {
    for case in cases() {
        let options = DeriveOptions { recompute: true, ..DeriveOptions::default() };
        case.check(&options, false, TOLERANCE);
        let options = DeriveOptions { precision: Precision::Fp16, ..DeriveOptions::default() };
        case.check(&options, false, 2e-2);
    }
}

#[test]
fn all_states_beside_a_value_whose_axis_has_another_name() {
    for op in ["LSTM", "GRU", "RNN"] {
        let gates = match op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        } * HIDDEN;
        let mut random = SplitMix64::new(5);
        let mut graph = GraphBuilder::new(op);
        let x = graph.input("x", ElementType::F32, &["time".into(), "samples".into(), INPUT.into()]);
        let other = ["frames".into(), 1.into(), "samples".into(), HIDDEN.into()];
        let other = graph.input("other", ElementType::F32, &other);
        let w = graph.weight("w", &[1, gates, INPUT], &numbers(&mut random, &[gates, INPUT]));
        let r = graph.weight("r", &[1, gates, HIDDEN], &numbers(&mut random, &[gates, HIDDEN]));
        let states = graph.op(op, &[&x, &w, &r], &[attr_int("hidden_size", HIDDEN as i64)]);
        let y = graph.named("y", "Mul", &[&states, &other], &[]);
        graph.output(&y);
        let shapes: [(&str, &[usize]); 2] = [("x", &[3, 2, INPUT]), ("other", &[3, 1, 2, HIDDEN])];
        SMOOTH.check(op, &graph.finish(), &["w", "r"], &[&shapes]);
    }
}
