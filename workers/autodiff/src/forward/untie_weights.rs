//! Reading a forward model, with weights apart that PyTorch's older exporter has made one.
//!
//! Where that exporter writes a model for evaluation, it keeps one of all constants with equal numbers, and
//! an `Identity` in the place of each other. In a fresh model the scale of a normalization is then the
//! running variance as well, and the scales of all layers are one. Nobody meant that: constants of equal
//! numbers throughout become their own again. Random numbers that are equal stay one, and are warned about
//! ([`same_in_script`]): weights that are tied on purpose have no `Identity`, but layers that were copied
//! have. What it has folded twice, for two calls of one module, is one.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};
use syncline_onnx::{ElementType, ModelProto, OnnxError};

use super::erfc::write_out_erfcs;
use super::module_path::first_call_path;
use super::open_outputs::open_outputs;
use super::shared_weights::{Shared, split_shared};
use super::stop_gradient::detaches;

/// Reads and checks a forward model; its functions are written out, as is what the standard lacks, what an
/// exporter has made one by chance is apart again, and outputs are as open as the inputs.
pub fn parse_forward(bytes: &[u8]) -> Result<ModelProto, OnnxError> {
    let mut model = syncline_onnx::parse(bytes)?;
    syncline_onnx::inline_functions(&mut model)?;
    let graph = model.graph.get_or_insert_default();
    *graph = write_out_erfcs(std::mem::take(graph));
    if model.producer_name == "pytorch" {
        untie(graph);
    }
    split_shared(graph);
    open_outputs(graph);
    Ok(model)
}

fn untie(graph: &mut GraphProto) {
    let readers = Modules::of(graph);
    let uniform = graph.initializer.iter().filter(|tensor| is_uniform(tensor));
    let uniform: HashMap<String, TensorProto> =
        uniform.map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
    let mut copies = Vec::new();
    let mut apart = Vec::with_capacity(graph.node.len());
    for node in &graph.node {
        let by_chance = equal(node).filter(|(input, output)| !readers.are_one(input, output));
        let copy = by_chance.and_then(|(input, output)| Some((uniform.get(input)?, output)));
        apart.push(copy.is_some());
        copies.extend(copy.map(|(tensor, name)| TensorProto { name: name.to_owned(), ..tensor.clone() }));
    }
    let mut apart = apart.into_iter();
    graph.node.retain(|_| !apart.next().unwrap_or_default());
    graph.initializer.extend(copies);
}

/// The constants that an `Identity` says are two tensors, which stay one.
pub(super) fn same_in_script(graph: &GraphProto) -> Vec<Shared> {
    let weights = graph.initializer.iter().filter(|tensor| tensor.element() == ElementType::F32);
    let weights: HashSet<&str> =
        weights.filter(|tensor| !tensor.dims.is_empty()).map(|tensor| tensor.name.as_str()).collect();
    let readers = Modules::of(graph);
    let mut found: Vec<Shared> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (input, output) in graph.node.iter().filter_map(equal) {
        if !weights.contains(input) || readers.are_one(input, output) {
            continue;
        }
        let at = *known.entry(input).or_insert_with(|| {
            found.push(Shared { constant: input.to_owned(), tensors: vec![readers.name(input)] });
            found.len() - 1
        });
        found[at].tensors.push(readers.name(output));
    }
    found
}

/// What a node makes one. A `detach()` of a weight is no other tensor.
pub(super) fn equal(node: &NodeProto) -> Option<(&str, &str)> {
    let (input, output) = (node.input.first()?, node.output.first()?);
    let is_copy = node.op_type == "Identity" && node.domain.is_empty() && !detaches(node);
    is_copy.then_some((input, output))
}

/// The modules whose nodes read a value.
struct Modules<'g>(HashMap<&'g str, HashSet<String>>);

impl<'g> Modules<'g> {
    fn of(graph: &'g GraphProto) -> Self {
        let mut modules: HashMap<&str, HashSet<String>> = HashMap::new();
        for node in graph.node.iter().filter(|node| equal(node).is_none()) {
            for input in node.input.iter().filter(|input| is_made(input)) {
                modules.entry(input).or_default().insert(first_call_path(&node.name));
            }
        }
        Self(modules)
    }

    /// Whether the two are what the exporter made of one tensor of a module that is called twice.
    fn are_one(&self, a: &str, b: &str) -> bool {
        match (self.0.get(a), self.0.get(b)) {
            (Some(a), Some(b)) => !a.is_disjoint(b),
            _ => false,
        }
    }

    /// What to call a tensor: its name in PyTorch, or the module that reads what was made of it.
    fn name(&self, value: &str) -> String {
        let modules = self.0.get(value).into_iter().flatten();
        modules.min().filter(|module| !module.is_empty()).cloned().unwrap_or_else(|| value.to_owned())
    }
}

/// Whether the exporter made this value: `onnx::MatMul_12`. It has no name of PyTorch's.
pub(super) fn is_made(name: &str) -> bool {
    name.contains("::")
}

/// Whether a tensor of several numbers holds one number only.
pub(super) fn is_uniform(tensor: &TensorProto) -> bool {
    tensor.element() == ElementType::F32
        && !tensor.dims.is_empty()
        && tensor.to_f32().is_ok_and(|numbers| numbers.windows(2).all(|pair| pair[0] == pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::GraphBuilder;

    fn tied(scale: &[f32], producer: &str) -> ModelProto {
        let mut graph = GraphBuilder::new("tied");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight("bn.weight", &[2], scale);
        let other = graph.named("bn.running_var", "Identity", &[&w], &[]);
        let y = graph.op("Mul", &[&x, &w], &[]);
        let y = graph.op("Mul", &[&y, &other], &[]);
        graph.output(&y);
        let model = ModelProto { producer_name: producer.to_owned(), ..graph.finish() };
        parse_forward(&model.to_bytes()).unwrap()
    }

    #[test]
    fn only_constants_of_equal_numbers_in_a_file_of_pytorch_are_made_apart() {
        #[rustfmt::skip]
        let cases: [(&str, &[f32], &str, &[&str]); 3] = [
            ("equal by chance",  &[1.0, 1.0], "pytorch", &["bn.weight", "bn.running_var"]),
            ("tied on purpose",  &[0.3, 0.7], "pytorch", &["bn.weight"]),
            ("somebody else's",  &[1.0, 1.0], "other",   &["bn.weight"]),
        ];
        for (name, scale, producer, want) in cases {
            let graph = tied(scale, producer).graph.unwrap();
            let names: Vec<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
            assert_eq!(names, want, "{name}");
            let copies = graph.node.iter().filter(|node| node.op_type == "Identity").count();
            assert_eq!(copies, 2 - want.len(), "{name}");
        }
    }
}
