//! Values in the manner of JSON: a name of a variant alone is a text, one with fields an object of one field,
//! as in `serde_json`; but a key may be anything, a number may be `NaN`, and bytes are a text with escapes
//! `\xNN`.

use std::fmt::Display;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use syncline_onnx::ElementType;

use super::{
    line::{Line, Stop},
    tensor::{TENSOR_NAME, TensorFields, numbers},
};

/// Writes one value.
pub(super) struct PreviewSerializer<'a> {
    pub line: &'a mut Line,
    /// Bytes are numbers of this type.
    pub bytes_are: Option<ElementType>,
}

impl<'a> PreviewSerializer<'a> {
    pub(super) fn new(line: &'a mut Line) -> Self {
        Self { line, bytes_are: None }
    }
}

/// What is written between brackets.
pub(super) struct Inside<'a> {
    line: &'a mut Line,
    is_first: bool,
    end: &'static str,
}

impl<'a> Inside<'a> {
    fn begin(line: &'a mut Line, begin: &str, end: &'static str) -> Result<Self, Stop> {
        line.raw(begin)?;
        Ok(Self { line, is_first: true, end })
    }

    /// Of the variant of an enum.
    fn of_variant(line: &'a mut Line, name: &str, begin: &str, end: &'static str) -> Result<Self, Stop> {
        line.character('{')?;
        line.quoted(name)?;
        line.character(':')?;
        Self::begin(line, begin, end)
    }

    fn comma(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.is_first) { Ok(()) } else { self.line.character(',') }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        self.comma()?;
        value.serialize(PreviewSerializer::new(self.line))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Stop> {
        self.comma()?;
        self.line.quoted(name)?;
        self.line.character(':')?;
        value.serialize(PreviewSerializer::new(self.line))
    }

    fn finish(self) -> Result<(), Stop> {
        self.line.raw(self.end)
    }
}

/// A struct; a tensor is one, too.
pub(super) enum StructFields<'a> {
    Usual(Inside<'a>),
    Tensor(TensorFields<'a>),
}

macro_rules! as_displayed {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), Stop> {
            self.line.display(value)
        })*
    };
}

impl<'a> Serializer for PreviewSerializer<'a> {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Inside<'a>;
    type SerializeTuple = Inside<'a>;
    type SerializeTupleStruct = Inside<'a>;
    type SerializeTupleVariant = Inside<'a>;
    type SerializeMap = Inside<'a>;
    type SerializeStruct = StructFields<'a>;
    type SerializeStructVariant = Inside<'a>;

    as_displayed!(
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128
    );

    // In this form a large number is no long one.
    fn serialize_f32(self, value: f32) -> Result<(), Stop> {
        self.line.display(format_args!("{value:?}"))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Stop> {
        self.line.display(format_args!("{value:?}"))
    }

    fn serialize_char(self, value: char) -> Result<(), Stop> {
        self.line.quoted(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Stop> {
        self.line.quoted(value)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Stop> {
        self.line.quoted_display(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Stop> {
        match self.bytes_are {
            Some(element) => numbers(self.line, element, value),
            None => self.line.bytes(value),
        }
    }

    fn serialize_none(self) -> Result<(), Stop> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        self.line.raw("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Stop> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Stop> {
        self.line.quoted(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        let mut inside = Inside::begin(self.line, "{", "}")?;
        inside.field(variant, value)?;
        inside.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'a>, Stop> {
        Inside::begin(self.line, "[", "]")
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'a>, Stop> {
        Inside::begin(self.line, "[", "]")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, Stop> {
        Inside::begin(self.line, "[", "]")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, Stop> {
        Inside::of_variant(self.line, variant, "[", "]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'a>, Stop> {
        Inside::begin(self.line, "{", "}")
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<StructFields<'a>, Stop> {
        match name {
            TENSOR_NAME => Ok(StructFields::Tensor(TensorFields::new(self.line))),
            _ => Inside::begin(self.line, "{", "}").map(StructFields::Usual),
        }
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, Stop> {
        Inside::of_variant(self.line, variant, "{", "}}")
    }
}

macro_rules! listed {
    ($($of:ident by $method:ident),*) => {
        $(impl $of for Inside<'_> {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
                self.element(value)
            }

            fn end(self) -> Result<(), Stop> {
                self.finish()
            }
        })*
    };
}

listed!(
    SerializeSeq by serialize_element,
    SerializeTuple by serialize_element,
    SerializeTupleStruct by serialize_field,
    SerializeTupleVariant by serialize_field
);

impl SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        self.element(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        self.line.character(':')?;
        value.serialize(PreviewSerializer::new(self.line))
    }

    fn end(self) -> Result<(), Stop> {
        self.finish()
    }
}

impl SerializeStructVariant for Inside<'_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Stop> {
        self.field(name, value)
    }

    fn end(self) -> Result<(), Stop> {
        self.finish()
    }
}

impl SerializeStruct for StructFields<'_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Stop> {
        match self {
            Self::Usual(inside) => inside.field(name, value),
            Self::Tensor(tensor) => tensor.field(name, value),
        }
    }

    fn end(self) -> Result<(), Stop> {
        match self {
            Self::Usual(inside) => inside.finish(),
            Self::Tensor(_) => Ok(()),
        }
    }
}
