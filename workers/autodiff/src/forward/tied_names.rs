//! All names of a tensor that PyTorch has tied: the file has it under one of them.
//!
//! The signature of PyTorch's exporter lists every parameter, and a node says in which module it was: one of
//! the module `tokens` that reads `head.weight` stands for `tokens.weight`.

use std::collections::{BTreeMap, HashMap, HashSet};

use syncline_onnx::ModelProto;
use syncline_onnx::proto::metadata;

use super::exporter_metadata::{SCOPES, SIGNATURE};
use crate::glob::matches;

/// The other names of a model's constants.
#[derive(Debug, Clone, Default)]
pub struct TiedNames {
    /// The name in the file, by the other one.
    in_file: BTreeMap<String, String>,
    /// The other ones, in ascending order, by the name in the file.
    others: HashMap<String, Vec<String>>,
}

impl TiedNames {
    /// What the metadata of a model says; nothing of a file that has none.
    pub fn of(model: &ModelProto) -> Self {
        Self::from(aliases(model))
    }

    /// The name under which the file has a tensor, which may be known by another one.
    pub fn in_file<'a>(&'a self, name: &'a str) -> &'a str {
        self.in_file.get(name).map_or(name, String::as_str)
    }

    /// What else a tensor is called, by its name in the file; in ascending order.
    pub fn others(&self, name: &str) -> &[String] {
        self.others.get(name).map_or(&[], Vec::as_slice)
    }

    /// All names of a tensor, that in the file first.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + Clone {
        std::iter::once(name).chain(self.others(name).iter().map(String::as_str))
    }

    /// Whether a name or a pattern with `*` means a tensor, which is given by its name in the file.
    pub(crate) fn means(&self, pattern: &str, name: &str) -> bool {
        self.all(name).any(|name| matches(pattern, name))
    }
}

impl From<BTreeMap<String, String>> for TiedNames {
    fn from(in_file: BTreeMap<String, String>) -> Self {
        let mut others: HashMap<String, Vec<String>> = HashMap::new();
        for (other, name) in &in_file {
            others.entry(name.clone()).or_default().push(other.clone());
        }
        Self { in_file, others }
    }
}

/// Names that the file does not have, and the one that it has in the place of each.
fn aliases(model: &ModelProto) -> BTreeMap<String, String> {
    let Some(graph) = &model.graph else { return BTreeMap::new() };
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let signature = metadata(&graph.metadata_props, SIGNATURE).unwrap_or_default();
    let parameters =
        signature.split(": PARAMETER target='").skip(1).filter_map(|rest| rest.split('\'').next());
    let missing = parameters.filter(|target| !constants.contains(target));
    let mut read_in: HashMap<&str, Vec<&String>> = HashMap::new();
    for node in &graph.node {
        let modules = metadata(&node.metadata_props, SCOPES).unwrap_or_default().split('\'');
        for module in modules.skip(1).step_by(2) {
            let inputs = node.input.iter().filter(|input| constants.contains(input.as_str()));
            read_in.entry(module).or_default().extend(inputs);
        }
    }
    let alias = |target: &str| {
        let (module, last) = target.rsplit_once('.')?;
        let other = read_in.get(module)?.iter().find(|input| {
            input.rsplit_once('.').is_some_and(|(owner, name)| owner != module && name == last)
        })?;
        Some((target.to_owned(), (*other).clone()))
    };
    missing.filter_map(alias).collect()
}
