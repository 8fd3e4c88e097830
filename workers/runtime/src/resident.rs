//! Runs of a model with state that stays on the device: what one run gives, the next one reads.
//!
//! A kept value is an input and the output that is the same value one run later. It has two tensors on the
//! device, taken when the model is loaded: a run reads one and writes the other, and [`Resident::commit`]
//! lets them change places. A run that fails, or that is not committed, leaves the state as it was. Nothing
//! crosses the bus but what is fed, what is reported, kept values that are set before a run, and those that
//! are fetched by one: all of it through page-locked memory.
//!
//! Inputs are bound for every run, although the same two take turns: what a node on the CPU reads is copied
//! when it is bound, and must be what the run before has written. It costs a microsecond or two for each.
//!
//! For [`Device::Cpu`] the memory is ordinary: the same path, by which tests reach it.

use ort::memory::{Allocator, MemoryType};
use ort::session::{IoBinding, Session};
use ort::value::{DynTensor, Tensor, TensorElementType};
use syncline_kit::Device;
use syncline_onnx::TensorView;

use crate::error::BackendError;
use crate::executable::{Executable, find_input};
use crate::pinned::{device_memory, host_memory};
use crate::placed::to_write;
use crate::runtime::Runtime;
use crate::session::ExecOptions;
use crate::shortage::run_failed;
use crate::staging::stage;
use crate::view::check_size;

/// A float32 value that stays on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptValue {
    /// Input that reads it.
    pub input: String,
    /// Output that gives its next value.
    pub output: String,
    /// The shape that it has in every run.
    pub shape: Vec<usize>,
}

/// A float32 output that is read after every run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedValue {
    /// Name of the output.
    pub output: String,
    /// The shape that it has in every run.
    pub shape: Vec<usize>,
}

/// A model with its state on a device. Belongs to one executor thread.
#[derive(Debug)]
pub struct Resident {
    device: Device,
    /// That copy what is sent.
    threads: usize,
    kept: Vec<Kept>,
    /// Which tensor of each kept value the next run reads.
    current: usize,
    /// What is fed, with the memory that it was sent from last.
    fed: Vec<(String, Option<DynTensor>)>,
    reported: Vec<DynTensor>,
    /// How many kept values the last run has fetched; `None` behind a commit, and if it failed.
    ran: Option<usize>,
    binding: IoBinding,
    /// Memory of this process that the device reads and writes.
    host: Allocator,
    /// Behind everything that lies in its memory.
    session: Session,
}

#[derive(Debug)]
struct Kept {
    about: KeptValue,
    source: Source,
    on_device: [DynTensor; 2],
    staged: Option<DynTensor>,
    fetched: Option<DynTensor>,
}

/// Where the next run finds a kept value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Nowhere,
    Zero,
    Staged,
    Device,
}

impl Resident {
    /// Loads a model and takes memory on the device for two of each kept value. All its other inputs are fed
    /// to every run.
    ///
    /// # Errors
    /// Those of [`Executable::new`]; E498 if the device has not so much memory, E327 if the machine has not.
    pub fn new(
        runtime: &Runtime,
        onnx_bytes: &[u8],
        options: &ExecOptions,
        kept: Vec<KeptValue>,
        reported: &[ReportedValue],
    ) -> Result<Self, BackendError> {
        let session = Executable::new(runtime, onnx_bytes, options)?.into_session();
        let (device, threads) = (options.device, options.intra_threads);
        let bound = Self::bind(session, device, threads, kept, reported);
        bound.map_err(|source| run_failed(device, source.to_string()))
    }

    fn bind(
        session: Session,
        device: Device,
        threads: usize,
        kept: Vec<KeptValue>,
        reported: &[ReportedValue],
    ) -> ort::Result<Self> {
        let memory = Allocator::new(&session, device_memory(device)?)?;
        let host = Allocator::new(&session, host_memory(device, MemoryType::CPUInput)?)?;
        let mut binding = session.create_binding()?;
        let keep = |about: KeptValue| -> ort::Result<Kept> {
            let on_device = [floats(&memory, &about.shape)?, floats(&memory, &about.shape)?];
            Ok(Kept { about, source: Source::Nowhere, on_device, staged: None, fetched: None })
        };
        let kept = kept.into_iter().map(keep).collect::<ort::Result<Vec<_>>>()?;
        let mut report = |value: &ReportedValue| -> ort::Result<DynTensor> {
            let mut tensor = floats(&host, &value.shape)?;
            binding.bind_output(value.output.as_str(), &mut to_write(&mut tensor)?)?;
            Ok(tensor)
        };
        let reported = reported.iter().map(&mut report).collect::<ort::Result<Vec<_>>>()?;
        let names = session.inputs().iter().map(|input| input.name());
        let fed = names.filter(|name| kept.iter().all(|kept| kept.about.input != *name));
        let fed = fed.map(|name| (name.to_owned(), None)).collect();
        Ok(Self { device, threads, kept, current: 0, fed, reported, ran: None, binding, host, session })
    }

