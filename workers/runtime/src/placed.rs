//! Outputs that ONNX Runtime writes where the caller wants them.

use std::{
    fmt::{self, Debug},
    ptr::NonNull,
    sync::Arc,
};

use ort::memory::{Allocator, MemoryInfo};
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions};
use ort::value::DynValue;

/// Memory for float32 outputs.
///
/// # Safety
/// `base` points to `elements` floats, the same for the whole life of the value, that may be read and written. While an
/// [`Executable`](crate::Executable) has it, this process writes there only through that executable, and nobody else writes.
#[expect(unsafe_code, reason = "ONNX Runtime writes through a pointer that no borrow protects")]
pub unsafe trait OutputMemory: Debug + Send + Sync {
    /// The first float.
    fn base(&self) -> NonNull<f32>;
    /// How many there are.
    fn elements(&self) -> usize;
}

/// Where one output is to lie.
#[derive(Debug, Clone, Copy)]
pub struct OutputPlace<'a> {
    /// An output of the model, of type float32.
    pub name: &'a str,
    /// The shape that it has in every run.
    pub shape: &'a [usize],
    /// Floats in front of it.
    pub start: usize,
}

/// Outputs of a session that are bound to memory.
pub(super) struct Placed {
    options: RunOptions<HasSelectedOutputs>,
    /// Behind what points into it.
    memory: Arc<dyn OutputMemory>,
}

impl Placed {
    /// Binds outputs to their places, which must lie within `memory`.
    pub(super) fn new(memory: Arc<dyn OutputMemory>, places: &[OutputPlace<'_>]) -> ort::Result<Self> {
        let mut outputs = OutputSelector::default();
        for place in places {
            let elements = place.shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
            let end = elements.and_then(|elements| elements.checked_add(place.start));
            if end.is_none_or(|end| end > memory.elements()) {
                return Err(ort::Error::new(format!("`{}` does not fit where it is to lie", place.name)));
            }
            outputs = outputs.preallocate(place.name, tensor(&*memory, place)?);
        }
        Ok(Self { options: RunOptions::new()?.with_outputs(outputs), memory })
    }

    pub(super) fn options(&self) -> &RunOptions<HasSelectedOutputs> {
        &self.options
    }
}

impl Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placed").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// A tensor over the floats of a place, which were checked to be there.
#[expect(unsafe_code, reason = "ort makes no owned tensor over memory that it does not know")]
fn tensor(memory: &dyn OutputMemory, place: &OutputPlace<'_>) -> ort::Result<DynValue> {
    use ort::AsPointer;
    let about = MemoryInfo::default();
    let shape: Vec<i64> = place.shape.iter().map(|&size| size as i64).collect();
    let bytes = place.shape.iter().product::<usize>() * size_of::<f32>();
    let mut value = std::ptr::null_mut();
    // SAFETY: the place lies within the memory, which outlives the value: `Placed` drops its options first, and `Outputs`
    // borrow the executable that has both. The shape is copied by the call.
    unsafe {
        let first = memory.base().as_ptr().add(place.start);
        let status = (ort::api().CreateTensorWithDataAsOrtValue)(
            about.ptr(),
            first.cast(),
            bytes,
            shape.as_ptr(),
            shape.len(),
            ort::sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            &raw mut value,
        );
        ort::Error::result_from_status(status)?;
        let value = NonNull::new(value).ok_or_else(|| ort::Error::new("ONNX Runtime made no tensor"))?;
        Ok(DynValue::from_ptr(value, Some(&Allocator::default())))
    }
}
