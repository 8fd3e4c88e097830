//! A forward model that begins with the numbers of a file: what another job has learned, or what PyTorch
//! saved.

use std::collections::BTreeSet;

use syncline_autodiff::{AutodiffError, DeriveOptions, TrainingGraph, select};
use syncline_onnx::ModelProto;

use super::{
    SubmitError,
    model::{ByteSource, FirstValues},
    name_list::{cut, list},
    read::read,
};
use crate::export::{self, ExportError, put_in};

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
    partial: bool,
}

/// Puts what the file of `weights` holds into the constants of the same names, those that do not train among
/// them. `model`: as it was parsed for training.
pub(super) fn put_in_weights(
    mut model: ModelProto,
    weights: &FirstValues,
    mut options: DeriveOptions,
) -> Result<Filled, SubmitError> {
    let FirstValues { file: source, partial } = weights;
    let file = match source {
        ByteSource::Memory(_) => "the file of first weights".to_owned(),
        ByteSource::File(path) => path.display().to_string(),
    };
    // Whether a constant is a parameter may be guessed from its numbers: from those that the model came with,
    // so that the same ones train whatever they start from.
    let selected = select(&model, &options)?;
    let trained: Vec<_> =
        selected.into_iter().filter(|one| one.reason.is_none()).map(|one| one.name).collect();
    let tensors = match partial {
        true => tensors_of(&model, &options)?,
        false => Vec::new(),
    };
    let filled = put_in(&mut model, &file, &read(source)?)?;
    let warning = match partial {
        true => Some(said_of_parts(&file, &filled, &tensors)?),
        false => {
            filled.refuse_misfits(&file)?;
            (!filled.unknown.is_empty()).then(|| {
                let unknown = list(&filled.unknown);
                format!("the model has no parameter {unknown}: what {file} holds of that is left out")
            })
        }
    };
    if !trained.is_empty() {
        options.params = Some(trained);
    }
    let from = FirstWeights { file, names: filled.names, partial: *partial };
    Ok(Filled { onnx: model.to_bytes(), options, warning, from })
}

/// The parameters and running statistics of a model: what trains, and what would without the settings.
fn tensors_of(model: &ModelProto, options: &DeriveOptions) -> Result<Vec<String>, AutodiffError> {
    let all = DeriveOptions { params: None, train: None, freeze: Vec::new(), ..options.clone() };
    let (chosen, all) = (select(model, options)?, select(model, &all)?);
    let both = chosen.into_iter().zip(all).filter(|(chosen, all)| {
        chosen.reason.is_none() || all.reason.is_none() || all.is_running_statistic()
    });
    Ok(both.map(|(_, all)| all.name).collect())
}

/// What of a file was taken, and what not on either side.
fn said_of_parts(file: &str, filled: &export::Filled, tensors: &[String]) -> Result<String, ExportError> {
    let export::Filled { names, unknown, misfits } = filled;
    let misfits: Vec<String> =
        misfits.iter().map(|one| format!("`{}` ({})", one.name, one.difference)).collect();
    let unknown: Vec<String> = unknown.iter().map(|name| format!("`{name}`")).collect();
    let missing: Vec<&String> = tensors.iter().filter(|name| !names.contains(*name)).collect();
    if names.is_empty() {
        let found = [misfits, unknown].concat();
        let found = if found.is_empty() { "nothing".to_owned() } else { cut(&found) };
        let (source_name, wanted) = (file.to_owned(), list(tensors));
        return Err(ExportError::NothingFits { source_name, found, wanted });
    }
    let plural = if names.len() == 1 { "tensor" } else { "tensors" };
    let mut said = format!("the model begins with {} {plural} of {file}", names.len());
    if !missing.is_empty() {
        said += &format!("; {} more keep the values of the ONNX file: {}", missing.len(), list(&missing));
    }
    if !misfits.is_empty() {
        said += &format!("; what the model has otherwise: {}", cut(&misfits));
    }
    if !unknown.is_empty() {
        said += &format!("; the model has no {}", cut(&unknown));
    }
    Ok(said)
}

impl FirstWeights {
    /// Refuses a file that lacks something that trains, unless it may: that would begin with other numbers
    /// than the rest. What does not train may be missing, as it is in a snapshot of a job with the same
    /// settings.
    pub(super) fn check_complete(&self, graph: &TrainingGraph) -> Result<(), SubmitError> {
        let names = graph.params.iter().chain(&graph.state).map(|param| &param.name);
        let missing: Vec<String> = names.filter(|name| !self.names.contains(*name)).cloned().collect();
        if self.partial || missing.is_empty() {
            return Ok(());
        }
        Err(ExportError::Lacks { source_name: self.file.clone(), names: list(&missing) }.into())
    }
}
