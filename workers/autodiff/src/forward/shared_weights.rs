//! Constants that an exporter has made one of several tensors, and taking them apart.
//!
//! Equal numbers are no reason to train as one. What PyTorch's metadata gives two names was two tensors
//! ([`TorchNames`]); and the scale or bias of a BatchNormalization is no running statistic of one, whoever
//! wrote the file. Constants that repeat one number (fresh scales and biases) are made apart, each under the
//! name that PyTorch gives it. Random numbers that are equal may be meant so: layers that were copied from
//! one, or tied in an older PyTorch than the one whose metadata this is. They stay one, and [`Shared`] is for
//! a warning.

use std::collections::{HashMap, HashSet};

use syncline_onnx::ElementType;
use syncline_onnx::proto::{GraphProto, TensorProto};

use super::torch_names::{TorchNames, norm_role};
use super::unnamed_equals::part_unnamed_equals;
use super::untie_weights::{is_uniform, same_in_script};

/// A constant that stands for several tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    /// The constant.
    pub(crate) constant: String,
    /// What PyTorch calls the tensors, two at least.
    pub(crate) tensors: Vec<String>,
}

/// Where nodes read a constant for one tensor.
struct Tensor {
    name: String,
    /// Whether a BatchNormalization changes it.
    statistic: bool,
    slots: Vec<InputSlot>,
}

/// Index of a node, and of its input.
type InputSlot = (usize, usize);

/// Most numbers that are written anew: what is one by chance is small.
pub(super) const MOST_COPIED: usize = 1 << 24;

/// Makes the tensors apart that certainly are.
pub(super) fn split_shared(graph: &mut GraphProto) {
    part_unnamed_equals(graph);
    let mut taken = names(graph);
    let mut copied = 0;
    for (index, kept, tensors) in several(graph) {
        let copy = graph.initializer[index].clone();
        let (uniform, statistic) = (is_uniform(&copy), tensors[kept].statistic);
        let others = tensors.into_iter().enumerate().filter(|(at, _)| *at != kept).map(|(_, other)| other);
        for other in others.filter(|other| uniform || other.statistic != statistic) {
            copied += copy.shape().iter().product::<usize>();
            if copied > MOST_COPIED {
                return;
            }
            let name = free(&other.name, &mut taken);
            for (node, input) in other.slots {
                graph.node[node].input[input].clone_from(&name);
            }
            graph.initializer.push(TensorProto { name, ..copy.clone() });
        }
    }
}

/// The constants that stand for several tensors all the same, in the order of the file.
pub(crate) fn shared(graph: &GraphProto) -> Vec<Shared> {
    let of_metadata = several(graph).into_iter().map(|(index, kept, tensors)| {
        let mut names: Vec<String> = tensors.into_iter().map(|tensor| tensor.name).collect();
        names.swap(0, kept);
        Shared { constant: graph.initializer[index].name.clone(), tensors: names }
    });
    of_metadata.chain(same_in_script(graph)).collect()
}

/// The constants that stand for several tensors, judged by the nodes that read them: the index of each, the
/// tensors, and which of them keeps the constant's name.
fn several(graph: &GraphProto) -> Vec<(usize, usize, Vec<Tensor>)> {
    let torch_names = TorchNames::of(graph);
    let mut slots: HashMap<&str, Vec<InputSlot>> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for (position, input) in node.input.iter().enumerate() {
            slots.entry(input).or_default().push((index, position));
        }
    }
    let weights = graph.initializer.iter().enumerate();
    let weights =
        weights.filter(|(_, tensor)| tensor.element() == ElementType::F32 && !tensor.dims.is_empty());
    let found = weights.filter_map(|(index, tensor)| {
        let tensors = tensors(graph, &torch_names, &tensor.name, slots.get(tensor.name.as_str())?);
        let own = torch_names.own_name(&tensor.name);
        let kept = tensors.iter().position(|tensor| tensor.name == own).unwrap_or(0);
        (tensors.len() > 1).then_some((index, kept, tensors))
    });
    found.collect()
}

