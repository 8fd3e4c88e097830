//! One model, ready to run on one thread.

use std::sync::Arc;

use ort::session::{RunOptions, Session, SessionInputValue};
use syncline_kit::Device;
use syncline_onnx::proto::NodeProto;
use syncline_onnx::{ModelProto, TensorView, Types, declare_every_value};
use tracing::info;

use crate::device::check;
use crate::error::BackendError;
use crate::infer::outlet_types;
use crate::interrupt::Interrupt;
use crate::nchwc;
use crate::outputs::Outputs;
use crate::pinned::Pinned;
use crate::placed::{OutputMemory, OutputPlace, Placed};
use crate::placement::Placement;
use crate::runtime::Runtime;
use crate::scatter_add::{is_scatter_add, sequential_scatter_adds};
use crate::session::{ExecOptions, Optimize, compile};
use crate::view::{bind, check_size};

/// Where planning the memory begins to take longer than a run on a small batch.
const MANY_NODES: usize = 2500;

/// A model loaded into ONNX Runtime. Belongs to one executor; make one per thread.
#[derive(Debug)]
pub struct Executable {
    /// Before the session, which must outlive it. `None` on the CPU, which reads inputs where they are.
    pinned: Option<Pinned>,
    /// Outputs that are written where the caller wants them.
    placed: Option<Placed>,
    session: Session,
    placement: Placement,
    input_names: Vec<String>,
    output_names: Vec<String>,
}

impl Executable {
    /// Checks the bytes (external data is refused here as well) and compiles them. Milliseconds to seconds.
    ///
    /// With several threads, sums of rows by index are written so that threads cannot disturb them; a model with sums
    /// by index of another kind runs on one thread, see `scatter_add`.
    pub fn new(runtime: &Runtime, onnx_bytes: &[u8], options: &ExecOptions) -> Result<Self, BackendError> {
        let parsed = syncline_onnx::parse(onnx_bytes)?;
        let mut options = options.clone();
        let mut rewritten = None;
        if options.intra_threads > 1 && nodes(&parsed).any(is_scatter_add) {
            rewritten = sequential_scatter_adds(&parsed);
            if nodes(rewritten.as_ref().unwrap_or(&parsed)).any(is_scatter_add) {
                options.intra_threads = 1;
            }
        }
        if (options.optimize, options.device) == (Optimize::All, Device::Cpu)
            && let Some(lanes) = nchwc::lanes(runtime)
        {
            rewritten = nchwc::arrange(rewritten.as_ref().unwrap_or(&parsed), lanes).or(rewritten);
        }
        let session = match &rewritten {
            Some(model) => compile(runtime, model, &model.to_bytes(), &options, Placement::record)?,
            None => compile(runtime, &parsed, onnx_bytes, &options, Placement::record)?,
        };
        let refused = |source: ort::Error| BackendError::Compile { reason: source.to_string() };
        let placement = Placement::of(&session).map_err(refused)?;
        let pinned = match options.device {
            Device::Cpu => None,
            device => {
                check(&placement, device)?;
                info!(%device, %placement, "model is loaded");
                Some(Pinned::new(&session, device).map_err(refused)?)
            }
        };
        let input_names = session.inputs().iter().map(|input| input.name().to_owned()).collect();
        let output_names = session.outputs().iter().map(|output| output.name().to_owned()).collect();
        Ok(Self { pinned, placed: None, session, placement, input_names, output_names })
    }

    /// A model that is run once or twice, loaded in the least time: as it is written, and if it has many nodes without
    /// the memory plan, so that all values of a run stay.
    pub fn quick(
        runtime: &Runtime,
        mut model: ModelProto,
        intra_threads: usize,
    ) -> Result<Self, BackendError> {
        if nodes(&model).nth(MANY_NODES).is_some() {
            declare_every_value(&mut model);
        }
        let options = ExecOptions { intra_threads, optimize: Optimize::Off, ..ExecOptions::default() };
        Self::new(runtime, &model.to_bytes(), &options)
    }