    /// Gives the kept value at `index` these numbers, from the next run on.
    ///
    /// # Errors
    /// E326 for a tensor without the numbers of its shape, E327 for one of another shape, or if there is no
    /// memory.
    pub fn set(&mut self, index: usize, value: TensorView<'_>) -> Result<(), BackendError> {
        let Some(kept) = self.kept.get_mut(index) else { return Ok(()) };
        check_size(&value, &kept.about.input)?;
        if value.shape() != kept.about.shape {
            let (name, shape) = (&kept.about.input, &kept.about.shape);
            let reason = format!("`{name}` is kept in shape {shape:?}, and given as {:?}", value.shape());
            return Err(BackendError::Run { reason });
        }
        let staged = stage(&mut kept.staged, &self.host, value, self.threads);
        staged.map_err(|source| run_failed(self.device, source.to_string()))?;
        kept.source = Source::Staged;
        Ok(())
    }

    /// Makes the kept value at `index` zero, from the next run on.
    pub fn clear(&mut self, index: usize) {
        if let Some(kept) = self.kept.get_mut(index) {
            kept.source = Source::Zero;
        }
    }

    /// Runs the model once on the calling thread. The next values of the first `fetch` kept values come into
    /// this process, and those alone; they have to be set before the run that follows the commit.
    ///
    /// # Errors
    /// E325 for an input that is not given, and for a kept value that has no numbers; E326; E327.
    pub fn run(&mut self, inputs: &[(&str, TensorView<'_>)], fetch: usize) -> Result<(), BackendError> {
        self.ran = None;
        for (name, sent) in &mut self.fed {
            let (_, view) = find_input(inputs, name)?;
            check_size(&view, name)?;
            let bound = stage(sent, &self.host, view, self.threads)
                .and_then(|tensor| self.binding.bind_input(name.as_str(), tensor));
            bound.map_err(|source| run_failed(self.device, source.to_string()))?;
        }
        if let Some(unset) = self.kept.iter().find(|kept| kept.source == Source::Nowhere) {
            return Err(BackendError::InputCount { name: unset.about.input.clone(), times: 0 });
        }
        let ran = self.run_bound(fetch);
        ran.map_err(|source| run_failed(self.device, source.to_string()))?;
        self.ran = Some(fetch);
        Ok(())
    }

    fn run_bound(&mut self, fetch: usize) -> ort::Result<()> {
        let Self { binding, session, kept, current, host, .. } = self;
        for (index, kept) in kept.iter_mut().enumerate() {
            kept.bind(binding, *current, host, index < fetch)?;
        }
        binding.synchronize_inputs()?;
        session.run_binding(binding)?;
        binding.synchronize_outputs()
    }

    /// Lets the next run read what the last one has given. Of no effect if that failed, or was committed
    /// before.
    pub fn commit(&mut self) {
        let Some(fetched) = self.ran.take() else { return };
        for (index, kept) in self.kept.iter_mut().enumerate() {
            kept.source = if index < fetched { Source::Nowhere } else { Source::Device };
        }
        self.current = 1 - self.current;
    }

    /// A reported output of the last run.
    pub fn reported(&self, index: usize) -> Result<&[f32], BackendError> {
        numbers(self.reported.get(index), index)
    }

    /// A kept value that the last run to do so has fetched.
    pub fn fetched(&self, index: usize) -> Result<&[f32], BackendError> {
        numbers(self.kept.get(index).and_then(|kept| kept.fetched.as_ref()), index)
    }
}

impl Kept {
    /// Binds input and output for one run.
    fn bind(
        &mut self,
        binding: &mut IoBinding,
        current: usize,
        host: &Allocator,
        fetch: bool,
    ) -> ort::Result<()> {
        let KeptValue { input, output, shape } = &self.about;
        match (self.source, &self.staged) {
            (Source::Zero, _) => binding.bind_input(input.as_str(), &zeros(shape)?)?,
            (Source::Staged, Some(staged)) => binding.bind_input(input.as_str(), staged)?,
            _ => binding.bind_input(input.as_str(), &self.on_device[current])?,
        }
        if !fetch {
            return binding.bind_output(output.as_str(), &mut self.on_device[1 - current]);
        }
        let fetched = match self.fetched.take() {
            Some(fetched) => self.fetched.insert(fetched),
            None => self.fetched.insert(floats(host, shape)?),
        };
        binding.bind_output(output.as_str(), &mut to_write(fetched)?)
    }
}

fn floats(memory: &Allocator, shape: &[usize]) -> ort::Result<DynTensor> {
    DynTensor::new(memory, TensorElementType::Float32, shape.to_vec())
}

/// In ordinary memory, which is not even touched until it is read: once in the life of a value no page-locked
/// memory is worth it.
fn zeros(shape: &[usize]) -> ort::Result<Tensor<f32>> {
    Tensor::from_array((shape.to_vec(), vec![0.0; shape.iter().product()]))
}

fn numbers(tensor: Option<&DynTensor>, index: usize) -> Result<&[f32], BackendError> {
    let unknown = || BackendError::UnknownOutput { name: format!("#{index}") };
    let (_, data) = tensor
        .ok_or_else(unknown)?
        .try_extract_tensor::<f32>()
        .map_err(|source| BackendError::Run { reason: source.to_string() })?;
    Ok(data)
}

#[cfg(test)]
mod tests;
