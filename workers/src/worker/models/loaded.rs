//! A model, ready to run on tensors.

use syncline_onnx::{Dim, TensorType, TensorView};
use syncline_runtime::{ExecOptions, Executable, Runtime};

use super::fault::ModelFault;
use crate::functions::{StopFlag, Tensor};

/// A session of ONNX Runtime, and what its inputs take.
pub(super) struct LoadedModel {
    executable: Executable,
    /// In order; without a type where the model says none.
    inputs: Vec<(String, Option<TensorType>)>,
}

impl LoadedModel {
    /// Loads a model, which takes milliseconds to seconds.
    pub(super) fn load(runtime: &Runtime, onnx: &[u8], exec: &ExecOptions) -> Result<Self, ModelFault> {
        let executable = Executable::new(runtime, onnx, exec)?;
        let types = executable.types();
        let names = executable.input_names().iter();
        let inputs = names.map(|name| (name.clone(), types.get(name).cloned())).collect();
        Ok(Self { executable, inputs })
    }

    /// Runs it once, on inputs in its order, unless it is to stop.
    pub(super) fn run(&mut self, inputs: &[Tensor], stop: &StopFlag) -> Result<Vec<Tensor>, ModelFault> {
        let Self { executable, inputs: wanted } = self;
        if inputs.len() != wanted.len() {
            let names = wanted.iter().map(|(name, _)| name.clone()).collect();
            return Err(ModelFault::Count { names, given: inputs.len() });
        }
        for ((name, wanted), given) in wanted.iter().zip(inputs) {
            if let Some(wanted) = wanted.as_ref().filter(|wanted| !takes(wanted, given)) {
                let dims = given.shape().iter().copied().map(Dim::Fixed).collect();
                let given = TensorType::new(given.element(), dims);
                return Err(ModelFault::Input { name: name.clone(), wanted: wanted.clone(), given });
            }
        }
        let names = wanted.iter().map(|(name, _)| name.as_str());
        let views: Vec<(&str, TensorView<'_>)> = names.zip(inputs.iter().map(Tensor::view)).collect();
        let count = executable.output_names().len();
        let interrupt = executable.interrupt()?;
        let end = interrupt.clone();
        let outputs = stop.interruptible(move |_| end.end(), || executable.run_until(&views, &interrupt))?;
        let output = |index| Ok(Tensor::copy_of(outputs.view_at(index, &mut Vec::new())?));
        (0..count).map(output).collect()
    }
}

/// Whether an input of this type takes a tensor, as far as the model says. Sizes with the same name are
/// compared by ONNX Runtime, where the model needs them to be equal.
fn takes(wanted: &TensorType, given: &Tensor) -> bool {
    let fits = |(dim, size): (&Dim, &usize)| dim.fixed().is_none_or(|fixed| fixed == *size);
    // An input whose number of axes is not known looks like one without axes.
    let any_shape = wanted.dims.is_empty();
    let same_rank = wanted.dims.len() == given.shape().len();
    wanted.element == given.element()
        && (any_shape || same_rank && wanted.dims.iter().zip(given.shape()).all(fits))
}
