//! The bare loop: a model run again and again on inputs that stay where it reads them. Nothing that has to
//! bring new inputs and take outputs away can be faster.

use std::time::{Duration, Instant};

use syncline_kit::Device;
use syncline_onnx::TensorView;

use crate::error::BackendError;
use crate::executable::Executable;
use crate::pinned::device_memory;
use crate::shortage::run_failed;
use crate::view::bind;

impl Executable {
    /// Runs the model `times` times and says how long each run took. On a GPU the inputs are brought there
    /// before the first run, and the outputs stay there.
    ///
    /// # Errors
    /// As those of [`run`](Self::run).
    pub fn bare_loop(
        &mut self,
        inputs: &[(&str, TensorView<'_>)],
        times: usize,
    ) -> Result<Vec<Duration>, BackendError> {
        let device = self.device();
        if device == Device::Cpu {
            let timed = |_| {
                let begun = Instant::now();
                self.run(inputs).map(|_| begun.elapsed())
            };
            return (0..times).map(timed).collect();
        }
        let failed = |source: ort::Error| run_failed(device, source.to_string());
        let session = self.session_mut();
        let mut binding = session.create_binding().map_err(failed)?;
        for &(name, view) in inputs {
            let value = bind(view, name)?;
            // Brought to the device here, once.
            binding.bind_input(name, &*value).map_err(failed)?;
        }
        let there = device_memory(device).map_err(failed)?;
        for output in session.outputs() {
            binding.bind_output_to_device(output.name(), &there).map_err(failed)?;
        }
        binding.synchronize_inputs().map_err(failed)?;
        let timed = |_| {
            let begun = Instant::now();
            session.run_binding(&binding).map_err(failed)?;
            binding.synchronize_outputs().map_err(failed)?;
            Ok(begun.elapsed())
        };
        (0..times).map(timed).collect()
    }
}
