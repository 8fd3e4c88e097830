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

/// How much ONNX Runtime rewrites a graph when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Optimize {
    /// As it is written.
    Off,
    /// Constant folding and rewrites into standard operators.
    Basic,
    /// Everything, including fusions into ONNX Runtime's own operators, and convolutions on its blocked kernels.
    #[default]
    All,
}

/// How to run a model.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// Threads inside one operator, the calling thread included. Default 1: several workers share a machine best with
    /// one thread each. A model that adds up by index in an uncommon way gets one in any case.
    pub intra_threads: usize,
    /// Whether idle threads spin. Default no: two spinning threads each halve the throughput of workers that
    /// outnumber the cores.
    pub spin: bool,
    /// How much to rewrite the graph first. Default all.
    pub optimize: Optimize,
    /// What to compute on. Default the CPU.
    pub device: Device,
    /// Whether a GPU may round the factors of float32 products to the 10 bits of TensorFloat-32, for which it has faster
    /// units. Default no. Of no effect on the CPU.
    pub tf32: bool,
    /// Most bytes of a GPU's memory that the model may take for parameters, values and scratch space; `None`: all there
    /// are. Of no effect on the CPU.
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
            device_memory: None,
        }
    }
}

/// Largest tensor that constant folding may make, in bytes: a node of a few bytes can ask for gigabytes.
const MOST_FOLDED_BYTES: u32 = 1 << 28;

/// Loads a model that [`syncline_onnx::parse`] has checked, with the settings that every session of Syncline shares. The library
/// sees what was checked and nothing else of the file: a part that is not read could name a file of this machine.
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
    let onnx_bytes = model.to_bytes();
    drop(model);
    let failed = |reason: String| load_failed(options.device, reason);
    let refused = |source: ort::Error| failed(source.to_string());
    let builder = || -> ort::Result<SessionBuilder> {
        let builder = Session::builder(runtime.environment())?
            .with_optimization_level(level)?
            .with_intra_threads(options.intra_threads.max(1))?
            .with_parallel_execution(false)?
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
