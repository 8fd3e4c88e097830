//! Outputs that ONNX Runtime writes where the caller wants them.

use std::{
    fmt::{self, Debug},
    ptr::NonNull,
    sync::Arc,
};

use ort::memory::{Allocator, MemoryInfo};
use ort::session::{HasSelectedOutputs, OutputSelector, RunOptions};
use ort::value::{DynTensor, DynValue};

/// Memory for float32 outputs.
///
/// # Safety
/// `base` points to `elements` floats, the same for the whole life of the value, that may be read and
/// written. While an [`Executable`](crate::Executable) has it, this process writes there only through that
/// executable, and nobody else writes.
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
        for (name, value) in tensors(&*memory, places, &MemoryInfo::default())? {
            outputs = outputs.preallocate(name, value);
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

/// A tensor over each place, which must lie within `memory`. The caller keeps the memory as long as them.
/// `about`: what ONNX Runtime is told of it.
#[expect(unsafe_code, reason = "ONNX Runtime writes through a pointer that no borrow protects")]
pub(super) fn tensors(
    memory: &dyn OutputMemory,
    places: &[OutputPlace<'_>],
    about: &MemoryInfo<'_>,
) -> ort::Result<Vec<(String, DynValue)>> {
    let tensor = |place: &OutputPlace<'_>| {
        let elements = place.shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        let end = elements.and_then(|elements| elements.checked_add(place.start));
        if end.is_none_or(|end| end > memory.elements()) {
            return Err(ort::Error::new(format!("`{}` does not fit where it is to lie", place.name)));
        }
        // SAFETY: the floats are there, and whoever implements `OutputMemory` has promised that ONNX Runtime
        // may write them.
        let value = unsafe { floats_at(memory.base().as_ptr().add(place.start), place.shape, about)? };
        Ok((place.name.to_owned(), value))
    };
    places.iter().map(tensor).collect()
}

/// The same float32 tensor for a binding to write to, told to be in ordinary memory: into memory that is told
/// to be page-locked ONNX Runtime's CUDA provider refuses to copy what lies there already (`dst_data !=
/// src_data`). That pages are locked CUDA sees by their address. The tensor outlives the binding.
pub(super) fn to_write(tensor: &mut DynTensor) -> ort::Result<DynValue> {
    let (shape, data) = tensor.try_extract_tensor_mut::<f32>()?;
    let shape: Vec<usize> = shape.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    // SAFETY: the tensor has the floats of its shape, and whoever binds keeps it.
    #[expect(unsafe_code, reason = "ort makes no second value over the memory of a tensor")]
    unsafe {
        floats_at(data.as_mut_ptr(), &shape, &MemoryInfo::default())
    }
}

/// A float32 tensor over memory that ONNX Runtime does not own.
///
/// # Safety
/// As many floats as `shape` says lie there whenever a session reads or writes the tensor; and only then are
/// they looked at.
#[expect(unsafe_code, reason = "ort makes no owned tensor over memory that it does not know")]
pub(super) unsafe fn floats_at(
    first: *mut f32,
    shape: &[usize],
    about: &MemoryInfo<'_>,
) -> ort::Result<DynValue> {
    use ort::AsPointer;
    let bytes = shape.iter().product::<usize>() * size_of::<f32>();
    let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let mut value = std::ptr::null_mut();
    // SAFETY: the shape and what is said of the memory are copied by the call; of the floats themselves see
    // above.
    unsafe {
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
