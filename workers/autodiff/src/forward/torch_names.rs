//! Which of PyTorch's tensors a node was written for, whatever constant it reads.
//!
//! PyTorch's optimizer (`optimize=True`, the default) makes one of all equal constants, so that a node may
//! read the tensor of another module. Its metadata still says what the node came from:
//! `pkg.torch.onnx.fx_node` holds the call with its arguments, as in `aten.linear.default](args = (%x,
//! %p_fc_weight, %p_fc_bias), ..`, and the signature of the graph names the tensor behind each argument.
//! Weights that are tied in PyTorch are one argument there, so that what has two names here was two tensors.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, metadata};

use super::exporter_metadata::{FOLDED_FROM, SCOPES, SIGNATURE};
use crate::param_list::names_of;

pub(super) const CALL: &str = "pkg.torch.onnx.fx_node";

/// What a norm calls its inputs; the first is its data.
const ROLES: [&str; 5] = ["", "weight", "bias", "running_mean", "running_var"];

/// What is known of the tensors that a graph was written for.
pub(super) struct TorchNames<'g> {
    /// PyTorch's names of tensors, by those of arguments.
    targets: HashMap<&'g str, &'g str>,
    /// The same names.
    known: HashSet<&'g str>,
    constants: HashSet<&'g str>,
    /// The tensor that a constant was computed from.
    origins: HashMap<&'g str, String>,
}

impl<'g> TorchNames<'g> {
    pub(super) fn of(graph: &'g GraphProto) -> Self {
        let signature = metadata(&graph.metadata_props, SIGNATURE).unwrap_or_default();
        let target = |line: &'g str| {
            let (argument, said) = line.split_once(": ")?;
            Some((argument, said.split_once("target='")?.1.split('\'').next()?))
        };
        // What the graph returns and changes is listed below its inputs, under names of its own.
        let inputs = signature.split("# outputs").next().unwrap_or_default();
        let targets: HashMap<&str, &str> = inputs.lines().filter_map(target).collect();
        let known: HashSet<&str> = targets.values().copied().collect();
        let origins = graph.value_info.iter().filter_map(|value| {
            let origins = names_of(metadata(&value.metadata_props, FOLDED_FROM)?);
            let origin = origins.into_iter().find(|origin| known.contains(origin.as_str()))?;
            Some((value.name.as_str(), origin))
        });
        Self {
            origins: origins.collect(),
            constants: graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect(),
            targets,
            known,
        }
    }

    /// What PyTorch calls a constant: what it was folded from, if that is one tensor.
    pub(super) fn own_name<'a>(&'a self, constant: &'a str) -> &'a str {
        self.origins.get(constant).map_or(constant, String::as_str)
    }

    /// What PyTorch calls the tensor that this input of the node was written for; `None` where the file does
    /// not say.
    pub(super) fn of_input(&self, node: &NodeProto, position: usize) -> Option<String> {
        let call = metadata(&node.metadata_props, CALL)?;
        if node.op_type == "BatchNormalization" {
            return self.of_norm(node, call, position);
        }
        let own = self.own_name(&node.input[position]);
        let named: Vec<&str> = arguments(call).filter_map(|name| self.targets.get(name).copied()).collect();
        if named.contains(&own) {
            return Some(own.to_owned());
        }
        let role = role(&node.op_type, position);
        if named.is_empty() {
            // A norm without parameters, whose ones and zeros are those of another.
            let norm = node.op_type.ends_with("Normalization");
            return role.filter(|_| norm).and_then(|role| in_module(node, role));
        }
        if !self.known.contains(own) {
            return None;
        }
        // What is a constant of its own is not this one.
        let merged = named.into_iter().filter(|target| !self.constants.contains(target));
        let merged: Vec<&str> = merged.collect();
        let only = |wanted: &dyn Fn(&str) -> bool| {
            let mut fitting = merged.iter().filter(|name| wanted(last(name)));
            let first = fitting.next().filter(|_| fitting.next().is_none());
            first.map(|name| (*name).to_owned())
        };
        let found = role.and_then(|role| only(&|last| last.contains(role)));
        found.or_else(|| only(&|found| found == last(own))).or_else(|| only(&|_| true))
    }

    /// The arguments of PyTorch's operator stand in the order of the inputs.
    fn of_norm(&self, node: &NodeProto, call: &str, position: usize) -> Option<String> {
        let role = ROLES.get(position).filter(|role| !role.is_empty())?;
        let (_, listed) = call.split_once("(args = (")?;
        let argument = listed.split(", ").nth(position)?;
        match self.targets.get(argument.trim_start_matches('%')) {
            Some(target) => Some((*target).to_owned()),
            // Without parameters, or a second call, which goes on with the statistics of the first.
            None if argument == "None" || position > 2 => in_module(node, role),
            None => None,
        }
    }
}

/// The roles that BatchNormalizations give to a constant, in which two are never one tensor.
pub(super) fn norm_role(node: &NodeProto, position: usize) -> Option<&'static str> {
    let norm = node.op_type == "BatchNormalization" && node.domain.is_empty();
    ROLES.get(position).copied().filter(|role| norm && !role.is_empty())
}

/// What modules call the tensor that an operator reads there.
fn role(op: &str, position: usize) -> Option<&'static str> {
    match (op, position) {
        ("LayerNormalization" | "InstanceNormalization" | "GroupNormalization", 1 | 2)
        | ("Gemm" | "Conv" | "ConvTranspose", 1 | 2) => Some(ROLES[position]),
        ("Gather", 0) | ("MatMul" | "PRelu" | "RMSNormalization", 1) => Some("weight"),
        ("Add", _) => Some("bias"),
        _ => None,
    }
}

/// The names behind `%` in a call.
fn arguments(call: &str) -> impl Iterator<Item = &str> {
    let listed = call.split_once("(args = ").map_or("", |(_, listed)| listed);
    listed
        .split('%')
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next())
}

/// The name of a tensor of the module that a node belongs to: `['', 'n', 'n.2', 'batch_norm']` are the
/// modules around it, and the call.
fn in_module(node: &NodeProto, tensor: &str) -> Option<String> {
    let module = module_of(node)?;
    Some(if module.is_empty() { tensor.to_owned() } else { format!("{module}.{tensor}") })
}

/// The innermost module that a node belongs to, empty for the model itself; `None` where the file does not
/// say.
pub(super) fn module_of(node: &NodeProto) -> Option<&str> {
    let scopes = names_with_root(metadata(&node.metadata_props, SCOPES)?);
    scopes.into_iter().rev().nth(1)
}

fn names_with_root(scopes: &str) -> Vec<&str> {
    scopes.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('\'')).collect()
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
