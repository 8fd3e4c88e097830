//! The part of `onnx.proto` that Syncline reads and writes, with the field numbers of the standard.
//!
//! Fields that are not listed (documentation, quantization hints, how the file says to train) are dropped
//! when a model is read; a sparse tensor is refused by [`super::parse`]. ONNX Runtime is given what was read
//! and checked, never the file itself. Sub-messages nest at most 100 deep: prost's own limit, which keeps
//! hostile nesting from overflowing the stack.

use prost::Message;

/// A model file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format; up to 3 every initializer is listed as an input as well.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Program that wrote the file, such as `pytorch`; conventions of its exporter follow from it.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The main graph; [`super::parse`] refuses a model without one.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets that the nodes use, one for each domain.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Metadata for other programs.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Operators of the model's own, which nodes call by domain, name and overload.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// Which version of an operator set the nodes of a domain use; the standard's own domain is the empty string.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Namespace of the operators; empty or `ai.onnx` for the standard's own.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version of the set; exporters call it `opset_version`.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A graph: nodes in topological order over named values.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Operations; [`super::parse`] brings them into an order in which they can run.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// For people: nothing refers to it.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants; one that has the name of an input is the default of that input.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// What is fed; in a subgraph, what its node passes to it.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// What a run gives, by position.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of inner values, as far as the file states them.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Metadata for other programs; PyTorch's exporter names parameters and buffers here.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// One operator application. An empty input name is an omitted optional input.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the values that it reads, by position.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the values that it makes, by position; empty for one that nobody wants.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// For messages; may be empty, and need not be unique.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator, such as `Conv`, or name of a function of the model.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Constant arguments, by name; one that is not stated has its default.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Namespace of the operator; empty for the standard's own.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which function of the domain and name is called, where there are several; else empty.
    #[prost(string, tag = "8")]
    pub overload: String,
    /// Metadata for other programs, which does not change what the node computes.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A constant argument of a node; `kind` says which field holds it.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name by which the operator knows the argument.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of kind [`ATTRIBUTE_FLOAT`].
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// Value of kind [`ATTRIBUTE_INT`].
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// Value of kind [`ATTRIBUTE_STRING`], which need not be UTF-8.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub s: Option<Vec<u8>>,
    /// A tensor, as of a `Constant`.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A subgraph: a branch of an `If`, or the body of a loop.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// A list of floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Value of kind [`ATTRIBUTE_INTS`].
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// A list of strings.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// A list of tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// A list of subgraphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// A type, as of an `Optional`.
    #[prost(message, optional, tag = "14")]
    pub tp: Option<TypeProto>,
    /// One of the `ATTRIBUTE_*` constants.
    #[prost(int32, tag = "20")]
    pub kind: i32,
    /// In a function's node: attribute of the call that has the value; else empty.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
}

/// `AttributeProto::kind` of a float.
pub const ATTRIBUTE_FLOAT: i32 = 1;
/// `AttributeProto::kind` of an integer.
pub const ATTRIBUTE_INT: i32 = 2;
/// `AttributeProto::kind` of a string.
pub const ATTRIBUTE_STRING: i32 = 3;
/// `AttributeProto::kind` of a tensor.
pub const ATTRIBUTE_TENSOR: i32 = 4;
/// `AttributeProto::kind` of a graph.
pub const ATTRIBUTE_GRAPH: i32 = 5;
/// `AttributeProto::kind` of a list of integers.
pub const ATTRIBUTE_INTS: i32 = 7;

/// A named value with its type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name of the value in its graph.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `None` if the file does not say.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Metadata for other programs.
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

impl ValueInfoProto {
    /// A value whose type is not said.
    pub fn untyped(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// The type of a value. Only tensors are known here; other kinds read as `tensor_type: None`, and are written
/// as they were.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// `None` for a sequence, a map, and whatever else is no tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    /// The message of a sequence's type.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub sequence_type: Option<Vec<u8>>,
    /// The message of a map's type.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub map_type: Option<Vec<u8>>,
    /// The message of an optional value's type.
    #[prost(bytes = "vec", optional, tag = "9")]
    pub optional_type: Option<Vec<u8>>,
}

/// Element type and shape of a tensor value; no shape means an unknown rank.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// ONNX code, see [`ElementType::from_code`](crate::ElementType::from_code); 0 if it is not said.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// `None` if not even the number of axes is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape, possibly symbolic.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The axes, the first one outermost; none for a single number.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One dimension.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// `None` for an open axis without a name.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// A dimension is a number or a name; equal names are equal sizes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// Number of elements; a negative one counts as unknown.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// Name of an open axis, such as `batch`; an empty one counts as unknown.
    #[prost(string, tag = "2")]
    Param(String),
}

/// A constant tensor. The numbers are in `raw_data` (little endian) or in one of the typed fields.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Sizes of the axes; empty for a single number.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// ONNX code, see [`ElementType::from_code`](crate::ElementType::from_code).
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// float32, and complex64 as pairs.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// int32 and all narrower types, truth values and the bits of short floats among them.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Strings, one an element; they are never in `raw_data`.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub string_data: Vec<Vec<u8>>,
    /// int64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name of the value that an initializer is; often empty in an attribute.
    #[prost(string, tag = "8")]
    pub name: String,
    /// `None` if the numbers are in a typed field.
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
    /// float64, and complex128 as pairs.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// uint64 and uint32.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where in another file the data is; [`super::parse`] refuses a tensor that says so.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 0: in this message; 1: in another file, which [`super::parse`] refuses.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Of entries with the same key [`metadata`] finds the first.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Text whose form the key implies.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A function: an operator of the model's own, defined by nodes. ONNX Runtime inlines them.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// What nodes that call it have as `op_type`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names that its nodes have for what a call gives it, by position.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names that its nodes have for what a call gets, by position.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of attributes without a default, which a call states.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Its body, in an order in which it can run.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Operator sets that its body uses, one for each domain.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Namespace in which nodes find it.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with the defaults that hold where a call does not state them.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Tells functions of one domain and name apart; else empty.
    #[prost(string, tag = "13")]
    pub overload: String,
}

/// The value of a metadata entry.
pub fn metadata<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Option<&'a str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

impl ModelProto {
    /// The model as bytes of a `.onnx` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Version of the standard's own operator set; 0 if the model names none.
    pub fn opset(&self) -> i64 {
        let standard = |domain: &str| domain.is_empty() || domain == "ai.onnx";
        self.opset_import.iter().filter(|set| standard(&set.domain)).map(|set| set.version).max().unwrap_or(0)
    }
}
