//! Fixed-size fields, little-endian.

/// Appends fields to a head.
pub(super) struct FieldWriter<'a>(pub &'a mut Vec<u8>);

macro_rules! put {
    ($($name:ident: $ty:ty),*) => {
        $(pub(super) fn $name(self, x: $ty) -> Self {
            self.0.extend_from_slice(&x.to_le_bytes());
            self
        })*
    };
}

impl FieldWriter<'_> {
    put!(u8: u8, u32: u32, u64: u64, f32: f32);

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text of at most 255 bytes, its length first.
    pub(super) fn short_text(self, text: &str) -> Self {
        debug_assert!(text.len() <= usize::from(u8::MAX), "names are bounded");
        self.u8(text.len() as u8).bytes(text.as_bytes())
    }
}

/// Takes fields from a head; `None` once it is too short.
pub(super) struct FieldReader<'a>(pub &'a [u8]);

macro_rules! take {
    ($($name:ident: $ty:ty),*) => {
        $(pub(super) fn $name(&mut self) -> Option<$ty> {
            self.array().map(<$ty>::from_le_bytes)
        })*
    };
}

impl<'a> FieldReader<'a> {
    take!(u8: u8, u32: u32, u64: u64, f32: f32);

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// A truth value; anything but 0 and 1 is damage.
    pub(super) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn short_text(&mut self) -> Option<&'a str> {
        let len = usize::from(self.u8()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    /// The message, if every byte has been taken.
    pub(super) fn finish<T>(self, message: T) -> Option<T> {
        self.0.is_empty().then_some(message)
    }
}
