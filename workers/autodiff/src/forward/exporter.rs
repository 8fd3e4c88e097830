//! The form in which PyTorch has exported a model, as far as its file tells.
//!
//! A model that is exported as it evaluates has lost its Dropout, and its BatchNormalization may be folded
//! into the convolutions in front of it. What says so: a BatchNormalization in its form for evaluation;
//! running statistics in the signature of the program that are no constants of the graph any more; the names
//! that the older exporter gives to folded weights; lines of source code in the metadata that name a Dropout,
//! where the graph has none.

use std::collections::HashSet;

use syncline_onnx::ModelProto;
use syncline_onnx::proto::{GraphProto, NodeProto, StringStringEntryProto, metadata};

use super::exporter_metadata::{SCOPES, SIGNATURE};
use super::random_masks::has_masks;

const SOURCE: &str = "pkg.torch.onnx.stack_trace";
/// PyTorch's operator for BatchNormalization that evaluates; it is a part of node names and metadata.
const EVALUATING: &str = "batch_norm_legit_no_training";
/// The one that trains.
const TRAINING: &str = "batch_norm_legit_functional";

/// PyTorch's two exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exporter {
    /// `dynamo=True`
    Dynamo,
    /// `dynamo=False`
    Script,
}

/// What a file of PyTorch says about how it was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) by: Exporter,
    /// Where normalizations have been folded into weights: modules, or the folded weights.
    pub(crate) folded: Vec<String>,
    /// Whether something shows that the model was exported as it evaluates.
    pub(crate) evaluates: bool,
    /// Whether something shows that it was exported as it trains.
    pub(crate) trains: bool,
    /// Whether there is a Dropout.
    pub(crate) drops: bool,
    /// Whether a line of source code in the metadata names one.
    pub(crate) source_drops: bool,
}

impl Exported {
    /// Whether a BatchNormalization was exported as it evaluates.
    pub(crate) fn evaluates_at(&self, norm: &NodeProto) -> bool {
        match self.by {
            Exporter::Dynamo => is_of(norm, EVALUATING),
            Exporter::Script => norm.int("training_mode", 0) == 0,
        }
    }

    /// `None` for a model that PyTorch has not written.
    pub(crate) fn of(model: &ModelProto) -> Option<Self> {
        let graph = model.graph.as_ref().filter(|_| model.producer_name == "pytorch")?;
        let of_torch = |metadata: &[StringStringEntryProto]| {
            metadata.iter().any(|entry| entry.key.starts_with("pkg.torch"))
        };
        let dynamo =
            of_torch(&graph.metadata_props) || graph.node.iter().any(|node| of_torch(&node.metadata_props));
        let by = if dynamo { Exporter::Dynamo } else { Exporter::Script };
        let folded = match by {
            Exporter::Dynamo => lost_statistics(graph),
            Exporter::Script => folded_convolutions(graph),
        };
        let norms = |node: &&NodeProto| node.op_type == "BatchNormalization";
        let evaluates = match by {
            Exporter::Dynamo => graph.node.iter().any(|node| is_of(node, EVALUATING)),
            Exporter::Script => {
                let mut norms = graph.node.iter().filter(norms);
                !folded.is_empty() || norms.any(|node| node.int("training_mode", 0) == 0)
            }
        };
        let trains = match by {
            Exporter::Dynamo => graph.node.iter().any(|node| is_of(node, TRAINING)),
            Exporter::Script => graph.node.iter().filter(norms).any(|node| node.int("training_mode", 0) != 0),
        };
        Some(Self {
            by,
            folded,
            evaluates,
            trains,
            drops: graph.node.iter().any(|node| node.op_type == "Dropout") || has_masks(graph),
            source_drops: graph.node.iter().flat_map(|node| &node.metadata_props).any(names_dropout),
        })
    }
}

fn is_of(node: &NodeProto, operator: &str) -> bool {
    node.name.contains(operator) || node.metadata_props.iter().any(|entry| entry.value.contains(operator))
}

fn names_dropout(entry: &StringStringEntryProto) -> bool {
    entry.key == SOURCE && entry.value.to_lowercase().contains("dropout")
}

/// Modules whose running variance was an input of the program and is no constant of the graph, and that do
/// not normalize any more.
fn lost_statistics(graph: &GraphProto) -> Vec<String> {
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let signature = graph.metadata_props.iter().find(|entry| entry.key == SIGNATURE);
    let targets = signature.map_or("", |entry| entry.value.as_str()).split(": BUFFER target='").skip(1);
    let targets = targets.filter_map(|rest| rest.split('\'').next());
    let lost = targets.filter(|target| !constants.contains(target));
    let modules = lost.filter_map(|target| target.strip_suffix(".running_var"));
    let norms = graph.node.iter().filter(|node| node.op_type == "BatchNormalization");
    let scopes = norms.filter_map(|node| metadata(&node.metadata_props, SCOPES));
    let normalizing: HashSet<&str> = scopes.flat_map(|scopes| scopes.split('\'')).collect();
    modules.filter(|module| !normalizing.contains(module)).map(str::to_owned).collect()
}

/// Weights of convolutions under a name of the older exporter's own: it renames those that it has computed.
fn folded_convolutions(graph: &GraphProto) -> Vec<String> {
    let convolutions =
        graph.node.iter().filter(|node| matches!(node.op_type.as_str(), "Conv" | "ConvTranspose"));
    let weights = convolutions.filter_map(|node| node.input.get(1));
    weights.filter(|name| name.starts_with("onnx::Conv")).cloned().collect()
}