/// The tensors that nodes read the constant for. A node that does not say reads the one of the constant's
/// name.
fn tensors(graph: &GraphProto, torch_names: &TorchNames, constant: &str, slots: &[InputSlot]) -> Vec<Tensor> {
    let role = |(node, position): InputSlot| norm_role(&graph.node[node], position);
    let roles: HashSet<&str> = slots.iter().filter_map(|slot| role(*slot)).collect();
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for &slot in slots {
        let by_role = || {
            let owner = constant.rsplit_once('.').map_or(constant, |(owner, _)| owner);
            role(slot).filter(|_| roles.len() > 1).map(|role| format!("{owner}.{role}"))
        };
        let said = torch_names.of_input(&graph.node[slot.0], slot.1).or_else(by_role);
        let name = said.unwrap_or_else(|| torch_names.own_name(constant).to_owned());
        let statistic = role(slot).is_some_and(|role| role.starts_with("running"));
        let at = *known.entry(name).or_insert_with_key(|name| {
            tensors.push(Tensor { name: name.clone(), statistic: false, slots: Vec::new() });
            tensors.len() - 1
        });
        tensors[at].statistic |= statistic;
        tensors[at].slots.push(slot);
    }
    tensors
}

/// All names of values.
fn names(graph: &GraphProto) -> HashSet<String> {
    let constants = graph.initializer.iter().map(|tensor| &tensor.name);
    let inputs = graph.input.iter().map(|input| &input.name);
    constants.chain(inputs).chain(graph.node.iter().flat_map(|node| &node.output)).cloned().collect()
}

/// The name, or the next like it that nothing has.
fn free(name: &str, taken: &mut HashSet<String>) -> String {
    let mut found = name.to_owned();
    let mut number = 0;
    while !taken.insert(found.clone()) {
        number += 1;
        found = format!("{name}_{number}");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_forward;
    use syncline_onnx::{GraphBuilder, ModelProto};

    /// A norm that reads these constants, which hold `numbers`.
    fn norm(inputs: [&str; 4], numbers: &[f32]) -> ModelProto {
        let mut graph = GraphBuilder::new("norm");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let mut made: Vec<String> = Vec::new();
        for name in inputs {
            if !made.iter().any(|made| made == name) {
                made.push(graph.weight(name, &[2], numbers));
            }
        }
        let [scale, bias, mean, variance] = inputs;
        let y = graph.named("y", "BatchNormalization", &[&x, scale, bias, mean, variance], &[]);
        graph.output(&y);
        parse_forward(&graph.finish().to_bytes()).unwrap()
    }

    #[test]
    fn the_roles_of_a_norm_are_never_one_tensor_whoever_wrote_the_file() {
        #[rustfmt::skip]
        let cases = [
            (["n.weight", "n.bias", "n.bias", "n.weight"],     ["n.weight", "n.bias", "n.running_mean", "n.running_var"]),
            (["g", "b", "b", "g"],                             ["g", "b", "b.running_mean", "g.running_var"]),
            (["n.running_var", "n.b", "n.m", "n.running_var"], ["n.weight", "n.b", "n.m", "n.running_var"]),
            (["one", "two", "three", "four"],                  ["one", "two", "three", "four"]),
        ];
        for (read, want) in cases {
            for numbers in [[1.0, 1.0], [0.25, 0.5]] {
                let graph = norm(read, &numbers).graph.unwrap();
                let input = &graph.node[0].input[1..];
                assert_eq!(input, want, "{numbers:?}");
                let held = |name: &String| graph.initializer.iter().any(|tensor| tensor.name == *name);
                assert!(input.iter().all(held), "{read:?}");
            }
        }
    }

    #[test]
    fn a_name_that_is_taken_is_not_given_twice() {
        let mut taken = HashSet::from(["a".to_owned(), "a_1".to_owned()]);
        assert_eq!(["a", "b", "a"].map(|name| free(name, &mut taken)), ["a_2", "b", "a_3"]);
    }
}
