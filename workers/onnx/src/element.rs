//! Element types and symbolic shapes of tensors.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::proto::{
    DimensionProto, DimensionValue, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// Element type of a tensor. `Other` holds the ONNX code of a type that Syncline passes through without
/// reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ElementType {
    /// IEEE 754 single precision; ONNX code 1.
    F32,
    /// IEEE 754 double precision; ONNX code 11.
    F64,
    /// IEEE 754 half precision; ONNX code 10.
    F16,
    /// The upper half of a float32; ONNX code 16.
    Bf16,
    /// Signed, 32 bits; ONNX code 6.
    I32,
    /// Signed, 64 bits, the type of shapes and of class labels; ONNX code 7.
    I64,
    /// Unsigned, 8 bits; ONNX code 2.
    U8,
    /// Truth value of one byte; ONNX code 9.
    Bool,
    /// Any other type, by its ONNX code.
    Other(i32),
}

impl ElementType {
    /// From the number in `TensorProto.DataType`.
    pub fn from_code(code: i32) -> Self {
        match code {
            1 => Self::F32,
            2 => Self::U8,
            6 => Self::I32,
            7 => Self::I64,
            9 => Self::Bool,
            10 => Self::F16,
            11 => Self::F64,
            16 => Self::Bf16,
            other => Self::Other(other),
        }
    }

    /// The number in `TensorProto.DataType`.
    pub fn code(self) -> i32 {
        match self {
            Self::F32 => 1,
            Self::U8 => 2,
            Self::I32 => 6,
            Self::I64 => 7,
            Self::Bool => 9,
            Self::F16 => 10,
            Self::F64 => 11,
            Self::Bf16 => 16,
            Self::Other(code) => code,
        }
    }

    /// Whether a gradient can flow through values of this type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16)
    }

    /// Size in bits; `None` for strings and for codes the standard does not know.
    pub fn bits(self) -> Option<u64> {
        match self.code() {
            2 | 3 | 9 | 17..=20 | 24 => Some(8),
            4 | 5 | 10 | 16 => Some(16),
            1 | 6 | 12 => Some(32),
            7 | 11 | 13 | 14 => Some(64),
            15 => Some(128),
            21..=23 => Some(4),
            25 | 26 => Some(2),
            _ => None,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("float32"),
            Self::F64 => f.write_str("float64"),
            Self::F16 => f.write_str("float16"),
            Self::Bf16 => f.write_str("bfloat16"),
            Self::I32 => f.write_str("int32"),
            Self::I64 => f.write_str("int64"),
            Self::U8 => f.write_str("uint8"),
            Self::Bool => f.write_str("bool"),
            Self::Other(code) => write!(f, "type {code}"),
        }
    }
}

/// One dimension of a shape. Equal symbols are equal sizes; two unknowns are never known to be equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dim {
    /// Number of elements, 0 included.
    Fixed(usize),
    /// Name of an open axis, such as `batch`.
    Symbol(String),
    /// An open axis without a name; also one that is declared with a negative size.
    Unknown,
}

impl Dim {
    /// The size, if it is a number.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Symbol(_) | Self::Unknown => None,
        }
    }

    /// Whether both are certainly the same size.
    pub fn same(&self, other: &Self) -> bool {
        *self != Self::Unknown && self == other
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}

impl From<&str> for Dim {
    fn from(symbol: &str) -> Self {
        Self::Symbol(symbol.to_owned())
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbol(symbol) => f.write_str(symbol),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// Element type and shape of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// Type of each element.
    pub element: ElementType,
    /// Sizes of the axes, the first one outermost; empty for a single number.
    pub dims: Vec<Dim>,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(element: ElementType, dims: Vec<Dim>) -> Self {
        Self { element, dims }
    }

    /// The shape as numbers, if all of them are known.
    pub fn fixed_shape(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(Dim::fixed).collect()
    }

    /// The declaration of a value of this type.
    pub fn to_value_info(&self, name: &str) -> ValueInfoProto {
        let dim = self.dims.iter().map(to_dimension).collect();
        let tensor =
            TensorTypeProto { elem_type: self.element.code(), shape: Some(TensorShapeProto { dim }) };
        let r#type = Some(TypeProto { tensor_type: Some(tensor), ..TypeProto::default() });
        ValueInfoProto { r#type, ..ValueInfoProto::untyped(name) }
    }

    /// The type that a declaration states; `None` if it is no tensor or its rank is unknown.
    pub fn from_value_info(info: &ValueInfoProto) -> Option<Self> {
        let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
        let dims = tensor.shape.as_ref()?.dim.iter().map(from_dimension).collect();
        Some(Self { element: ElementType::from_code(tensor.elem_type), dims })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{} [{}]", self.element, dims.join(", "))
    }
}

fn to_dimension(dim: &Dim) -> DimensionProto {
    let value = match dim {
        Dim::Fixed(size) => Some(DimensionValue::Value(i64::try_from(*size).unwrap_or(i64::MAX))),
        Dim::Symbol(symbol) => Some(DimensionValue::Param(symbol.clone())),
        Dim::Unknown => None,
    };
    DimensionProto { value }
}

fn from_dimension(dim: &DimensionProto) -> Dim {
    match &dim.value {
        Some(DimensionValue::Value(size)) => usize::try_from(*size).map_or(Dim::Unknown, Dim::Fixed),
        Some(DimensionValue::Param(symbol)) if !symbol.is_empty() => Dim::Symbol(symbol.clone()),
        Some(DimensionValue::Param(_)) | None => Dim::Unknown,
    }
}
