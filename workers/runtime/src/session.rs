//! Loading a model into ONNX Runtime: the settings that every session of Syncline shares.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use syncline_kit::Device;
use syncline_onnx::ModelProto;

use crate::denylist;
use crate::device::register;
use crate::error::BackendError;
use crate::runtime::Runtime;
use crate::shortage::load_failed;
use crate::thread_pool::given_threads;

/// How much ONNX Runtime rewrites a graph when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Optimize {
    /// As it is written.
    Off,
    /// Constant folding and rewrites into standard operators.
    Basic,
    /// Everything, including fusions into ONNX Runtime's own operators, and convolutions on its blocked
    /// kernels.
    #[default]
    All,
}

/// How to run a model.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// Threads inside one operator, the calling thread included. Default 1: several workers share a machine
    /// best with one thread each. A model that adds up by index in an uncommon way gets one in any case.
    pub intra_threads: usize,
    /// Whether idle threads spin. Default no: two spinning threads each halve the throughput of workers that
    /// outnumber the cores.
    pub spin: bool,
    /// How much to rewrite the graph first. Default all.
    pub optimize: Optimize,
    /// What to compute on. Default the CPU.
    pub device: Device,
    /// Whether a GPU may round the factors of float32 products to the 10 bits of TensorFloat-32, for which
    /// it has faster units. Default no. Of no effect on the CPU.
    pub tf32: bool,
    /// Whether inputs have another shape in nearly every run. Default no. Of no effect on a GPU.
    pub varying_shapes: bool,
    /// Most bytes of a GPU's memory that the model may take for parameters, values and scratch space;
    /// `None`: all there are. Of no effect on the CPU.
    pub device_memory: Option<u64>,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            intra_threads: 1,
            spin: false,
            optimize: Optimize::All,
            device: Device::Cpu,
            tf32: false,
            varying_shapes: false,
            device_memory: None,
        }
    }
}

/// Largest tensor that constant folding may make, in bytes: a node of a few bytes can ask for gigabytes.
const MOST_FOLDED_BYTES: u32 = 1 << 28;

/// Whether ONNX Runtime plans the memory of a run (its "memory pattern"): the first run of a shape takes each
/// value by itself, and later ones take one block for all of them, beside what the first has left in the
/// arena. Each plan is kept as long as the session.
///
/// On a CPU and in one shape that saves a third of the time where nodes are many and small. In another shape
/// each time the plan takes longer than the step, and on a GPU, where a kernel's start hides what it saves,
/// it takes half of a memory that is dear.
fn plans_memory(options: &ExecOptions) -> bool {
    options.device == Device::Cpu && !options.varying_shapes
}

