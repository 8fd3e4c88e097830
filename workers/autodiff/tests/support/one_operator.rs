//! Models of one operator, checked against finite differences: every parameter trained, with and without
//! simplification, at two batch sizes where an input has an open first axis.

use syncline_autodiff::{DeriveOptions, Loss};
use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, GraphBuilder, ModelProto, SplitMix64};

use crate::seeds::write_seed;

use crate::gradcheck::Check;
use crate::onnxruntime;

/// Sizes of the open axis at which a model is checked.
const BATCHES: [usize; 2] = [2, 5];

/// One operator under test. Inputs are added in the operator's order.
pub struct Case {
    op: String,
    pub graph: GraphBuilder,
    inputs: Vec<String>,
    attributes: Vec<AttributeProto>,
    params: Vec<String>,
    /// Data inputs with an open first axis: name and the sizes of the other axes.
    open: Vec<(String, Vec<usize>)>,
    random: SplitMix64,
}

impl Case {
    pub fn new(op: &str) -> Self {
        Self {
            op: op.to_owned(),
            graph: GraphBuilder::new(op),
            inputs: Vec::new(),
            attributes: Vec::new(),
            params: Vec::new(),
            open: Vec::new(),
            random: SplitMix64::new(11),
        }
    }

    pub fn opset(mut self, version: i64) -> Self {
        self.graph = self.graph.with_opset(version);
        self
    }

    /// A parameter of random numbers between 0.1 and 1 in size.
    pub fn param(self, shape: &[usize]) -> Self {
        self.param_between(shape, 0.1, 1.0, true)
    }

    /// A parameter of random numbers between 0.1 and 1.
    pub fn positive(self, shape: &[usize]) -> Self {
        self.param_between(shape, 0.1, 1.0, false)
    }

    pub fn param_between(mut self, shape: &[usize], low: f32, high: f32, signed: bool) -> Self {
        let data = numbers(&mut self.random, shape, low, high, signed);
        self.param_of(shape, &data)
    }

    /// A parameter of given numbers.
    pub fn param_of(mut self, shape: &[usize], data: &[f32]) -> Self {
        let name = self.weight(shape, data);
        self.inputs.push(name);
        self
    }

    fn weight(&mut self, shape: &[usize], data: &[f32]) -> String {
        let name = self.graph.weight(&format!("p{}", self.params.len()), shape, data);
        self.params.push(name.clone());
        name
    }

    /// A data input `[batch, sizes...]`, multiplied by a parameter `[sizes...]`.
    pub fn open(mut self, sizes: &[usize]) -> Self {
        let name = format!("x{}", self.open.len());
        let dims: Vec<Dim> =
            [Dim::from("batch")].into_iter().chain(sizes.iter().map(|&size| size.into())).collect();
        let x = self.graph.input(&name, ElementType::F32, &dims);
        let data = numbers(&mut self.random, sizes, 0.1, 1.0, true);
        let w = self.weight(sizes, &data);
        let scaled = self.graph.op("Mul", &[&x, &w], &[]);
        self.open.push((name, sizes.to_vec()));
        self.inputs.push(scaled);
        self
    }

    /// Says how large a data input is that was made by [`Case::value`], apart from its open first axis.
    pub fn fed(mut self, name: &str, sizes: &[usize]) -> Self {
        self.open.push((name.to_owned(), sizes.to_vec()));
        self
    }

    /// A constant list of integers.
    pub fn ints(self, values: &[i64]) -> Self {
        self.ints_of(&[values.len()], values)
    }

    /// A constant integer tensor.
    pub fn ints_of(self, shape: &[usize], values: &[i64]) -> Self {
        self.constant(|name| TensorProto::from_i64(name, shape, values))
    }

    /// A constant float without axes.
    pub fn float(self, value: f32) -> Self {
        self.constant(|name| TensorProto::from_f32(name, &[], &[value]))
    }

    fn constant(mut self, tensor: impl FnOnce(&str) -> TensorProto) -> Self {
        let name = self.graph.constant(tensor(&format!("c{}", self.inputs.len())));
        self.inputs.push(name);
        self
    }

