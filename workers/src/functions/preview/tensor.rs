//! Tensors: type, shape and the first numbers, instead of the bytes in which they travel.

use std::fmt::Debug;

use serde::Serialize;
use syncline_onnx::ElementType;

use super::{
    line::{Line, Stop},
    serializer::PreviewSerializer,
};

/// The name under which a [`Tensor`](crate::functions::Tensor) writes itself. Formats do not write the names
/// of structs, so only a preview sees it.
pub(super) const TENSOR_NAME: &str = "syncline.Tensor";

/// The fields of a tensor as they come: `element`, `shape`, `bytes`.
pub(super) struct TensorFields<'a> {
    line: &'a mut Line,
    element: ElementType,
}

impl<'a> TensorFields<'a> {
    pub(super) fn new(line: &'a mut Line) -> Self {
        Self { line, element: ElementType::Other(0) }
    }

    pub(super) fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Stop> {
        match name {
            "element" => {
                let mut code = Line::default();
                value.serialize(PreviewSerializer::new(&mut code))?;
                self.element = ElementType::from_code(code.into_text().parse().unwrap_or_default());
                self.line.raw("{\"type\":")?;
                self.line.quoted_display(&self.element)
            }
            "shape" => {
                self.line.raw(",\"shape\":")?;
                value.serialize(PreviewSerializer::new(self.line))
            }
            _ => {
                self.line.raw(",\"values\":[")?;
                let numbers = PreviewSerializer { bytes_are: Some(self.element), line: self.line };
                value.serialize(numbers)?;
                self.line.raw("]}")
            }
        }
    }
}

/// Writes the numbers that these bytes are.
pub(super) fn numbers(line: &mut Line, element: ElementType, bytes: &[u8]) -> Result<(), Stop> {
    match element {
        ElementType::F32 => each(line, bytes, f32::from_ne_bytes),
        ElementType::F64 => each(line, bytes, f64::from_ne_bytes),
        ElementType::I32 => each(line, bytes, i32::from_ne_bytes),
        ElementType::I64 => each(line, bytes, i64::from_ne_bytes),
        ElementType::U8 => each(line, bytes, u8::from_ne_bytes),
        ElementType::Bool => each(line, bytes, |[byte]: [u8; 1]| byte != 0),
        _ => Err(Stop::Refused),
    }
}

fn each<T: Debug, const BYTES: usize>(
    line: &mut Line,
    bytes: &[u8],
    number: impl Fn([u8; BYTES]) -> T,
) -> Result<(), Stop> {
    let (numbers, _) = bytes.as_chunks::<BYTES>();
    for (index, bytes) in numbers.iter().enumerate() {
        if index > 0 {
            line.character(',')?;
        }
        line.display(format_args!("{:?}", number(*bytes)))?;
    }
    Ok(())
}
