//! The part of a model that trains as it evaluates, while the rest trains: PyTorch's `model.train();
//! model.body.eval()`.
//!
//! Patterns mean a BatchNormalization by the names of its tensors, as `freeze` does, and a Dropout, which has
//! none, by the module that it is in ([`module_paths`]). Norms are meant by their modules as well: one
//! without parameters of its own may read the constants of another. Node names of whoever wrote the file will
//! do for both.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto};

use super::module_path::module_paths;
use super::training_form::{evaluate, is, statistics};
use crate::error::AutodiffError;
use crate::glob::matches;
use crate::param_list::unknown_pattern;

/// What patterns of `eval_mode` mean in a model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EvalParts {
    /// Indices of nodes, in ascending order.
    nodes: Vec<usize>,
    /// Names of the Dropouts of which the file does not say the module, and which no pattern means.
    pub(crate) unplaced: Vec<String>,
}

impl EvalParts {
    /// Fails for a pattern that means nothing. O(patterns * names).
    pub(crate) fn choose(graph: &GraphProto, patterns: &[String]) -> Result<Self, AutodiffError> {
        let layers = layers(graph);
        let known = || layers.iter().map(|layer| layer.label());
        for pattern in patterns {
            if !layers.iter().any(|layer| layer.is_meant_by(pattern)) {
                let known: Vec<&str> = known().collect();
                return Err(AutodiffError::NothingToEvaluate { named: unknown_pattern(pattern, known) });
            }
        }
        let (meant, rest): (Vec<&Layer<'_>>, Vec<&Layer<'_>>) =
            layers.iter().partition(|layer| patterns.iter().any(|pattern| layer.is_meant_by(pattern)));
        let unplaced = rest.into_iter().filter(|layer| layer.tensors.is_empty() && layer.paths.is_empty());
        Ok(Self {
            nodes: meant.into_iter().map(|layer| layer.index).collect(),
            unplaced: unplaced.map(|layer| layer.label().to_owned()).collect(),
        })
    }
}

/// What to call those norms that `is_wanted`, and that no pattern means.
pub(crate) fn norms_besides(
    graph: &GraphProto,
    patterns: &[String],
    is_wanted: impl Fn(&NodeProto) -> bool,
) -> Vec<String> {
    let layers = layers(graph);
    let meant = |layer: &&Layer<'_>| patterns.iter().any(|pattern| layer.is_meant_by(pattern));
    let norms = layers.iter().filter(|layer| !layer.tensors.is_empty() && is_wanted(layer.node));
    norms.filter(|layer| !meant(layer)).map(|layer| layer.label().to_owned()).collect()
}

/// A BatchNormalization or a Dropout.
struct Layer<'g> {
    index: usize,
    node: &'g NodeProto,
    paths: Vec<String>,
    tensors: Vec<&'g str>,
}

impl Layer<'_> {
    fn is_meant_by(&self, pattern: &str) -> bool {
        // A Dropout that a module calls itself stands beside what belongs to the module.
        let in_module = |path: &String| matches(pattern, path) || matches(pattern, &format!("{path}."));
        matches(pattern, &self.node.name)
            || self.tensors.iter().any(|tensor| matches(pattern, tensor))
            || self.paths.iter().any(in_module)
    }

    /// What to call it in front of people.
    fn label(&self) -> &str {
        let path = self.paths.first().map(String::as_str).filter(|path| !path.is_empty());
        path.or(self.tensors.first().copied()).unwrap_or_else(|| self.node.label())
    }
}