/// Loads a model that [`syncline_onnx::parse`] has checked, with the settings that every session of Syncline
/// shares. The library sees what was checked and nothing else of the file: a part that is not read could name
/// a file of this machine.
pub(super) fn compile(
    runtime: &Runtime,
    model: ModelProto,
    options: &ExecOptions,
    adjust: impl FnOnce(SessionBuilder) -> ort::Result<SessionBuilder>,
) -> Result<Session, BackendError> {
    let level = match options.optimize {
        Optimize::Off => GraphOptimizationLevel::Disable,
        Optimize::Basic => GraphOptimizationLevel::Level1,
        Optimize::All => GraphOptimizationLevel::All,
    };
    denylist::check(&model)?;
    let threads = given_threads(options.intra_threads);
    let onnx_bytes = model.to_bytes();
    drop(model);
    let failed = |reason: String| load_failed(options.device, reason);
    let refused = |source: ort::Error| failed(source.to_string());
    let builder = || -> ort::Result<SessionBuilder> {
        let builder = Session::builder(runtime.environment())?
            .with_optimization_level(level)?
            .with_intra_threads(threads)?
            .with_parallel_execution(false)?
            .with_memory_pattern(plans_memory(options))?
            .with_intra_op_spinning(options.spin)?
            .with_inter_op_spinning(options.spin)?
            .with_config_entry(
                "optimization.constant_folding_max_output_size_in_bytes",
                MOST_FOLDED_BYTES.to_string(),
            )?;
        adjust(builder)
    };
    let build = || {
        let mut builder = register(builder().map_err(refused)?, options)?;
        builder.commit_from_memory(&onnx_bytes).map_err(refused)
    };
    // `ort` panics at outputs of negative size, as an image smaller than the kernel over it has.
    catch_unwind(AssertUnwindSafe(build))
        .unwrap_or_else(|_| Err(failed("an output has a negative size".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, ptr};

    use ort::AsPointer;
    use ort::memory::Allocator;
    use syncline_onnx::{ElementType, GraphBuilder, TensorView};

    use super::*;
    use crate::executable::Executable;
    use crate::onnxruntime::runtime;
    use crate::pinned::device_memory;

    /// The sum of values that are all there at the same time, one for each of several nodes.
    fn many_values() -> Vec<u8> {
        let mut graph = GraphBuilder::new("values");
        let x = graph.input("x", ElementType::F32, &["rows".into(), 16.into()]);
        let w = graph.input("w", ElementType::F32, &[16.into(), 16.into()]);
        let mut values = vec![x];
        for _ in 0..12 {
            let last = &values[values.len() - 1];
            let next = graph.op("MatMul", &[last, &w], &[]);
            values.push(next);
        }
        let values: Vec<&str> = values.iter().map(|value| &**value).collect();
        let sum = graph.op("Sum", &values, &[]);
        graph.output(&sum);
        graph.finish().to_bytes()
    }

    /// How often the session has asked its arena for memory.
    #[expect(unsafe_code, reason = "ort wraps no call that tells what an allocator has done")]
    fn allocations(session: &Session) -> u64 {
        let arena = Allocator::new(session, device_memory(Device::Cpu).unwrap()).unwrap();
        let (api, mut stats) = (ort::api(), ptr::null_mut());
        // SAFETY: the allocator is alive, and the statistics are read before they are given back.
        unsafe {
            let status = (api.AllocatorGetStats)(arena.ptr(), &raw mut stats);
            ort::Error::result_from_status(status).unwrap();
            let count = (api.GetKeyValue)(stats, c"NumAllocs".as_ptr());
            assert!(!count.is_null());
            let count = CStr::from_ptr(count).to_str().unwrap().parse().unwrap();
            (api.ReleaseKeyValuePairs)(stats);
            count
        }
    }

    /// How many allocations a run takes after two of the same shape.
    fn allocations_of_a_later_run(options: &ExecOptions) -> u64 {
        let mut executable = Executable::new(&runtime(), &many_values(), options).unwrap();
        let (x, w) = ([0.5; 8 * 16], [0.25; 16 * 16]);
        let mut counts = Vec::new();
        for _ in 0..3 {
            let x = TensorView::F32 { shape: &[8, 16], data: &x };
            let w = TensorView::F32 { shape: &[16, 16], data: &w };
            drop(executable.run(&[("x", x), ("w", w)]).unwrap());
            counts.push(allocations(executable.session_mut()));
        }
        counts[2] - counts[1]
    }

    #[test]
    fn values_of_one_shape_share_a_block_on_a_cpu_and_values_of_varying_shapes_are_taken_one_by_one() {
        let fixed = allocations_of_a_later_run(&ExecOptions::default());
        let varying = ExecOptions { varying_shapes: true, ..ExecOptions::default() };
        let varying = allocations_of_a_later_run(&varying);
        // What the products take for themselves while they run is the same; twelve values share one block.
        assert!(fixed + 10 <= varying, "{fixed} and {varying} allocations");
    }

    #[test]
    fn memory_is_planned_for_models_of_one_shape_on_a_cpu_alone() {
        for (device, varying_shapes, want) in [
            (Device::Cpu, false, true),
            (Device::Cpu, true, false),
            (Device::Cuda(0), false, false),
            (Device::Cuda(0), true, false),
        ] {
            let options = ExecOptions { device, varying_shapes, ..ExecOptions::default() };
            assert_eq!(plans_memory(&options), want, "{device} {varying_shapes}");
        }
    }
}
