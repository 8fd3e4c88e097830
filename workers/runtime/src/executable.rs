//! One model, ready to run on one thread.

use std::sync::Arc;

use ort::session::{RunOptions, Session, SessionInputValue};
use syncline_kit::Device;
use syncline_onnx::{ModelProto, TensorView, Types, declare_every_value};
use tracing::info;

use crate::device::check;
use crate::error::BackendError;
use crate::infer::outlet_types;
use crate::interrupt::Interrupt;
use crate::outputs::Outputs;
use crate::pinned::Pinned;
use crate::placed::{OutputMemory, OutputPlace, Placed};
use crate::placement::Placement;
use crate::rewriting::{has_many_nodes, rewrite_for};
use crate::runtime::Runtime;
use crate::session::{ExecOptions, Optimize, compile};
use crate::shortage::{load_failed, run_failed};
use crate::view::{bind, check_size};

/// A model loaded into ONNX Runtime. Belongs to one executor; make one per thread.
#[derive(Debug)]
pub struct Executable {
    /// Before the session, which must outlive it. `None` on the CPU, which reads inputs where they are.
    pinned: Option<Pinned>,
    /// Outputs that are written where the caller wants them.
    placed: Option<Placed>,
    session: Session,
    device: Device,
    placement: Placement,
    input_names: Vec<String>,
    /// Where each of them was among what the last run was given: looked for there first.
    given_at: Vec<usize>,
    output_names: Vec<String>,
}

impl Executable {
    /// Checks the bytes (external data is refused here as well) and compiles them. Milliseconds to seconds.
    ///
    /// With several threads, sums of rows by index are written so that threads cannot disturb them; a model
    /// with sums by index of another kind runs on one thread, see `scatter_add`.
    pub fn new(runtime: &Runtime, onnx_bytes: &[u8], options: &ExecOptions) -> Result<Self, BackendError> {
        let parsed = syncline_onnx::parse(onnx_bytes)?;
        let mut options = options.clone();
        let rewritten = rewrite_for(runtime, &parsed, &mut options);
        let session = compile(runtime, rewritten.unwrap_or(parsed), &options, Placement::record)?;
        let refused = |source: ort::Error| load_failed(options.device, source.to_string());
        let placement = Placement::of(&session).map_err(refused)?;
        let pinned = match options.device {
            Device::Cpu => None,
            device => {
                check(&placement, device)?;
                info!(%device, %placement, "model is loaded");
                Some(Pinned::new(&session, &options, runtime.page_locks().cloned()).map_err(refused)?)
            }
        };
        let input_names: Vec<_> = session.inputs().iter().map(|input| input.name().to_owned()).collect();
        let given_at = (0..input_names.len()).collect();
        let output_names = session.outputs().iter().map(|output| output.name().to_owned()).collect();
        Ok(Self {
            pinned,
            placed: None,
            session,
            device: options.device,
            placement,
            input_names,
            given_at,
            output_names,
        })
    }

    /// A model that is run once or twice, loaded in the least time: as it is written, and if it has many
    /// nodes without the memory plan, so that all values of a run stay.
    pub fn quick(
        runtime: &Runtime,
        mut model: ModelProto,
        intra_threads: usize,
    ) -> Result<Self, BackendError> {
        if has_many_nodes(&model) {
            declare_every_value(&mut model);
        }
        let options = ExecOptions { intra_threads, optimize: Optimize::Off, ..ExecOptions::default() };
        Self::new(runtime, &model.to_bytes(), &options)
    }

