//! Where a model runs: the execution provider of a device, and proof that it is really used.
//!
//! ONNX Runtime falls back to the CPU silently: when a provider cannot be loaded, and node by node when a
//! provider has no kernel. Here neither is silent: a provider that cannot be registered is an error, and so
//! is a model of which the provider took no node at all. That single nodes run on the CPU is as it should be,
//! the arithmetic of shapes above all; [`Placement`] counts them.

use ort::ep::{ArbitrarilyConfigurableExecutionProvider, CUDA};
use ort::session::builder::SessionBuilder;
use syncline_kit::Device;

use crate::error::BackendError;
use crate::placement::Placement;
use crate::session::ExecOptions;

/// How ONNX Runtime names the provider of a device.
pub(super) fn provider(device: Device) -> &'static str {
    match device {
        Device::Cpu => "CPUExecutionProvider",
        Device::Cuda(_) => "CUDAExecutionProvider",
    }
}

/// Adds the provider of the device that `options` name; the CPU's is always there.
pub(super) fn register(
    builder: SessionBuilder,
    options: &ExecOptions,
) -> Result<SessionBuilder, BackendError> {
    let Device::Cuda(index) = options.device else { return Ok(builder) };
    let cuda = cuda_options(index, options)
        .into_iter()
        .fold(CUDA::default(), |cuda, (key, value)| cuda.with_arbitrary_config(key, value));
    builder
        .with_execution_providers([cuda.build().error_on_failure()])
        .map_err(|source| refused(options.device, source.to_string()))
}

/// What differs from ONNX Runtime's defaults, as its documentation of the CUDA execution provider spells it.
fn cuda_options(index: u8, options: &ExecOptions) -> Vec<(&'static str, String)> {
    let limit = options.device_memory.map(|bytes| ("gpu_mem_limit", bytes.to_string()));
    let always = [
        ("device_id", index.to_string()),
        // By default every algorithm is timed for every new shape, and a policy may change the batch at any
        // barrier.
        ("cudnn_conv_algo_search", "HEURISTIC".to_owned()),
        // The default doubles; workers may share a GPU.
        ("arena_extend_strategy", "kSameAsRequested".to_owned()),
        // Ten bits of mantissa are all that factors keep: only for a job that says so.
        ("use_tf32", u8::from(options.tf32).to_string()),
    ];
    always.into_iter().chain(limit).collect()
}

/// Refuses a model of which the provider of `device` took nothing.
pub(super) fn check(placement: &Placement, device: Device) -> Result<(), BackendError> {
    match placement.nodes(provider(device)) {
        0 => Err(BackendError::Unplaced { device, placement: placement.to_string() }),
        _ => Ok(()),
    }
}

pub(super) fn refused(device: Device, reason: impl AsRef<str>) -> BackendError {
    // ONNX Runtime ends lines for a log.
    BackendError::Device { device, reason: reason.as_ref().trim_end_matches([' ', ';', '\n']).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_gpu_name_its_index_and_keep_single_precision_unless_told_otherwise() {
        for (tf32, want) in [(false, "0"), (true, "1")] {
            let options = cuda_options(3, &ExecOptions { tf32, ..ExecOptions::default() });
            assert!(options.contains(&("device_id", "3".to_owned())), "{options:?}");
            assert!(options.contains(&("use_tf32", want.to_owned())), "{options:?}");
        }
    }

    #[test]
    fn the_memory_of_a_gpu_has_the_limit_that_was_asked_for_or_none() {
        let limit = |device_memory| {
            let options = cuda_options(0, &ExecOptions { device_memory, ..ExecOptions::default() });
            options.into_iter().find(|(key, _)| *key == "gpu_mem_limit").map(|(_, value)| value)
        };
        assert_eq!(limit(Some(4 << 30)).as_deref(), Some("4294967296"));
        assert_eq!(limit(None), None);
    }

    #[test]
    fn a_model_of_which_the_device_took_nothing_is_refused() {
        let placement = |nodes: &[(&str, usize)]| Placement::from_counts(nodes);
        #[rustfmt::skip]
        let cases = [
            (Device::Cuda(0), placement(&[("CUDAExecutionProvider", 9), ("CPUExecutionProvider", 2)]), None),
            (Device::Cuda(0), placement(&[("CPUExecutionProvider", 2)]),
             Some("[E495] no part of the model runs on cuda:0: 2 nodes on CPUExecutionProvider")),
            (Device::Cuda(1), placement(&[]), Some("[E495] no part of the model runs on cuda:1: no nodes")),
            (Device::Cpu,     placement(&[("CPUExecutionProvider", 2)]), None),
        ];
        for (device, placement, want) in cases {
            let error = check(&placement, device).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), want);
        }
    }
}
