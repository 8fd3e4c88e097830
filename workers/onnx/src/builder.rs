//! Writing a forward model by hand.

use crate::attributes::attr_ints;
use crate::element::{Dim, ElementType, TensorType};
use crate::graph::Graph;
use crate::proto::{AttributeProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

impl NodeProto {
    /// An operator that is applied to values; what it makes has no name yet.
    pub fn unnamed(op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> Self {
        Self {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            op_type: op.to_owned(),
            attribute: attributes.to_vec(),
            ..Default::default()
        }
    }

    /// An operator with one output; node and output have the same name.
    pub fn named(name: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> Self {
        let (name, output) = (name.to_owned(), vec![name.to_owned()]);
        Self { name, output, ..Self::unnamed(op, inputs, attributes) }
    }
}

/// Builds a graph one operator at a time: each is there as it was written, equal ones and dead ones too.
/// Every method returns the name of the value it made.
///
/// ```
/// # use syncline_onnx::{ElementType, GraphBuilder};
/// let mut graph = GraphBuilder::new("double");
/// let x = graph.input("x", ElementType::F32, &["batch".into(), 3.into()]);
/// let y = graph.op("Add", &[&x, &x], &[]);
/// graph.output(&y);
/// let bytes = graph.finish().to_bytes();
/// assert!(syncline_onnx::parse(&bytes).is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct GraphBuilder {
    graph: Graph,
    opset: i64,
}

impl GraphBuilder {
    /// An empty graph of operator set 17.
    pub fn new(name: &str) -> Self {
        Self { graph: Graph::new(name), opset: 17 }
    }

    /// Speaks another version of the operator set.
    pub fn with_opset(mut self, opset: i64) -> Self {
        self.opset = opset;
        self
    }

    /// A value that the caller feeds.
    pub fn input(&mut self, name: &str, element: ElementType, dims: &[Dim]) -> String {
        self.graph.push_input(TensorType::new(element, dims.to_vec()).to_value_info(name));
        name.to_owned()
    }

    /// A float32 weight with its initial value, in row-major order.
    pub fn weight(&mut self, name: &str, shape: &[usize], initial: &[f32]) -> String {
        self.constant(TensorProto::from_f32(name, shape, initial))
    }

    /// A constant list of integers, for example the target of a `Reshape`.
    pub fn ints(&mut self, name: &str, values: &[i64]) -> String {
        self.constant(TensorProto::from_i64(name, &[values.len()], values))
    }

    /// A constant tensor under its own name.
    pub fn constant(&mut self, tensor: TensorProto) -> String {
        let name = tensor.name.clone();
        self.graph.push_constant(tensor);
        name
    }

    /// Applies an operator with one output; node and value are named after the operator and a number.
    pub fn op(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let name = format!("{}_{}", op.to_lowercase(), self.graph.nodes().len());
        self.named(&name, op, inputs, attributes)
    }

    /// Applies an operator with one output; node and value have the given name.
    pub fn named(&mut self, name: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        self.graph.push(NodeProto::named(name, op, inputs, attributes));
        name.to_owned()
    }

    /// Applies `Transpose`.
    pub fn transpose(&mut self, x: &str, perm: &[i64]) -> String {
        self.op("Transpose", &[x], &[attr_ints("perm", perm)])
    }

    /// Declares a value to be an output of the model.
    pub fn output(&mut self, name: &str) {
        self.graph.push_output(ValueInfoProto::untyped(name));
    }

    /// The model.
    pub fn finish(self) -> ModelProto {
        ModelProto {
            ir_version: 8,
            producer_name: "syncline".to_owned(),
            graph: Some(self.graph.into()),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: self.opset }],
            ..ModelProto::default()
        }
    }
}