    /// Has these float32 outputs written to `memory` from here on, unless an interrupt is in the way; by a
    /// GPU itself where the pages are locked, see [`Runtime::lock_pages`]. What lies there is theirs as
    /// long as the [`Outputs`] of a run are lent, and changes with the next run.
    ///
    /// # Errors
    /// E327 where a place is outside of the memory.
    pub fn place_outputs(
        &mut self,
        memory: Arc<dyn OutputMemory>,
        places: &[OutputPlace<'_>],
    ) -> Result<(), BackendError> {
        let placed = match &mut self.pinned {
            None => Placed::new(memory, places).map(|placed| self.placed = Some(placed)),
            Some(pinned) => pinned.place(memory, places),
        };
        placed.map_err(|source| run_failed(self.device, source.to_string()))
    }

    /// The session alone, for other bindings than those here.
    pub(super) fn into_session(self) -> Session {
        self.session
    }

    /// Which execution provider runs how much of the model.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Names of the inputs. Giving them to [`run`](Self::run) in the same order each time is fastest.
    pub fn input_names(&self) -> &[String] {
        &self.input_names
    }

    /// Names of the outputs.
    pub fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// Types of all inputs and outputs.
    pub fn types(&self) -> Types {
        outlet_types(self.session.inputs().iter().chain(self.session.outputs()))
    }

    /// Runs the model once on the calling thread. Every input has to be given, in any order. On the CPU
    /// nothing is copied; to a GPU everything is, by itself what lies in locked pages.
    pub fn run(&mut self, inputs: &[(&str, TensorView<'_>)]) -> Result<Outputs<'_>, BackendError> {
        self.run_changed(inputs, |_| true)
    }

    /// What ends a run of [`run_until`](Self::run_until) from another thread.
    pub fn interrupt(&self) -> Result<Interrupt, BackendError> {
        Interrupt::new()
    }

    /// The same, until somebody ends it.
    pub fn run_until<'r>(
        &'r mut self,
        inputs: &[(&str, TensorView<'_>)],
        interrupt: &'r Interrupt,
    ) -> Result<Outputs<'r>, BackendError> {
        self.run_with(inputs, |_| true, Some(&interrupt.0))
    }

    /// Runs the model once more: the inputs of which `changed` says no hold what they held in the run before,
    /// and need not be copied to a GPU again.
    pub fn run_changed(
        &mut self,
        inputs: &[(&str, TensorView<'_>)],
        changed: impl Fn(&str) -> bool,
    ) -> Result<Outputs<'_>, BackendError> {
        self.run_with(inputs, changed, None)
    }

    fn run_with<'r>(
        &'r mut self,
        inputs: &[(&str, TensorView<'_>)],
        changed: impl Fn(&str) -> bool,
        options: Option<&'r RunOptions>,
    ) -> Result<Outputs<'r>, BackendError> {
        let device = self.device;
        let failed = |source: ort::Error| run_failed(device, source.to_string());
        let mut bound: Vec<SessionInputValue<'_>> = Vec::with_capacity(self.input_names.len());
        for (index, wanted) in self.input_names.iter().enumerate() {
            let at = &mut self.given_at[index];
            if inputs.get(*at).is_none_or(|(name, _)| name != wanted) {
                *at = position_of(inputs, wanted)?;
            }
            let (name, view) = inputs[*at];
            match &mut self.pinned {
                None => bound.push(bind(view, name)?),
                Some(pinned) if changed(name) || !pinned.holds(index) => {
                    check_size(&view, name)?;
                    pinned.send(index, name, view).map_err(failed)?;
                }
                Some(_) => {}
            }
        }
        if inputs.len() != self.input_names.len() {
            return Err(self.surplus(inputs));
        }
        let values = match (&mut self.pinned, options) {
            (None, None) => match &self.placed {
                None => self.session.run(&bound[..]),
                Some(placed) => self.session.run_with_options(&bound[..], placed.options()),
            },
            (None, Some(options)) => self.session.run_with_options(&bound[..], options),
            (Some(pinned), options) => pinned.run(&mut self.session, options),
        };
        Ok(Outputs::new(values.map_err(failed)?))
    }

    pub(super) fn device(&self) -> Device {
        self.device
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// More inputs than the model has: one is unknown or given twice.
    fn surplus(&self, inputs: &[(&str, TensorView<'_>)]) -> BackendError {
        let unknown = inputs.iter().find(|(name, _)| !self.input_names.iter().any(|known| known == name));
        match unknown {
            Some((name, _)) => {
                BackendError::UnknownInput { name: (*name).to_owned(), known: self.input_names.join(", ") }
            }
            None => {
                let times = |wanted: &str| inputs.iter().filter(|(name, _)| *name == wanted).count();
                let name =
                    inputs.iter().map(|(name, _)| *name).find(|name| times(name) > 1).unwrap_or_default();
                BackendError::InputCount { name: name.to_owned(), times: times(name) }
            }
        }
    }
}

pub(super) fn find_input<'n, 'v>(
    inputs: &[(&'n str, TensorView<'v>)],
    wanted: &str,
) -> Result<(&'n str, TensorView<'v>), BackendError> {
    Ok(inputs[position_of(inputs, wanted)?])
}

fn position_of(inputs: &[(&str, TensorView<'_>)], wanted: &str) -> Result<usize, BackendError> {
    let missing = || BackendError::InputCount { name: wanted.to_owned(), times: 0 };
    inputs.iter().position(|(name, _)| *name == wanted).ok_or_else(missing)
}

#[cfg(test)]
pub(super) mod tests;