    /// Has these float32 outputs written to `memory` from here on, unless a device or an interrupt is in the way. What lies
    /// there is theirs as long as the [`Outputs`] of a run are lent, and changes with the next run.
    ///
    /// # Errors
    /// E327 where a place is outside of the memory.
    pub fn place_outputs(
        &mut self,
        memory: Arc<dyn OutputMemory>,
        places: &[OutputPlace<'_>],
    ) -> Result<(), BackendError> {
        let placed = Placed::new(memory, places);
        self.placed = Some(placed.map_err(|source| run_error(&source))?);
        Ok(())
    }

    /// Which execution provider runs how much of the model.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Names of the inputs. Giving them to [`run`](Self::run) in this order is fastest.
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

    /// Runs the model once on the calling thread. Every input has to be given, in any order. On the CPU nothing is
    /// copied; to a GPU everything is.
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

    /// Runs the model once more: the inputs of which `changed` says no hold what they held in the run before, and need
    /// not be copied to a GPU again.
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
        let mut bound: Vec<SessionInputValue<'_>> = Vec::with_capacity(self.input_names.len());
        for (index, wanted) in self.input_names.iter().enumerate() {
            let (name, view) = match inputs.get(index) {
                Some(given) if given.0 == wanted => *given,
                _ => find_input(inputs, wanted)?,
            };
            match &mut self.pinned {
                None => bound.push(bind(view, name)?),
                Some(pinned) if changed(name) || !pinned.holds(index) => {
                    check_size(&view, name)?;
                    pinned.send(index, name, view).map_err(|source| run_error(&source))?;
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
        Ok(Outputs::new(values.map_err(|source| run_error(&source))?))
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

fn find_input<'n, 'v>(
    inputs: &[(&'n str, TensorView<'v>)],
    wanted: &str,
) -> Result<(&'n str, TensorView<'v>), BackendError> {
    let missing = || BackendError::InputCount { name: wanted.to_owned(), times: 0 };
    inputs.iter().find(|(name, _)| *name == wanted).copied().ok_or_else(missing)
}

/// Every node of a model and of its functions.
fn nodes(model: &ModelProto) -> impl Iterator<Item = &NodeProto> {
    let functions = model.functions.iter().flat_map(|function| &function.node);
    model.graph.iter().flat_map(|graph| &graph.node).chain(functions)
}

fn run_error(source: &ort::Error) -> BackendError {
    BackendError::Run { reason: source.to_string() }
}

#[cfg(test)]
mod tests {
    use std::{ptr::NonNull, sync::OnceLock};

    use ort::memory::MemoryType;

    use super::super::pinned::host_memory;
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder};

    fn runtime() -> Runtime {
        static LOADED: OnceLock<Runtime> = OnceLock::new();
        let load =
            || Runtime::load(&syncline_kit::onnxruntime(&|line| eprintln!("{line}")).unwrap().path).unwrap();
        LOADED.get_or_init(load).clone()
    }

    /// shape = Shape(a), count = Size(a), total = a + b.
    fn adder() -> Vec<u8> {
        let mut graph = GraphBuilder::new("adder");
        let a = graph.input("a", ElementType::F32, &["rows".into(), 2.into()]);
        let b = graph.input("b", ElementType::F32, &[2.into()]);
        graph.named("shape", "Shape", &[&a], &[]);
        graph.named("total", "Add", &[&a, &b], &[]);
        graph.output("shape");
        graph.output("total");
        graph.finish().to_bytes()
    }

    /// As on a device, in ordinary memory.
    fn pinned() -> Executable {
        let mut executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
        executable.pinned = Some(Pinned::new(&executable.session, Device::Cpu).unwrap());
        executable
    }

    fn total(
        executable: &mut Executable,
        a: &[f32],
        b: &[f32],
        changed: &[&str],
    ) -> Result<Vec<f32>, BackendError> {
        let rows = [a.len() / 2, 2];
        let a = TensorView::F32 { shape: &rows, data: a };
        let b = TensorView::F32 { shape: &[2], data: b };
        let outputs = executable.run_changed(&[("b", b), ("a", a)], |name| changed.contains(&name))?;
        assert_eq!(outputs.i64("shape")?, rows.map(|n| n as i64));
        assert_eq!(outputs.shape("total")?, rows);
        assert_eq!(outputs.f32_at(1)?, outputs.f32("total")?);
        Ok(outputs.f32("total")?.to_vec())
    }

    #[test]
    fn a_device_gets_what_is_new_and_keeps_the_rest() {
        let mut on_device = pinned();
        #[rustfmt::skip]
        let runs = [
            (vec![1.0, 2.0],           [10.0, 20.0], vec!["a", "b"], vec![11.0, 22.0]),
            (vec![3.0, 4.0],           [50.0, 60.0], vec!["a"],      vec![13.0, 24.0]),
            (vec![1.0, 2.0, 3.0, 4.0], [50.0, 60.0], vec!["a", "b"], vec![51.0, 62.0, 53.0, 64.0]),
            (vec![9.0, 9.0, 9.0, 9.0], [50.0, 60.0], vec![],         vec![51.0, 62.0, 53.0, 64.0]),
            (vec![5.0, 6.0],           [50.0, 60.0], vec!["a"],      vec![55.0, 66.0]),
        ];
        for (a, b, changed, want) in runs {
            assert_eq!(total(&mut on_device, &a, &b, &changed).unwrap(), want);
        }
    }

    #[test]
    fn the_first_run_sends_everything_whatever_is_said() {
        assert_eq!(total(&mut pinned(), &[1.0, 2.0], &[3.0, 4.0], &[]).unwrap(), [4.0, 6.0]);
    }

    #[test]
    fn a_device_gets_no_tensor_whose_shape_is_wrong() {
        let short = TensorView::F32 { shape: &[3, 2], data: &[1.0] };
        let b = TensorView::F32 { shape: &[2], data: &[1.0, 2.0] };
        let error = pinned().run(&[("a", short), ("b", b)]).unwrap_err();
        assert_eq!(error.code(), "E326", "{error}");
        let wide = TensorView::F32 { shape: &[1, 3], data: &[1.0; 3] };
        let error = pinned().run(&[("a", wide), ("b", b)]).unwrap_err();
        assert_eq!(error.code(), "E327", "{error}");
    }

    #[test]
    fn bytes_and_truth_values_go_to_a_device_and_come_back() {
        let mut graph = GraphBuilder::new("masked");
        let (pixels, mask) = (
            graph.input("pixels", ElementType::U8, &["n".into()]),
            graph.input("mask", ElementType::Bool, &["n".into()]),
        );
        for (name, op, input) in [("same", "Identity", &pixels), ("rest", "Not", &mask)] {
            let output = graph.named(name, op, &[input], &[]);
            graph.output(&output);
        }
        let onnx = graph.finish().to_bytes();
        let mut on_cpu = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
        let mut on_device = Executable::new(&runtime(), &onnx, &ExecOptions::default()).unwrap();
        on_device.pinned = Some(Pinned::new(&on_device.session, Device::Cpu).unwrap());
        for executable in [&mut on_cpu, &mut on_device] {
            let pixels = TensorView::U8 { shape: &[3], data: &[0, 7, 255] };
            let mask = TensorView::Bool { shape: &[3], data: &[true, false, true] };
            let outputs = executable.run(&[("pixels", pixels), ("mask", mask)]).unwrap();
            let (mut shape, mut other) = (Vec::new(), Vec::new());
            let same = outputs.view_at(0, &mut shape).unwrap();
            assert!(matches!(same, TensorView::U8 { shape: [3], data: [0, 7, 255] }), "{same:?}");
            let rest = outputs.view_at(1, &mut other).unwrap();
            assert!(matches!(rest, TensorView::Bool { data: [false, true, false], .. }), "{rest:?}");
            assert_eq!(outputs.view_at(2, &mut Vec::new()).unwrap_err().code(), "E328");
        }
    }

    /// Floats that stay where they are.
    #[derive(Debug)]
    struct Fixed(NonNull<f32>, usize);

    // SAFETY: made of leaked memory, which only the executable of one test writes.
    #[expect(unsafe_code, reason = "a place for outputs")]
    unsafe impl Send for Fixed {}
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "a place for outputs")]
    unsafe impl Sync for Fixed {}
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "a place for outputs")]
    unsafe impl OutputMemory for Fixed {
        fn base(&self) -> NonNull<f32> {
            self.0
        }

