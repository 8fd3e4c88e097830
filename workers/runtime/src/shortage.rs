//! What is wrong with the machine and not with the model, told apart from everything else that can fail in
//! loading and in a run: a device, the CPU among them, that has no memory left, or does nothing any more.

use syncline_kit::Device;

use crate::error::BackendError;

/// How ONNX Runtime, the C++ library, CUDA, cuDNN and cuBLAS say that there is no memory.
const SIGNS: [&str; 7] = [
    OF_LIMIT,
    OF_DEVICE,
    "out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    // Of a device or a host, as cuDNN 9 says it.
    "_ALLOCATION_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
];
/// In front of the bytes that were asked for where the arena of a session has a limit.
const OF_LIMIT: &str = "is smaller than requested bytes of ";
/// The same where the device refused.
const OF_DEVICE: &str = "Failed to allocate memory for requested buffer of size ";

/// How CUDA itself says that it failed. Most of that stays: every later call of the process fails as well.
const OF_CUDA: &str = "CUDA failure";
/// What a device says that fails whatever it is asked; `FE` is the frontend of cuDNN, through which
/// convolutions go.
const DEVICE_FAILURES: [&str; 6] =
    [OF_CUDA, "CUDNN failure", "CUDNN_FE failure", "CUBLAS failure", "CURAND failure", "CUFFT failure"];

/// What a failed run on `device` is; `reason` in ONNX Runtime's words.
pub(super) fn run_failed(device: Device, reason: String) -> BackendError {
    match is_shortage(&reason) {
        true => BackendError::DeviceMemory { device, wanted: wanted(&reason), reason },
        false => BackendError::Run { reason },
    }
}

/// What a model is that could not be loaded onto `device`.
pub(super) fn load_failed(device: Device, reason: String) -> BackendError {
    match is_shortage(&reason) {
        true => BackendError::DeviceMemory { device, wanted: wanted(&reason), reason },
        false => BackendError::Compile { reason },
    }
}

fn is_shortage(reason: &str) -> bool {
    SIGNS.iter().any(|sign| reason.contains(sign))
}

/// Whether these words are those of a device that failed, and not for want of memory.
pub(super) fn is_device_failure(reason: &str) -> bool {
    DEVICE_FAILURES.iter().any(|sign| reason.contains(sign)) && !is_shortage(reason)
}

/// Whether these words of a trial say that a device is lost to this process. The libraries above CUDA fail in
/// the same words where memory is short, or where they are damaged.
pub(super) fn is_device_loss(reason: &str) -> bool {
    reason.contains(OF_CUDA) && !is_shortage(reason)
}

/// Whether these words of a failed run are about the machine: its memory, or a device that is broken. The
/// same may succeed on another one.
pub(super) fn is_of_the_machine(reason: &str) -> bool {
    DEVICE_FAILURES.iter().chain(&SIGNS).any(|sign| reason.contains(sign))
}

/// Bytes that were asked for, if the text says so.
fn wanted(reason: &str) -> Option<u64> {
    let behind = |sign: &str| reason.split_once(sign).map(|(_, rest)| rest);
    let rest = behind(OF_LIMIT).or_else(|| behind(OF_DEVICE))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_memory_is_an_error_that_says_how_much_was_asked_for() {
        let arena = "Non-zero status code returned while running Conv node. Name:'conv1' Status Message: \
                     bfc_arena.cc:376 AllocateRawInternal";
        #[rustfmt::skip]
        let cases = [
            (Device::Cuda(1), format!("{arena} Available memory of 0 is smaller than requested bytes of 97517568\n"),
             "E498", "for another 97517568 bytes"),
            (Device::Cuda(1), format!("{arena} Failed to allocate memory for requested buffer of size 2081488896"),
             "E498", "for another 2081488896 bytes"),
            (Device::Cuda(0), "CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc".to_owned(),
             "E498", "[E498] cuda:0 has no memory left: CUDA failure 2"),
            (Device::Cuda(0), "CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED".to_owned(), "E498", "has no memory left"),
            (Device::Cuda(0), "CUDNN_FE failure 11: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0".to_owned(),
             "E498", "has no memory left"),
            (Device::Cuda(0), "CUDA failure 700: an illegal memory access".to_owned(), "E327", "failed to run"),
            (Device::Cuda(0), "CUDNN_FE failure 11: CUDNN_BACKEND_API_FAILED ; GPU=0".to_owned(), "E327", "failed to run"),
            (Device::Cuda(0), "CURAND failure 201: ; GPU=0".to_owned(), "E327", "failed to run"),
            (Device::Cuda(0), "CUFFT failure 5: ; GPU=0".to_owned(), "E327", "failed to run"),
            (Device::Cpu, format!("{arena} Failed to allocate memory for requested buffer of size 8"),
             "E498", "[E498] cpu has no memory left for another 8 bytes"),
            (Device::Cpu, "Exception during initialization: std::bad_alloc".to_owned(), "E498", "cpu has no memory left"),
        ];
        for (device, reason, code, text) in cases {
            let error = run_failed(device, reason.clone());
            assert_eq!(error.code(), code, "{reason}");
            assert!(error.to_string().contains(text), "{error}");
            let advice = if device == Device::Cpu { "fewer workers on the machine" } else { "--gpu-memory" };
            assert_eq!(error.hint().is_some_and(|hint| hint.contains(advice)), code == "E498");
            assert!(error.may_be_the_machine(), "{error}");
        }
        let wrong =
            "Non-zero status code returned while running Gather node: indices element out of data bounds";
        assert!(!run_failed(Device::Cuda(0), wrong.to_owned()).may_be_the_machine());
    }

    #[test]
    fn a_model_for_which_a_device_has_no_memory_is_not_one_that_onnx_runtime_refuses() {
        let arena = "Exception during initialization: bfc_arena.cc:376 AllocateRawInternal \
                     Failed to allocate memory for requested buffer of size 4096";
        for device in [Device::Cuda(0), Device::Cpu] {
            assert_eq!(load_failed(device, arena.to_owned()).code(), "E498");
        }
        let wrong = "Load model failed: Unrecognized attribute: scale for operator Relu";
        assert_eq!(load_failed(Device::Cuda(0), wrong.to_owned()).code(), "E323");
    }

    #[test]
    fn a_device_is_lost_by_the_words_of_cuda_alone() {
        #[rustfmt::skip]
        let cases = [
            ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", true,  true),
            ("CUDA failure 999: unknown error ; GPU=0",                            true,  true),
            ("CUDA failure 2: out of memory ; GPU=0 ; expr=cudaMalloc",            false, false),
            ("CUBLAS failure 1: CUBLAS_STATUS_NOT_INITIALIZED ; GPU=0",            true,  false),
            ("CUDNN_FE failure 8: HEURISTIC_QUERY_FAILED ; GPU=0",                 true,  false),
            ("indices element out of data bounds",                                 false, false),
        ];
        for (reason, failure, loss) in cases {
            assert_eq!((is_device_failure(reason), is_device_loss(reason)), (failure, loss), "{reason}");
        }
    }
}
