//! Tensors as arguments and results of tasks.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use syncline_onnx::{ElementType, TensorView};

/// Why numbers and shape make no tensor, or why a tensor does not have the numbers that are asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Shape and numbers do not go together.
    #[error("[E347] a tensor of shape {shape:?} does not have {found} numbers")]
    Size {
        /// Sizes of the axes, as given.
        shape: Vec<usize>,
        /// How many numbers were given.
        found: usize,
    },
    /// Nothing is converted: the numbers have to be asked for in their own type.
    #[error("[E348] the tensor holds {found}, not {wanted}")]
    Type {
        /// Type that was asked for.
        wanted: ElementType,
        /// Type of the numbers.
        found: ElementType,
    },
}

impl TensorError {
    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Size { .. } => "E347",
            Self::Type { .. } => "E348",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Size { .. } => {
                "give as many numbers as the sizes of the axes come to when they are multiplied"
            }
            Self::Type { .. } => "ask for the numbers in the type that the tensor holds: none are converted",
        };
        Some(hint.to_owned())
    }
}

/// Numbers with a shape, in row-major order: what ONNX models take and give. As an argument or result it
/// travels as raw bytes.
///
/// ```
/// # use syncline_workers::functions::Tensor;
/// let images = Tensor::new([2, 3], vec![0.0f32, 0.5, 1.0, 1.0, 0.5, 0.0])?;
/// assert_eq!(images.shape(), [2, 3]);
/// assert_eq!(images.values::<f32>()?[1], 0.5);
/// assert!(images.values::<i64>().is_err());
/// # Ok::<(), syncline_workers::functions::TensorError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    numbers: Numbers,
}

/// Public only for the sealed trait below: the module is not.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

/// What a [`Tensor`] may hold: `f32`, `f64`, `i32`, `i64`, `u8`, and `bool`.
pub trait Element: private::Sealed + Sized {}

mod private {
    use super::{ElementType, Numbers};

    pub trait Sealed: Sized {
        const ELEMENT: ElementType;
        fn into_numbers(values: Vec<Self>) -> Numbers;
        fn values(numbers: &Numbers) -> Option<&[Self]>;
    }
}

macro_rules! elements {
    ($($type:ty => $variant:ident by $read:ident),*) => {
        $(
            impl private::Sealed for $type {
                const ELEMENT: ElementType = ElementType::$variant;

                fn into_numbers(values: Vec<Self>) -> Numbers {
                    Numbers::$variant(values)
                }

                fn values(numbers: &Numbers) -> Option<&[Self]> {
                    match numbers {
                        Numbers::$variant(values) => Some(values),
                        _ => None,
                    }
                }
            }

            impl Element for $type {}
        )*

        impl Tensor {
            /// What it holds.
            pub fn element(&self) -> ElementType {
                match &self.numbers {
                    $(Numbers::$variant(_) => ElementType::$variant,)*
                }
            }

            /// The same, lent.
            pub(crate) fn view(&self) -> TensorView<'_> {
                let shape = &self.shape[..];
                match &self.numbers {
                    $(Numbers::$variant(data) => TensorView::$variant { shape, data },)*
                }
            }

            /// A copy of a view that has as many numbers as its shape says.
            #[cfg(feature = "worker")]
            pub(crate) fn copy_of(view: TensorView<'_>) -> Self {
                match view {
                    $(TensorView::$variant { shape, data } => {
                        Self { shape: shape.to_vec(), numbers: Numbers::$variant(data.to_vec()) }
                    })*
                }
            }

            fn bytes(&self) -> &[u8] {
                match &self.numbers {
                    $(Numbers::$variant(data) => bytemuck::cast_slice(data),)*
                }
            }
        }

        fn numbers_of_bytes(element: ElementType, bytes: &[u8]) -> Option<Numbers> {
            match element {
                $(ElementType::$variant => $read(bytes).map(Numbers::$variant),)*
                _ => None,
            }
        }
    };
}

elements!(
    f32 => F32 by pods,
    f64 => F64 by pods,
    i32 => I32 by pods,
    i64 => I64 by pods,
    u8 => U8 by pods,
    bool => Bool by bools
);

/// A copy, because bytes that came may begin anywhere. `None` if they are no whole number of elements.
fn pods<T: bytemuck::Pod>(bytes: &[u8]) -> Option<Vec<T>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return None;
    }
    let mut elements = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut elements).copy_from_slice(bytes);
    Some(elements)
}

fn bools(bytes: &[u8]) -> Option<Vec<bool>> {
    bytes.iter().map(|byte| bytemuck::checked::try_cast::<u8, bool>(*byte).ok()).collect()
}

/// Whether there are as many numbers as a shape says.
fn fits(shape: &[usize], count: usize) -> bool {
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) == Some(count)
}

