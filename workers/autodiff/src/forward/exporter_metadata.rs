//! What a file says itself about which of its constants are parameters.
//!
//! ONNX has no place for it, but models may carry metadata:
//!
//! * [`TRAINABLE`] in the model's metadata, as `docs/models.md` shows it: the names that train, one a line.
//! * [`NORMALIZED_BY`] there: the constants with which an export of ours normalizes the inputs.
//! * PyTorch's exporter of today (`dynamo=True`) notes what each input of its program was: parameter, buffer
//!   or lifted constant; in the metadata of the value, and in the signature of the graph, which outlives its
//!   optimizer. What that folded says what it was folded from. `requires_grad` is in neither.
//!
//! PyTorch's older exporter notes nothing; see [`is_silent`](ExporterMetadata::is_silent).

use std::collections::HashMap;

use syncline_onnx::ModelProto;
use syncline_onnx::proto::metadata;

use super::tied_names::TiedNames;
use crate::param_list::names_of;

/// Key of the model's metadata that holds the names of the parameters to train, one a line.
pub const TRAINABLE: &str = "syncline.trainable";

/// Key of the model's metadata that holds the names of the constants with which it normalizes its inputs, one
/// a line. They come from the data and are no parameters.
pub const NORMALIZED_BY: &str = "syncline.normalized_by";

const KIND: &str = "pkg.torch.export.graph_signature.InputSpec.kind";
pub(super) const SIGNATURE: &str = "pkg.torch.export.ExportedProgram.graph_signature";
pub(super) const SCOPES: &str = "pkg.torch.onnx.name_scopes";
pub(super) const FOLDED_FROM: &str = "pkg.onnxscript.optimizer.folded_from";

/// What a constant was in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Parameter,
    Buffer,
    /// Neither: the exporter made it.
    Constant,
}

/// The metadata of one model.
#[derive(Debug)]
pub(super) struct ExporterMetadata {
    /// The names that the model itself wants trained.
    pub(super) trainable: Option<Vec<String>>,
    /// The constants with which it normalizes its inputs.
    pub(super) normalized_by: Vec<String>,
    /// Kinds by name; `None` if no exporter has noted any.
    kinds: Option<HashMap<String, Kind>>,
    /// Of parameters that are one tensor.
    pub(super) tied: TiedNames,
    /// Whether PyTorch wrote the file.
    torch: bool,
}

impl ExporterMetadata {
    pub(super) fn of(model: &ModelProto) -> Self {
        Self {
            trainable: metadata(&model.metadata_props, TRAINABLE).map(names_of),
            normalized_by: metadata(&model.metadata_props, NORMALIZED_BY).map(names_of).unwrap_or_default(),
            kinds: kinds(model),
            tied: TiedNames::of(model),
            torch: model.producer_name == "pytorch",
        }
    }

    /// What the exporter says of this constant; `None` if it says nothing at all.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        let kinds = self.kinds.as_ref()?;
        // Where the optimizer folds a normalization into `a.weight` without a bias, it makes `a.weight_bias`.
        let known = kinds.get(name).or_else(|| kinds.get(name.strip_suffix("_bias")?));
        Some(known.copied().unwrap_or(Kind::Constant))
    }

    /// Whether PyTorch wrote the file, parameters and buffers alike.
    pub(super) fn is_silent(&self) -> bool {
        self.torch && self.kinds.is_none()
    }
}

fn kinds(model: &ModelProto) -> Option<HashMap<String, Kind>> {
    let graph = model.graph.as_ref()?;
    let mut kinds: HashMap<String, Kind> = HashMap::new();
    for line in metadata(&graph.metadata_props, SIGNATURE).unwrap_or_default().lines() {
        // b_bn_running_mean: BUFFER target='bn.running_mean' persistent=True
        let Some((_, said)) = line.split_once(": ") else { continue };
        let target = said.split_once("target='").and_then(|(_, rest)| rest.split('\'').next());
        if let Some((kind, target)) = kind_of(said).zip(target) {
            kinds.insert(target.to_owned(), kind);
        }
    }
    for value in graph.value_info.iter().chain(&graph.input) {
        if let Some(kind) = metadata(&value.metadata_props, KIND).and_then(kind_of) {
            kinds.insert(value.name.clone(), kind);
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let folded: Vec<(String, Kind)> = graph
        .value_info
        .iter()
        .filter_map(|value| {
            let origins = metadata(&value.metadata_props, FOLDED_FROM).map(names_of)?;
            let made_of = |kind| origins.iter().any(|origin| kinds.get(origin) == Some(&kind));
            let kind = [Kind::Parameter, Kind::Buffer].into_iter().find(|&kind| made_of(kind))?;
            Some((value.name.clone(), kind))
        })
        .collect();
    kinds.extend(folded);
    Some(kinds)
}

fn kind_of(said: &str) -> Option<Kind> {
    match said.split_whitespace().next()? {
        "PARAMETER" => Some(Kind::Parameter),
        "BUFFER" => Some(Kind::Buffer),
        "CONSTANT_TENSOR" => Some(Kind::Constant),
        _ => None,
    }
}
