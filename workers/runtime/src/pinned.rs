//! Runs of a model on a device with memory of its own.
//!
//! In: tensors in the memory of this process. They are copied once into page-locked memory, which a GPU reads
//! by itself, and from there to the device, unless they lie in page-locked memory already; an input that has
//! not changed since the run before stays where it is. Out: tensors in page-locked memory, written by the
//! GPU, some of them where the caller wants them. Page-locked memory is a few times as fast as any other for
//! both, and ONNX Runtime keeps what it has once allocated.
//!
//! An input is copied to the device when it is bound (`IOBinding::BindInput` of ONNX Runtime), except one
//! that is read by nodes on the CPU, which read it where it lies during the run. The copy may still be on its
//! way when the call returns, on a stream that need not be that of the run: `synchronize_inputs` waits for
//! it.
//!
//! For [`Device::Cpu`] the memory is ordinary: the same path, by which tests reach it.

use std::{collections::BTreeMap, ptr, sync::Arc};

use ort::AsPointer;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, RunOptions, Session, SessionOutputs};
use ort::value::{DynTensor, DynValue};
use syncline_kit::Device;
use syncline_onnx::TensorView;

use crate::page_locks::PageLocks;
use crate::placed::{OutputMemory, OutputPlace, floats_at, tensors};
use crate::session::ExecOptions;
use crate::staging::stage;

/// The inputs and outputs of one session, bound to memory.
#[derive(Debug)]
pub(super) struct Pinned {
    binding: IoBinding,
    host: Allocator,
    outputs: MemoryInfo<'static>,
    /// Outputs that are written where the caller wants them.
    placed: BTreeMap<String, DynValue>,
    /// Behind what points into it.
    _placed_in: Option<Arc<dyn OutputMemory>>,
    /// What was sent last, by position of the input.
    pub(super) inputs: Vec<Option<Sent>>,
    /// Whether an input is copied when it is bound, by position.
    on_device: Vec<bool>,
    locks: Option<Arc<PageLocks>>,
    threads: usize,
}

/// What an input was bound to last.
#[derive(Debug)]
pub(super) enum Sent {
    /// Page-locked memory of our own.
    Copied(DynTensor),
    /// Memory of the caller, who has it back since.
    InPlace,
}

impl Pinned {
    /// `locks`: which memory of the process is page-locked, besides ours.
    pub(super) fn new(
        session: &Session,
        options: &ExecOptions,
        locks: Option<Arc<PageLocks>>,
    ) -> ort::Result<Self> {
        let (device, threads) = (options.device, options.intra_threads.max(1));
        let host = Allocator::new(session, host_memory(device, MemoryType::CPUInput)?)?;
        let outputs = host_memory(device, MemoryType::CPUOutput)?;
        let inputs = session.inputs().iter().map(|_| None).collect();
        let (binding, on_device) = (session.create_binding()?, inputs_on_device(session)?);
        let (placed, _placed_in) = (BTreeMap::new(), None);
        Ok(Self { binding, host, outputs, placed, _placed_in, inputs, on_device, locks, threads })
    }

