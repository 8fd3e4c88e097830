//! ONNX Runtime, found on this machine or fetched.

use syncline_kit::Device;
use syncline_runtime::Runtime;
use syncline_workers::isolation::ModelHost;

use crate::cli::{Failure, say};

/// Where models are loaded that come from elsewhere: in a child, with the ONNX Runtime that is found or fetched here.
pub(crate) fn models() -> Result<ModelHost, Failure> {
    Ok(ModelHost::ChildProcess(syncline_kit::for_device(Device::Cpu, &say)?.onnxruntime.path))
}

/// Finds ONNX Runtime for a device, fetching it if need be, loads it, and tries it there.
pub(crate) fn load_runtime_for(device: Device) -> Result<Runtime, Failure> {
    let parts = syncline_kit::for_device(device, &say)?;
    Ok(Runtime::load_for(device, &parts)?)
}