        fn elements(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn an_output_is_written_where_it_was_placed_in_every_run_and_the_others_as_before() {
        let floats = Box::leak(vec![7.0f32; 8].into_boxed_slice());
        let memory = Arc::new(Fixed(NonNull::from(&mut floats[0]), 8));
        let mut executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
        let beyond = [OutputPlace { name: "total", shape: &[2, 2], start: 5 }];
        assert_eq!(executable.place_outputs(memory.clone(), &beyond).unwrap_err().code(), "E327");
        let place = [OutputPlace { name: "total", shape: &[2, 2], start: 3 }];
        executable.place_outputs(memory.clone(), &place).unwrap();
        for step in [0.0, 10.0, 20.0] {
            let a = TensorView::F32 { shape: &[2, 2], data: &[1.0, 2.0, 3.0, 4.0] };
            let b = TensorView::F32 { shape: &[2], data: &[step, 0.5] };
            let outputs = executable.run(&[("a", a), ("b", b)]).unwrap();
            let total = outputs.f32("total").unwrap();
            assert_eq!(
                (total, total.as_ptr()),
                (&[1.0 + step, 2.5, 3.0 + step, 4.5][..], memory.0.as_ptr().wrapping_add(3).cast_const())
            );
            assert_eq!(outputs.i64("shape").unwrap(), [2, 2]);
        }
        let a = TensorView::F32 { shape: &[1, 2], data: &[1.0, 2.0] };
        let b = TensorView::F32 { shape: &[2], data: &[0.0, 0.0] };
        assert_eq!(executable.run(&[("a", a), ("b", b)]).unwrap_err().code(), "E327", "another shape");
    }

    #[test]
    fn this_process_can_read_what_a_device_writes() {
        let _runtime = runtime();
        for device in [Device::Cpu, Device::Cuda(1)] {
            for ty in [MemoryType::CPUInput, MemoryType::CPUOutput] {
                assert!(host_memory(device, ty).unwrap().is_cpu_accessible(), "{device} {ty:?}");
            }
        }
    }

    #[test]
    fn every_node_is_placed_and_counted() {
        let executable = Executable::new(&runtime(), &adder(), &ExecOptions::default()).unwrap();
        assert_eq!(executable.placement().to_string(), "2 nodes on CPUExecutionProvider");
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_refused() {
        let options = ExecOptions { device: Device::Cuda(255), ..ExecOptions::default() };
        let error = Executable::new(&runtime(), &adder(), &options).unwrap_err();
        assert_eq!(error.code(), "E494", "{error}");
        assert!(error.to_string().starts_with("[E494] cannot compute on cuda:255: "), "{error}");
    }
}