    /// Has these outputs written to `memory`.
    pub(super) fn place(
        &mut self,
        memory: Arc<dyn OutputMemory>,
        places: &[OutputPlace<'_>],
    ) -> ort::Result<()> {
        // Told to be ordinary memory, see `to_write`.
        let placed = tensors(&*memory, places, &MemoryInfo::default())?;
        // What was bound before may point to other memory.
        self.binding.clear_outputs();
        self.placed = placed.into_iter().collect();
        self._placed_in = Some(memory);
        Ok(())
    }

    /// Whether an input was ever sent, and the binding has it still.
    pub(super) fn holds(&self, index: usize) -> bool {
        match self.inputs.get(index) {
            Some(Some(Sent::Copied(_))) => true,
            Some(Some(Sent::InPlace)) => self.on_device.get(index).copied().unwrap_or(false),
            _ => false,
        }
    }

    /// Sends an input. `view` has as many numbers as its shape says.
    pub(super) fn send(&mut self, index: usize, name: &str, view: TensorView<'_>) -> ort::Result<()> {
        let Some(slot) = self.inputs.get_mut(index) else { return Ok(()) };
        if let TensorView::F32 { shape, data } = view
            && self.locks.as_ref().is_some_and(|locks| locks.hold(data))
        {
            // SAFETY: the floats are borrowed until the run is over. The binding may point there afterwards,
            // but is not run again before this input is sent again, see `holds`; where it is on
            // the device, nobody reads it here at all.
            #[expect(unsafe_code, reason = "ort binds no borrowed memory to a device without a copy")]
            let value = unsafe { floats_at(data.as_ptr().cast_mut(), shape, self.host.memory_info())? };
            *slot = None;
            self.binding.bind_input(name, &value)?;
            *slot = Some(Sent::InPlace);
            return Ok(());
        }
        let mut tensor = match slot.take() {
            Some(Sent::Copied(tensor)) => Some(tensor),
            _ => None,
        };
        let staged = stage(&mut tensor, &self.host, view, self.threads)?;
        self.binding.bind_input(name, staged)?;
        *slot = tensor.map(Sent::Copied);
        Ok(())
    }

    /// Runs the model on what was sent, and waits for the outputs.
    pub(super) fn run<'s>(
        &'s mut self,
        session: &'s mut Session,
        options: Option<&'s RunOptions>,
    ) -> ort::Result<SessionOutputs<'s>> {
        // Anew each time: what is bound already would be written again, and must not if its shape is another.
        for output in session.outputs() {
            match self.placed.get_mut(output.name()) {
                Some(place) => self.binding.bind_output(output.name(), place)?,
                None => self.binding.bind_output_to_device(output.name(), &self.outputs)?,
            }
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

/// By position, whether the nodes that read an input compute on a device with memory of its own.
#[expect(unsafe_code, reason = "ort keeps to itself where a session wants its inputs")]
fn inputs_on_device(session: &Session) -> ort::Result<Vec<bool>> {
    use ort::sys::OrtMemoryInfoDeviceType as On;
    let api = ort::api();
    let mut wanted = vec![ptr::null(); session.inputs().len()];
    // SAFETY: the session is alive, and has as many inputs as there are places.
    let status =
        unsafe { (api.SessionGetMemoryInfoForInputs)(session.ptr(), wanted.as_mut_ptr(), wanted.len()) };
    // SAFETY: `result_from_status` takes the status over and frees it.
    unsafe { ort::Error::result_from_status(status)? };
    let is_elsewhere = |memory: &*const ort::sys::OrtMemoryInfo| {
        let mut on = On::OrtMemoryInfoDeviceType_CPU;
        if !memory.is_null() {
            // SAFETY: what is said of an input's memory belongs to the session.
            unsafe { (api.MemoryInfoGetDeviceType)(*memory, &raw mut on) };
        }
        on != On::OrtMemoryInfoDeviceType_CPU
    };
    Ok(wanted.iter().map(is_elsewhere).collect())
}

/// Memory of this process that `device` reads and writes by itself.
pub(super) fn host_memory(device: Device, ty: MemoryType) -> ort::Result<MemoryInfo<'static>> {
    let (memory, index) = match device {
        Device::Cpu => (AllocationDevice::CPU, 0),
        Device::Cuda(index) => (AllocationDevice::CUDA_PINNED, i32::from(index)),
    };
    MemoryInfo::new(memory, index, AllocatorType::Device, ty)
}

/// Memory of the device itself.
pub(super) fn device_memory(device: Device) -> ort::Result<MemoryInfo<'static>> {
    let (memory, index) = match device {
        Device::Cpu => (AllocationDevice::CPU, 0),
        Device::Cuda(index) => (AllocationDevice::CUDA, i32::from(index)),
    };
    MemoryInfo::new(memory, index, AllocatorType::Device, MemoryType::Default)
}