    /// An input that is computed from others, by name.
    pub fn value(mut self, make: impl FnOnce(&mut GraphBuilder, &[String]) -> String) -> Self {
        let name = make(&mut self.graph, &self.inputs);
        self.inputs.push(name);
        self
    }

    /// An optional input that is left out.
    pub fn without(mut self) -> Self {
        self.inputs.push(String::new());
        self
    }

    pub fn attr(mut self, attribute: AttributeProto) -> Self {
        self.attributes.push(attribute);
        self
    }

    /// Checks the operator; y is its output.
    pub fn check(self, name: &str) {
        self.check_with(name, |_, y| y);
    }

    /// The same for an operator whose result has no axes, which no loss takes: it is multiplied by a
    /// parameter.
    pub fn check_scalar(mut self, name: &str) {
        let c = self.weight(&[2], &[1.5, -0.7]);
        self.check_with(name, |graph, y| graph.op("Mul", &[&y, &c], &[]));
    }

    /// The same with more operators behind it.
    pub fn check_with(self, name: &str, then: impl FnOnce(&mut GraphBuilder, String) -> String) {
        self.check_outputs(name, 1, then);
    }

    /// The same for an operator with several outputs: the first is `y`, the others are `y1`, `y2` and so on.
    pub fn check_outputs(
        mut self,
        name: &str,
        outputs: usize,
        then: impl FnOnce(&mut GraphBuilder, String) -> String,
    ) {
        let inputs: Vec<&str> = self.inputs.iter().map(String::as_str).collect();
        let y = self.graph.named("y", &self.op, &inputs, &self.attributes);
        let last = then(&mut self.graph, y);
        self.graph.output(&last);
        let mut model = self.graph.finish();
        let nodes = model.graph.iter_mut().flat_map(|graph| &mut graph.node);
        for node in nodes.filter(|node| node.name == "y") {
            node.output.extend((1..outputs).map(|index| format!("y{index}")));
        }
        let batches = if self.open.is_empty() { &BATCHES[..1] } else { &BATCHES };
        let shapes: Vec<Vec<(&str, Vec<usize>)>> = batches
            .iter()
            .map(|&batch| {
                self.open
                    .iter()
                    .map(|(name, sizes)| (name.as_str(), [&[batch], sizes.as_slice()].concat()))
                    .collect()
            })
            .collect();
        check_at(name, &model, &self.params, &shapes);
    }
}

/// Checks a model with these trained parameters at these shapes of its data inputs.
pub fn check_at(name: &str, model: &ModelProto, params: &[String], batches: &[Vec<(&str, Vec<usize>)>]) {
    write_seed(name, model);
    let runtime = onnxruntime::runtime();
    let shapes: Vec<Vec<(&str, &[usize])>> = batches
        .iter()
        .map(|batch| batch.iter().map(|(input, shape)| (*input, shape.as_slice())).collect())
        .collect();
    let shapes: Vec<&[(&str, &[usize])]> = shapes.iter().map(Vec::as_slice).collect();
    for simplify in [false, true] {
        let options = DeriveOptions { train: Some(params.to_vec()), simplify, ..DeriveOptions::default() };
        let check = Check { runtime: &runtime, model, loss: Loss::MeanSquaredError, options, seed: 5 };
        let graph = check.at(&shapes).unwrap_or_else(|why| panic!("{name}, simplify {simplify}: {why}"));
        assert_eq!(graph.params.len(), params.len(), "{name}");
    }
}

/// Random numbers between `low` and `high` in size, of either sign if asked: away from the kinks at 0.
pub fn numbers(random: &mut SplitMix64, shape: &[usize], low: f32, high: f32, signed: bool) -> Vec<f32> {
    let mut one = || {
        let size = low + (high - low) * random.uniform() as f32;
        if signed && random.next_u64() & 1 == 0 { -size } else { size }
    };
    (0..shape.iter().product()).map(|_| one()).collect()
}
