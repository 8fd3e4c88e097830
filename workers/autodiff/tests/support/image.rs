//! Models of one operator on an image with an open batch.

use syncline_onnx::proto::{AttributeProto, TensorProto};
use syncline_onnx::{Dim, ElementType, GraphBuilder, ModelProto, SplitMix64};

use crate::slopes::{Slopes, numbers};

/// Two batch sizes for an input `x` of these further sizes.
pub fn at_two_batches(sizes: &[usize], check: impl Fn(&[&[(&str, &[usize])]])) {
    let shapes = [2, 3].map(|batch| [&[batch], sizes].concat());
    check(&[&[("x", &shapes[0])], &[("x", &shapes[1])]]);
}

/// y = op(x + w, ...) for an open batch: gradients reach w through every element of the operator's image.
pub struct Image {
    pub graph: GraphBuilder,
    pub inputs: Vec<String>,
    params: Vec<String>,
    sizes: Vec<usize>,
    random: SplitMix64,
}

impl Image {
    pub fn new(sizes: &[usize], opset: i64) -> Self {
        let mut graph = GraphBuilder::new("image").with_opset(opset);
        let mut random = SplitMix64::new(3);
        let dims: Vec<Dim> =
            [Dim::from("batch")].into_iter().chain(sizes.iter().map(|&s| s.into())).collect();
        let x = graph.input("x", ElementType::F32, &dims);
        let w = graph.weight("w", sizes, &numbers(&mut random, sizes));
        let image = graph.op("Add", &[&x, &w], &[]);
        Self { graph, inputs: vec![image], params: vec!["w".to_owned()], sizes: sizes.to_vec(), random }
    }

    pub fn param(mut self, shape: &[usize]) -> Self {
        let name = format!("p{}", self.params.len());
        let data = numbers(&mut self.random, shape);
        self.inputs.push(self.graph.weight(&name, shape, &data));
        self.params.push(name);
        self
    }

    pub fn constant(mut self, tensor: TensorProto) -> Self {
        self.inputs.push(self.graph.constant(tensor));
        self
    }

    pub fn without(mut self) -> Self {
        self.inputs.push(String::new());
        self
    }

    pub fn finish(
        mut self,
        op: &str,
        attributes: &[AttributeProto],
    ) -> (ModelProto, Vec<String>, Vec<usize>) {
        let inputs: Vec<&str> = self.inputs.iter().map(String::as_str).collect();
        let y = self.graph.named("y", op, &inputs, attributes);
        self.graph.output(&y);
        (self.graph.finish(), self.params, self.sizes)
    }

    pub fn check(self, name: &str, op: &str, attributes: &[AttributeProto], how: Slopes) {
        let (model, params, sizes) = self.finish(op, attributes);
        let params: Vec<&str> = params.iter().map(String::as_str).collect();
        at_two_batches(&sizes, |batches| how.check(name, &model, &params, batches));
    }
}