impl Tensor {
    /// A tensor of these numbers, the last axis varying fastest.
    ///
    /// # Errors
    /// E347 if the shape needs another count of numbers.
    pub fn new<T: Element>(shape: impl Into<Vec<usize>>, numbers: Vec<T>) -> Result<Self, TensorError> {
        let shape = shape.into();
        match fits(&shape, numbers.len()) {
            true => Ok(Self { shape, numbers: T::into_numbers(numbers) }),
            false => Err(TensorError::Size { shape, found: numbers.len() }),
        }
    }

    /// Sizes of the axes; none for a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers.
    ///
    /// # Errors
    /// E348 if they are of another type.
    pub fn values<T: Element>(&self) -> Result<&[T], TensorError> {
        T::values(&self.numbers)
            .ok_or_else(|| TensorError::Type { wanted: T::ELEMENT, found: self.element() })
    }
}

/// As it travels.
#[derive(Serialize, Deserialize)]
// By this name previews know it.
#[serde(rename = "syncline.Tensor")]
struct WireTensor<'a> {
    /// As ONNX numbers the types.
    element: i32,
    shape: Cow<'a, [usize]>,
    #[serde(borrow, with = "serde_bytes")]
    bytes: Cow<'a, [u8]>,
}

impl Serialize for Tensor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (element, shape) = (self.element().code(), Cow::Borrowed(&self.shape[..]));
        WireTensor { element, shape, bytes: Cow::Borrowed(self.bytes()) }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let WireTensor { element, shape, bytes } = WireTensor::deserialize(from)?;
        let numbers = numbers_of_bytes(ElementType::from_code(element), &bytes);
        let tensor = numbers.map(|numbers| Self { shape: shape.into_owned(), numbers });
        let whole = tensor.filter(|tensor| fits(&tensor.shape, tensor.view().len()));
        whole.ok_or_else(|| D::Error::custom("bytes and shape are no tensor"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(tensor: &Tensor) -> Tensor {
        postcard::from_bytes(&postcard::to_stdvec(tensor).unwrap()).unwrap()
    }

    #[test]
    fn tensors_of_every_type_come_back_as_they_were() {
        let tensors = [
            Tensor::new([2, 2], vec![1.0f32, -0.0, f32::MAX, f32::MIN_POSITIVE]).unwrap(),
            Tensor::new([1], vec![1e300f64]).unwrap(),
            Tensor::new([3, 1], vec![i32::MIN, 0, 7]).unwrap(),
            Tensor::new([], vec![i64::MAX]).unwrap(),
            Tensor::new([0, 5], Vec::<u8>::new()).unwrap(),
            Tensor::new([2], vec![true, false]).unwrap(),
        ];
        for tensor in &tensors {
            assert_eq!(round_trip(tensor), *tensor);
            assert_eq!(Tensor::copy_of(tensor.view()), *tensor);
            let json = serde_json::to_string(tensor).unwrap();
            assert_eq!(serde_json::from_str::<Tensor>(&json).unwrap(), *tensor);
        }
        // Behind a byte: not where a float begins.
        let bytes = postcard::to_stdvec(&(7u8, &tensors[..])).unwrap();
        assert_eq!(postcard::from_bytes::<(u8, Vec<Tensor>)>(&bytes).unwrap().1, tensors);
    }

    #[test]
    fn a_shape_that_needs_other_numbers_is_refused() {
        for shape in [vec![], vec![4], vec![2, 2], vec![usize::MAX, 3], vec![0]] {
            assert!(Tensor::new(shape, vec![1u8, 2, 3]).is_err());
        }
        let huge = Tensor::new([usize::MAX, usize::MAX], Vec::<f32>::new()).unwrap_err();
        assert!(huge.to_string().starts_with("[E347] a tensor of shape [18446744073709551615, "), "{huge}");
        let bytes = Tensor::new([3], vec![1u8, 2, 3]).unwrap();
        assert_eq!(
            bytes.values::<f32>().unwrap_err().to_string(),
            "[E348] the tensor holds uint8, not float32"
        );
    }

    #[test]
    fn bytes_that_are_no_tensor_are_refused() {
        let encoded = |element, shape: &[usize], bytes: &[u8]| {
            let encoded = WireTensor { element, shape: shape.into(), bytes: bytes.into() };
            postcard::from_bytes::<Tensor>(&postcard::to_stdvec(&encoded).unwrap()).is_ok()
        };
        assert!(encoded(1, &[1], &[0; 4]) && encoded(9, &[2], &[0, 1]));
        #[rustfmt::skip]
        let bad = [
            ("half a float",       1, &[1][..],             &[0; 3][..]),
            ("more than it has",   1, &[2],                 &[0; 4]),
            ("an overflow",        2, &[1 << 63, 2],        &[]),
            ("neither true nor false", 9, &[1],             &[2]),
            ("a type of 16 bits",  10, &[1],                &[0; 2]),
            ("text",               8, &[1],                 &[65]),
        ];
        for (name, element, shape, bytes) in bad {
            assert!(!encoded(element, shape, bytes), "{name}");
        }
    }
}