fn layers(graph: &GraphProto) -> Vec<Layer<'_>> {
    let norm = |node: &NodeProto| is(node, "BatchNormalization");
    let mut layers: Vec<Layer<'_>> = (0..)
        .zip(&graph.node)
        .filter(|(_, node)| norm(node) || is(node, "Dropout"))
        .map(|(index, node)| Layer {
            index,
            node,
            paths: module_paths(node),
            tensors: match norm(node) {
                true => node.input.iter().skip(1).map(String::as_str).collect(),
                false => Vec::new(),
            },
        })
        .collect();
    // Where an exporter has made one of the constants of two norms, they are those of the norm that they are
    // named after.
    let norms = layers.iter().filter(|layer| !layer.tensors.is_empty());
    let paths: HashSet<String> = norms.flat_map(|layer| layer.paths.clone()).collect();
    for layer in layers.iter_mut().filter(|layer| !layer.paths.is_empty()) {
        let Layer { paths: own, tensors, .. } = layer;
        tensors.retain(|tensor| {
            let owner = tensor.rsplit_once('.').map_or("", |(owner, _)| owner);
            !paths.contains(owner) || own.iter().any(|path| path == owner)
        });
    }
    layers
}

/// Makes nodes that evaluate of those that the patterns mean; returns their names, which no other nodes have.
pub(super) fn evaluate_parts(
    graph: &mut GraphProto,
    patterns: &[String],
) -> Result<HashSet<String>, AutodiffError> {
    let EvalParts { nodes, .. } = EvalParts::choose(graph, patterns)?;
    let names = name_apart(graph, &nodes);
    let still = statistics(graph, |node| names.contains(&node.name));
    let moving = statistics(graph, |node| !names.contains(&node.name));
    refuse_both(graph, &names, &still, &moving)?;
    let mut remembered = Vec::new();
    nodes.iter().for_each(|&index| evaluate(&mut graph.node[index], &mut remembered));
    graph.node.splice(0..0, remembered);
    Ok(names)
}

/// Gives each of these nodes a name of its own, by which it is known when the graph has been simplified.
fn name_apart(graph: &mut GraphProto, nodes: &[usize]) -> HashSet<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    graph.node.iter().for_each(|node| *counts.entry(node.name.clone()).or_default() += 1);
    let mut names = HashSet::new();
    for &index in nodes {
        let node = &mut graph.node[index];
        if node.name.is_empty() || counts.get(&node.name).is_some_and(|count| *count > 1) {
            let free = (0..).map(|n| format!("{}/evaluated_{n}", node.name));
            node.name = free.into_iter().find(|name| !counts.contains_key(name)).unwrap_or_default();
            counts.insert(node.name.clone(), 1);
        }
        names.insert(node.name.clone());
    }
    names
}

