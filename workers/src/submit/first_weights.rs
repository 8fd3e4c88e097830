//! A forward model that begins with the numbers of a file: what another job has learned, or what PyTorch saved.

use std::collections::BTreeSet;

use syncline_autodiff::{DeriveOptions, TrainingGraph, select};
use syncline_onnx::ModelProto;

use super::{SubmitError, model::ByteSource, name_list::list, read::read};
use crate::export::{ExportError, put_in};

/// A model with the numbers of a file in it.
pub(super) struct Filled {
    pub onnx: Vec<u8>,
    /// Which train what would train without the file.
    pub options: DeriveOptions,
    /// What is doubtful, a sentence.
    pub warning: Option<String>,
    pub from: FirstWeights,
}

/// The file, and what of it is in the model.
pub(super) struct FirstWeights {
    file: String,
    names: BTreeSet<String>,
}

/// Puts what `weights`, a safetensors file, holds into the constants of the same names, those that do not train among
/// them. `model`: as it was parsed for training.
pub(super) fn put_in_weights(
    mut model: ModelProto,
    weights: &ByteSource,
    mut options: DeriveOptions,
) -> Result<Filled, SubmitError> {
    let file = match weights {
        ByteSource::Memory(_) => "the file of first weights".to_owned(),
        ByteSource::File(path) => path.display().to_string(),
    };
    // Whether a constant is a parameter may be guessed from its numbers: from those that the model came with, so that the same
    // ones train whatever they start from.
    let selected = select(&model, &options)?;
    let trained: Vec<_> =
        selected.into_iter().filter(|one| one.reason.is_none()).map(|one| one.name).collect();
    let mut filled = put_in(&mut model, &file, &read(weights)?)?;
    // What every BatchNormalization of PyTorch counts, and no model has.
    filled.unknown.retain(|name| !name.ends_with(".num_batches_tracked"));
    if !trained.is_empty() {
        options.params = Some(trained);
    }
    let warning = (!filled.unknown.is_empty()).then(|| {
        format!("the model has no parameter {}: what {file} holds of that is left out", list(&filled.unknown))
    });
    Ok(Filled { onnx: model.to_bytes(), options, warning, from: FirstWeights { file, names: filled.names } })
}

impl FirstWeights {
    /// Refuses a file that lacks something that trains: that would begin with other numbers than the rest. What does not train
    /// may be missing, as it is in a snapshot of a job with the same settings.
    pub(super) fn check_complete(&self, graph: &TrainingGraph) -> Result<(), SubmitError> {
        let names = graph.params.iter().chain(&graph.state).map(|param| &param.name);
        let missing: Vec<String> = names.filter(|name| !self.names.contains(*name)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(ExportError::Lacks { source_name: self.file.clone(), names: list(&missing) }.into())
    }
}
