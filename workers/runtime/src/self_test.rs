//! Proof that a device computes, before anything relies on it.

use syncline_kit::{Device, DeviceParts};
use syncline_onnx::{ElementType, GraphBuilder};

use crate::cuda_calls::CudaCalls;
use crate::device::refused;
use crate::driver;
use crate::error::BackendError;
use crate::executable::Executable;
use crate::page_locks::PageLocks;
use crate::runtime::Runtime;
use crate::session::ExecOptions;
use crate::shortage::is_device_loss;
use syncline_onnx::TensorView;

impl Runtime {
    /// Loads all that `device` needs and proves that models are computed there, not elsewhere. Takes seconds
    /// for a GPU.
    #[doc(hidden)]
    pub fn load_for(device: Device, parts: &DeviceParts) -> Result<Self, BackendError> {
        driver::check(device, &parts.preload)?;
        for path in &parts.preload {
            // Whoever asks for a library by its name from now on gets this one, wherever it lies.
            ort::util::preload_dylib(path)
                .map_err(|source| BackendError::Preload { path: path.clone(), reason: source.to_string() })?;
        }
        let runtime = Self::load(&parts.onnxruntime.path)?;
        verify(&runtime, device)?;
        let page_locks = match device {
            Device::Cpu => None,
            Device::Cuda(gpu) => CudaCalls::find(&parts.preload).map(|calls| PageLocks::new(calls, gpu)),
        };
        Ok(runtime.tried_on(device, page_locks))
    }

    /// Why a device computes nothing more for this process, if that is so; it is tried with a small product.
    /// An error of CUDA such as an illegal memory access stays until the process ends. One that has no
    /// memory left is not lost.
    pub fn device_loss(&self, device: Device) -> Option<String> {
        let error = verify(self, device).err()?.to_string();
        is_device_loss(&error).then_some(error)
    }
}

/// Computes a product of two matrices on `device` and sees that it was computed there, and correctly.
///
/// The first use of a GPU by a process takes seconds.
fn verify(runtime: &Runtime, device: Device) -> Result<(), BackendError> {
    let mut graph = GraphBuilder::new("probe");
    let a = graph.input("a", ElementType::F32, &["rows".into(), 2.into()]);
    let b = graph.input("b", ElementType::F32, &[2.into(), 1.into()]);
    graph.named("product", "MatMul", &[&a, &b], &[]);
    graph.output("product");
    let options = ExecOptions { device, ..ExecOptions::default() };
    let run = || -> Result<Vec<f32>, BackendError> {
        let mut probe = Executable::new(runtime, &graph.finish().to_bytes(), &options)?;
        let a = TensorView::F32 { shape: &[2, 2], data: &[1.0, 2.0, 3.0, 4.0] };
        let b = TensorView::F32 { shape: &[2, 1], data: &[5.0, 6.0] };
        Ok(probe.run(&[("a", a), ("b", b)])?.f32("product")?.to_vec())
    };
    match run() {
        Ok(product) if product == [17.0, 39.0] => Ok(()),
        Ok(product) => Err(refused(device, format!("it multiplies wrongly: {product:?}"))),
        Err(error @ BackendError::Device { .. }) => Err(error),
        Err(BackendError::Compile { reason } | BackendError::Run { reason }) => Err(refused(device, reason)),
        Err(error) => Err(refused(device, error.to_string())),
    }
}