/// Refuses a running statistic that would have to move for one norm and to stay for another.
fn refuse_both(
    graph: &GraphProto,
    evaluated: &HashSet<String>,
    still: &HashSet<String>,
    moving: &HashSet<String>,
) -> Result<(), AutodiffError> {
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut both: Vec<&String> = still.intersection(moving).collect();
    both.retain(|name| constants.contains(name.as_str()));
    both.sort_unstable();
    let Some(name) = both.first() else { return Ok(()) };
    let node =
        graph.node.iter().find(|node| evaluated.contains(&node.name) && is(node, "BatchNormalization"));
    Err(AutodiffError::UnsupportedUse {
        op: "BatchNormalization".to_owned(),
        node: node.map_or("", NodeProto::label).to_owned(),
        reason: format!(
            "eval_mode means it, and its running statistic `{name}` is also that of a norm that trains: the exporter made one of \
             equal tensors; export again with optimize=False, or name both"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::proto::TensorProto;
    use syncline_onnx::{ElementType, GraphBuilder};

    /// A norm and a Dropout each in `body` and `head`, a Dropout of the model itself, and one of a module
    /// that is not known.
    fn model() -> GraphProto {
        let mut graph = GraphBuilder::new("parts");
        let mut value = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        for part in ["body", "head"] {
            let inputs = ["weight", "bias", "running_mean", "running_var"].map(|last| {
                graph.constant(TensorProto::from_f32(&format!("{part}.1.{last}"), &[2], &[1.0, 2.0]))
            });
            let [scale, bias, mean, variance] = inputs.each_ref().map(String::as_str);
            value = graph.op("BatchNormalization", &[&value, scale, bias, mean, variance], &[]);
            value = graph.op("Dropout", &[&value], &[]);
        }
        value = graph.op("Dropout", &[&value], &[]);
        value = graph.op("Dropout", &[&value], &[]);
        graph.output(&value);
        let mut graph = graph.finish().graph.unwrap();
        let names =
            ["", "/body/Dropout", "", "/head/head.2/Dropout", "/Dropout", "somewhere"].map(str::to_owned);
        graph.node.iter_mut().zip(names).for_each(|(node, name)| node.name = name);
        graph
    }

    fn chosen(patterns: &[&str]) -> Result<EvalParts, AutodiffError> {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        EvalParts::choose(&model(), &patterns)
    }

    #[test]
    fn norms_are_meant_by_their_tensors_and_dropouts_by_their_modules() {
        #[rustfmt::skip]
        let cases: [(&[&str], &[usize]); 9] = [
            (&["body.*"],                   &[0, 1]),
            (&["body"],                     &[1]),
            (&["body.1.running_mean"],      &[0]),
            (&["head.*"],                   &[2, 3]),
            (&["*.weight"],                 &[0, 2]),
            (&["head.2"],                   &[3]),
            (&["body.*", "/Dropout"],       &[0, 1, 4]),
            (&["some*"],                    &[5]),
            (&["*"],                        &[0, 1, 2, 3, 4, 5]),
        ];
        for (patterns, want) in cases {
            let parts = chosen(patterns).unwrap();
            assert_eq!(parts.nodes, want, "{patterns:?}");
            let unplaced: &[&str] = if want.contains(&5) { &[] } else { &["somewhere"] };
            assert_eq!(parts.unplaced, unplaced, "{patterns:?}");
        }
    }

    #[test]
    fn a_pattern_that_means_none_is_answered_with_what_there_is() {
        let refused = |pattern: &str| chosen(&["body.*", pattern]).unwrap_err();
        assert_eq!(refused("tail.*").code(), "E317");
        let error = refused("tail.*").to_string();
        assert!(error.starts_with("[E317] model has no BatchNormalization and no Dropout `tail.*` (it has `body.1.weight`, `body`"), "{error}");
        let error = refused("net.head.2").to_string();
        assert!(error.ends_with("`net.head.2` (near: `head.2`)"), "{error}");
    }

    #[test]
    fn nodes_are_told_apart_by_names_that_no_other_has() {
        let mut graph = model();
        graph.node[0].name = "somewhere".to_owned();
        let names = evaluate_parts(&mut graph, &["body.*".to_owned()]).unwrap();
        let of_nodes: Vec<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(of_nodes[..3], ["somewhere/evaluated_0", "/body/Dropout", ""]);
        assert_eq!(names, HashSet::from(["somewhere/evaluated_0", "/body/Dropout"].map(str::to_owned)));
    }

    #[test]
    fn a_constant_of_two_norms_belongs_to_the_one_that_it_is_named_after() {
        let mut graph = model();
        graph.node[0].name = "/body/body.1/BatchNormalization".to_owned();
        graph.node[2].name = "/head/head.1/BatchNormalization".to_owned();
        let shared = graph.node[0].input[2].clone();
        graph.node[2].input[2] = shared;
        let nodes = |graph: &GraphProto| EvalParts::choose(graph, &["body.*".to_owned()]).unwrap().nodes;
        assert_eq!(nodes(&graph), [0, 1]);
        let shared = graph.node[0].input[3].clone();
        graph.node[2].input[3] = shared;
        let error = evaluate_parts(&mut graph, &["body.*".to_owned()]).unwrap_err();
        assert!(error.code() == "E311" && error.to_string().contains("`body.1.running_mean`"), "{error}");
    }
}
