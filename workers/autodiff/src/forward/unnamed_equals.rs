//! Equal constants of a file that names nothing, such as the zeros with which all biases of a fresh Keras
//! model begin.
//!
//! PyTorch's older exporter keeps one of them and writes an `Identity` in the place of each other, even where
//! a layer is called twice, and no name of a node tells the one from the other. A layer that is called twice
//! has weights of random numbers as well, of which there is an `Identity` then: where there is none of those,
//! constants of equal numbers throughout are equal by chance.

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

use super::shared_weights::MOST_COPIED;
use super::unnamed_biases::unnamed_constants;
use super::untie_weights::{equal, is_made, is_uniform};

/// Gives each of them a constant of its own, under the name that it has in the graph.
pub(super) fn part_unnamed_equals(graph: &mut GraphProto) {
    let Some(constants) = unnamed_constants(graph) else { return };
    let copied_in = |node: &NodeProto| -> Option<(&TensorProto, String)> {
        let (input, output) = equal(node).filter(|(_, output)| is_made(output))?;
        Some((*constants.get(input)?, output.to_owned()))
    };
    let found: Vec<Option<(&TensorProto, String)>> = graph.node.iter().map(copied_in).collect();
    let numbers = |tensor: &TensorProto| tensor.shape().iter().product::<usize>();
    let copied = found.iter().flatten().map(|(tensor, _)| numbers(tensor)).fold(0, usize::saturating_add);
    if copied > MOST_COPIED || !found.iter().flatten().all(|(tensor, _)| is_uniform(tensor)) {
        return;
    }
    let apart: Vec<bool> = found.iter().map(Option::is_some).collect();
    let copy = |(tensor, name): (&TensorProto, String)| TensorProto { name, ..tensor.clone() };
    let copies: Vec<TensorProto> = found.into_iter().flatten().map(copy).collect();
    let mut apart = apart.into_iter();
    graph.node.retain(|_| !apart.next().unwrap_or_default());
    graph.initializer.extend(copies);
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder};

    /// Two layers whose biases are equal, and perhaps whose weights are; names of the constants in the end.
    fn constants(weight: &str, tied: bool) -> Vec<String> {
        let mut graph = GraphBuilder::new("equals");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let w = graph.weight(weight, &[2, 2], &[0.5, 1.0, -1.0, 2.0]);
        let b = graph.weight("onnx::Add_1", &[2], &[0.0; 2]);
        let second = if tied { graph.named("onnx::MatMul_2", "Identity", &[&w], &[]) } else { w.clone() };
        let other = graph.named("onnx::Add_3", "Identity", &[&b], &[]);
        let mut y = graph.op("MatMul", &[&x, &w], &[]);
        y = graph.op("Add", &[&y, &b], &[]);
        y = graph.op("MatMul", &[&y, &second], &[]);
        y = graph.op("Add", &[&y, &other], &[]);
        graph.output(&y);
        let mut graph = graph.finish().graph.unwrap();
        part_unnamed_equals(&mut graph);
        let identities = graph.node.iter().filter(|node| node.op_type == "Identity").count();
        assert_eq!(graph.initializer.len() + identities, if tied { 4 } else { 3 });
        graph.initializer.into_iter().map(|tensor| tensor.name).collect()
    }

    #[test]
    fn equal_biases_are_apart_unless_layers_are_called_twice_or_have_names() {
        #[rustfmt::skip]
        let cases: [(&str, bool, &[&str]); 3] = [
            ("onnx::MatMul_0", false, &["onnx::MatMul_0", "onnx::Add_1", "onnx::Add_3"]),
            ("onnx::MatMul_0", true,  &["onnx::MatMul_0", "onnx::Add_1"]),
            ("fc.weight",      false, &["fc.weight", "onnx::Add_1"]),
        ];
        for (weight, tied, want) in cases {
            assert_eq!(constants(weight, tied), want, "{weight} {tied}");
        }
    }
}
