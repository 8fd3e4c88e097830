//! Runs of a model on a device with memory of its own.
//!
//! In: tensors in the memory of this process. They are copied once into page-locked memory, which a GPU reads by
//! itself, and from there to the device; an input that has not changed since the run before stays where it is. Out:
//! tensors in page-locked memory, written by the GPU. Page-locked memory is a few times as fast as any other for both,
//! and ONNX Runtime keeps what it has once allocated.
//!
//! For [`Device::Cpu`] the memory is ordinary: the same path, by which tests reach it.

use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, RunOptions, Session, SessionOutputs};
use ort::value::{DynTensor, TensorElementType};
use syncline_kit::Device;
use syncline_onnx::ElementType;

use syncline_onnx::TensorView;

/// The inputs and outputs of one session, bound to memory.
#[derive(Debug)]
pub(super) struct Pinned {
    binding: IoBinding,
    host: Allocator,
    outputs: MemoryInfo<'static>,
    /// What was sent last, by position of the input.
    inputs: Vec<Option<DynTensor>>,
}

impl Pinned {
    pub(super) fn new(session: &Session, device: Device) -> ort::Result<Self> {
        let host = Allocator::new(session, host_memory(device, MemoryType::CPUInput)?)?;
        let outputs = host_memory(device, MemoryType::CPUOutput)?;
        let inputs = session.inputs().iter().map(|_| None).collect();
        Ok(Self { binding: session.create_binding()?, host, outputs, inputs })
    }

    /// Whether an input was ever sent.
    pub(super) fn holds(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(Option::is_some)
    }

    /// Sends an input. `view` has as many numbers as its shape says.
    pub(super) fn send(&mut self, index: usize, name: &str, view: TensorView<'_>) -> ort::Result<()> {
        let Some(slot) = self.inputs.get_mut(index) else { return Ok(()) };
        let tensor = stage(slot, &self.host, view)?;
        self.binding.bind_input(name, tensor)
    }

    /// Runs the model on what was sent, and waits for the outputs.
    pub(super) fn run<'s>(
        &'s mut self,
        session: &'s mut Session,
        options: Option<&'s RunOptions>,
    ) -> ort::Result<SessionOutputs<'s>> {
        // Anew each time: what is bound already would be written again, and must not if its shape is another.
        for output in session.outputs() {
            self.binding.bind_output_to_device(output.name(), &self.outputs)?;
        }
        self.binding.synchronize_inputs()?;
        let values = match options {
            None => session.run_binding(&self.binding)?,
            Some(options) => session.run_binding_with_options(&self.binding, options)?,
        };
        self.binding.synchronize_outputs()?;
        Ok(values)
    }
}

/// Copies a tensor to memory from which a device reads it: that of `slot` if it is of the same kind, else anew. `view` has as
/// many numbers as its shape says.
pub(super) fn stage<'s>(
    slot: &'s mut Option<DynTensor>,
    host: &Allocator,
    view: TensorView<'_>,
) -> ort::Result<&'s DynTensor> {
    let element = match view.element() {
        ElementType::F64 => TensorElementType::Float64,
        ElementType::I32 => TensorElementType::Int32,
        ElementType::I64 => TensorElementType::Int64,
        ElementType::U8 => TensorElementType::Uint8,
        ElementType::Bool => TensorElementType::Bool,
        _ => TensorElementType::Float32,
    };
    let fits = |tensor: &DynTensor| {
        let same = tensor.shape().iter().zip(view.shape()).all(|(a, b)| usize::try_from(*a) == Ok(*b));
        same && tensor.shape().len() == view.shape().len() && *tensor.data_type() == element
    };
    let tensor = match slot.take().filter(fits) {
        Some(tensor) => slot.insert(tensor),
        None => slot.insert(DynTensor::new(host, element, view.shape().to_vec())?),
    };
    match view {
        TensorView::F32 { data, .. } => tensor.try_extract_tensor_mut::<f32>()?.1.copy_from_slice(data),
        TensorView::F64 { data, .. } => tensor.try_extract_tensor_mut::<f64>()?.1.copy_from_slice(data),
        TensorView::I32 { data, .. } => tensor.try_extract_tensor_mut::<i32>()?.1.copy_from_slice(data),
        TensorView::I64 { data, .. } => tensor.try_extract_tensor_mut::<i64>()?.1.copy_from_slice(data),
        TensorView::U8 { data, .. } => tensor.try_extract_tensor_mut::<u8>()?.1.copy_from_slice(data),
        TensorView::Bool { data, .. } => tensor.try_extract_tensor_mut::<bool>()?.1.copy_from_slice(data),
    }
    Ok(tensor)
}

/// Memory of this process that `device` reads and writes by itself.
pub(super) fn host_memory(device: Device, ty: MemoryType) -> ort::Result<MemoryInfo<'static>> {
    let (memory, index) = match device {
        Device::Cpu => (AllocationDevice::CPU, 0),
        Device::Cuda(index) => (AllocationDevice::CUDA_PINNED, i32::from(index)),
    };
    MemoryInfo::new(memory, index, AllocatorType::Device, ty)
}
