//! Reading a forward model, with weights apart that PyTorch's older exporter has made one.
//!
//! Where that exporter writes a model for evaluation, it keeps one of all constants with equal numbers, and an `Identity`
//! in the place of each other. In a fresh model the scale of a normalisation is then the running variance as well, and
//! the scales of all layers are one. Nobody meant that: constants of equal numbers throughout become their own again.
//! Random numbers are only equal where weights are tied on purpose; those stay.

use std::collections::HashMap;

use crate::onnx::proto::{GraphProto, TensorProto};
use crate::onnx::{self, ElementType, ModelProto, OnnxError};

/// Reads and checks a forward model; what an exporter has made one by chance is apart again.
pub fn parse_forward(bytes: &[u8]) -> Result<ModelProto, OnnxError> {
    let mut model = onnx::parse(bytes)?;
    if model.producer_name == "pytorch" {
        untie(model.graph.get_or_insert_default());
    }
    Ok(model)
}

fn untie(graph: &mut GraphProto) {
    let uniform = graph.initializer.iter().filter(|tensor| is_uniform(tensor));
    let uniform: HashMap<String, TensorProto> =
        uniform.map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
    let mut copies = Vec::new();
    graph.node.retain(|node| {
        let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else { return true };
        match uniform.get(input).filter(|_| node.op_type == "Identity" && node.domain.is_empty()) {
            Some(tensor) => {
                copies.push(TensorProto { name: output.clone(), ..tensor.clone() });
                false
            }
            None => true,
        }
    });
    graph.initializer.extend(copies);
}

/// Whether a tensor of several numbers holds one number only.
fn is_uniform(tensor: &TensorProto) -> bool {
    tensor.element() == ElementType::F32
        && !tensor.dims.is_empty()
        && tensor.to_f32().is_ok_and(|numbers| numbers.windows(2).all(|pair| pair[0] == pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::GraphBuilder;

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
