//! Whether the GPU of a process still computes for it.
//!
//! Errors of CUDA such as an illegal memory access, or a GPU that fell off the bus, stay: every later call of
//! the process fails as well, in all its sessions, and a process that is started anew heals that. So after
//! the failure of a device it is tried once, and the process ends if it does nothing more.

use std::sync::Arc;

use syncline_runtime::{BackendError, Device, Runtime};
use tokio::sync::watch;

use super::error::WorkerError;

/// Hears of what fails on a device. Clones are the same.
#[derive(Clone)]
pub(super) struct DeviceWatch(Arc<Shared>);

struct Shared {
    device: Device,
    /// Computes something, and says why the device does nothing more, if that is so.
    trial: Box<dyn Fn() -> Option<String> + Send + Sync>,
    loss: watch::Sender<Option<String>>,
}

impl DeviceWatch {
    pub(super) fn new(runtime: &Runtime, device: Device) -> Self {
        let runtime = runtime.clone();
        Self::with_trial(device, move || runtime.device_loss(device))
    }

    pub(super) fn with_trial(
        device: Device,
        trial: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared { device, trial: Box::new(trial), loss: watch::Sender::default() }))
    }

    /// Tries the device if that is how one fails that may be lost, and says whether it is. Blocks, for
    /// seconds at most.
    pub(super) fn look_at(&self, error: &BackendError) -> bool {
        let loss = if error.is_device_failure() { (self.0.trial)() } else { None };
        let is_lost = loss.is_some();
        if is_lost {
            self.0.loss.send_replace(loss);
        }
        is_lost
    }

    /// Returns once the device is lost.
    pub(super) async fn lost(&self) -> WorkerError {
        let mut loss = self.0.loss.subscribe();
        // The sender lives as long as this.
        let reason = loss.wait_for(Option::is_some).await.map(|loss| loss.clone());
        WorkerError::DeviceLost { device: self.0.device, reason: reason.ok().flatten().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    fn run_error(reason: &str) -> BackendError {
        BackendError::Run { reason: reason.into() }
    }

    #[test]
    fn a_device_is_tried_after_a_failure_of_its_own_alone() {
        let trials = Arc::<AtomicU32>::default();
        let count = trials.clone();
        let device = DeviceWatch::with_trial(Device::Cuda(0), move || {
            count.fetch_add(1, Relaxed);
            None
        });
        let full =
            BackendError::DeviceMemory { device: Device::Cuda(0), wanted: None, reason: String::new() };
        for (error, tried) in [
            (run_error("indices element out of data bounds"), 0),
            (full, 0),
            (run_error("CUDA failure 700: an illegal memory access"), 1),
            (run_error("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED"), 2),
        ] {
            assert!(!device.look_at(&error), "it computes");
            assert_eq!(trials.load(Relaxed), tried, "{error}");
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_the_loss_of_a_device_hears_of_it_before_and_afterwards() {
        let device = DeviceWatch::with_trial(Device::Cuda(1), || Some("CUDA failure 700".into()));
        let heard = device.clone();
        let (before, ()) = tokio::join!(heard.lost(), async {
            assert!(device.look_at(&run_error("CUDA failure 700: an illegal memory access")));
        });
        for loss in [before, device.lost().await] {
            assert_eq!(loss.code(), "E652");
            assert!(loss.to_string().starts_with("[E652] cuda:1 "), "{loss}");
            assert!(loss.to_string().ends_with("CUDA failure 700"), "{loss}");
        }
    }
}
