//! ONNX Runtime, found on this machine or fetched.

use syncline_kit::Device;
use syncline_workers::isolation::ModelHost;

use crate::cli::{Failure, say};

/// Where models are loaded that come from elsewhere: in a child, with the ONNX Runtime that is found or
/// fetched here.
pub(crate) fn models() -> Result<ModelHost, Failure> {
    Ok(ModelHost::ChildProcess(syncline_kit::for_device(Device::Cpu, &say)?.onnxruntime.path))
}
