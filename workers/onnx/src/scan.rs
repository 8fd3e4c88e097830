//! Counts the parts of a model before it is decoded, and refuses sparse tensors, which are not.
//!
//! An empty message costs two bytes in the file and a few hundred in memory, so that a small hostile file
//! could ask for a hundred times its size. This walk over the wire format allocates nothing and refuses such
//! files early.

use crate::error::OnnxError;

/// Most messages, strings and byte fields in one model. A transformer of 200 layers has some 50,000.
const MAX_PARTS: usize = 1 << 20;
/// prost's own nesting limit.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Function,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Leaf,
}

impl Kind {
    fn child(self, field: u64) -> Self {
        match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 25) => Self::Function,
            (Self::Attribute, 14) => Self::Type,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 11..=13) => Self::ValueInfo,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::ValueInfo, 2) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            _ => Self::Leaf,
        }
    }

    /// How a graph or an attribute holds a sparse tensor in this field.
    fn sparse_tensor(self, field: u64) -> Option<&'static str> {
        match (self, field) {
            (Self::Graph, 15) => Some("an initializer"),
            (Self::Attribute, 22 | 23) => Some("an attribute"),
            _ => None,
        }
    }
}

/// Refuses bytes that would decode to more than `MAX_PARTS` messages and strings, and sparse tensors.
pub(super) fn check_parts(bytes: &[u8]) -> Result<(), OnnxError> {
    let mut left = MAX_PARTS;
    walk(bytes, Kind::Model, 0, &mut left)
}

fn malformed(reason: &str) -> OnnxError {
    OnnxError::Malformed { reason: reason.to_owned() }
}

fn walk(mut bytes: &[u8], kind: Kind, depth: usize, left: &mut usize) -> Result<(), OnnxError> {
    if depth > MAX_DEPTH {
        return Err(malformed("messages are nested too deeply"));
    }
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        match key & 7 {
            0 => {
                varint(&mut bytes)?;
            }
            1 => skip(&mut bytes, 8)?,
            5 => skip(&mut bytes, 4)?,
            2 => {
                let length =
                    usize::try_from(varint(&mut bytes)?).map_err(|_| malformed("a field is too long"))?;
                let Some((field, rest)) = bytes.split_at_checked(length) else {
                    return Err(malformed("the file ends inside a field"));
                };
                *left = left.checked_sub(1).ok_or_else(|| malformed("it has too many parts"))?;
                if let Some(place) = kind.sparse_tensor(key >> 3) {
                    return Err(OnnxError::SparseTensor { place });
                }
                let child = kind.child(key >> 3);
                if !matches!(child, Kind::Leaf) {
                    walk(field, child, depth + 1, left)?;
                }
                bytes = rest;
            }
            _ => return Err(malformed("unknown wire type")),
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, OnnxError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, rest)) = bytes.split_first() else {
            return Err(malformed("the file ends inside a number"));
        };
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number is too long"))
}

fn skip(bytes: &mut &[u8], count: usize) -> Result<(), OnnxError> {
    *bytes = bytes.get(count..).ok_or_else(|| malformed("the file ends inside a number"))?;
    Ok(())
}
