//! Constant tensors: making them, checking them, reading their numbers.

use crate::element::ElementType;
use crate::error::OnnxError;
use crate::parse::MAX_ELEMENTS;
use crate::proto::TensorProto;

impl TensorProto {
    /// A float32 tensor. `data` must have as many numbers as `shape` says.
    pub fn from_f32(name: &str, shape: &[usize], data: &[f32]) -> Self {
        Self::from_raw(name, ElementType::F32, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// A float64 tensor.
    pub fn from_f64(name: &str, shape: &[usize], data: &[f64]) -> Self {
        Self::from_raw(name, ElementType::F64, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// An int64 tensor.
    pub fn from_i64(name: &str, shape: &[usize], data: &[i64]) -> Self {
        Self::from_raw(name, ElementType::I64, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// A truth value without axes.
    pub fn from_bool(name: &str, value: bool) -> Self {
        Self { dims: Vec::new(), ..Self::from_raw(name, ElementType::Bool, &[1], vec![u8::from(value)]) }
    }

    fn from_raw(name: &str, element: ElementType, shape: &[usize], raw: Vec<u8>) -> Self {
        debug_assert_eq!(
            element.bits().map(|bits| bits as usize / 8 * shape.iter().product::<usize>()),
            Some(raw.len())
        );
        Self {
            name: name.to_owned(),
            dims: shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect(),
            data_type: element.code(),
            raw_data: Some(raw),
            ..Default::default()
        }
    }

    /// Element type.
    pub fn element(&self) -> ElementType {
        ElementType::from_code(self.data_type)
    }

    /// Shape. A negative dimension, which [`super::parse`] refuses, reads as 0.
    pub fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect()
    }

    /// The numbers of a float32 tensor.
    pub fn to_f32(&self) -> Result<Vec<f32>, OnnxError> {
        if self.element() != ElementType::F32 {
            return Err(self.bad(format!("expected float32, found {}", self.element())));
        }
        Ok(match &self.raw_data {
            Some(raw) => raw.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            None => self.float_data.clone(),
        })
    }

    /// The numbers of an int64 or int32 tensor; `None` for another type.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        let raw = self.raw_data.as_deref();
        match self.element() {
            ElementType::I64 => Some(match raw {
                Some(raw) => raw.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
                None => self.int64_data.clone(),
            }),
            ElementType::I32 => Some(match raw {
                Some(raw) => raw.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
                None => self.int32_data.iter().map(|&x| x.into()).collect(),
            }),
            _ => None,
        }
    }

    /// Checks that the data is here and is as long as the shape says.
    pub(super) fn check(&self) -> Result<(), OnnxError> {
        if self.data_location != 0 || !self.external_data.is_empty() {
            let reason = "which is not read".to_owned();
            return Err(OnnxError::ExternalData { tensor: self.name.clone(), reason });
        }
        let elements = self.checked_elements()?;
        let Some(bits) = self.element().bits() else {
            return match self.data_type {
                8 if self.string_data.len() as u64 == elements => Ok(()),
                8 => Err(self.bad(format!("{elements} strings expected, {} found", self.string_data.len()))),
                _ => Err(self.bad(format!("element type {} is not known", self.data_type))),
            };
        };
        if let Some(raw) = &self.raw_data {
            let bytes = (elements * bits).div_ceil(8);
            if raw.len() as u64 != bytes {
                return Err(self.bad(format!(
                    "shape {:?} needs {bytes} bytes, found {}",
                    self.dims,
                    raw.len()
                )));
            }
            return Ok(());
        }
        let found = match self.data_type {
            1 => self.float_data.len() as u64,
            14 => self.float_data.len() as u64 / 2,
            7 => self.int64_data.len() as u64,
            11 => self.double_data.len() as u64,
            15 => self.double_data.len() as u64 / 2,
            12 | 13 => self.uint64_data.len() as u64,
            _ => self.int32_data.len() as u64,
        };
        // Types below 8 bits may be packed several to an int32.
        let packed = bits < 8 && found >= (elements * bits).div_ceil(32);
        if found == elements || packed {
            return Ok(());
        }
        Err(self.bad(format!("shape {:?} needs {elements} numbers, found {found}", self.dims)))
    }

    /// How many bytes its shape and type need.
    pub(super) fn data_bytes(&self) -> Result<u64, OnnxError> {
        let elements = self.checked_elements()?;
        match self.element().bits() {
            Some(bits) => Ok((elements * bits).div_ceil(8)),
            None => Err(self.bad(format!("{} has no size", self.element()))),
        }
    }

    fn checked_elements(&self) -> Result<u64, OnnxError> {
        let count = self.dims.iter().try_fold(1u64, |count, &dim| {
            let dim = u64::try_from(dim).ok()?;
            count.checked_mul(dim).filter(|&count| count <= MAX_ELEMENTS)
        });
        count.ok_or_else(|| self.bad(format!("shape {:?} is negative or too large", self.dims)))
    }

    fn bad(&self, reason: String) -> OnnxError {
        OnnxError::BadTensor { tensor: self.name.clone(), reason }
    }
}
