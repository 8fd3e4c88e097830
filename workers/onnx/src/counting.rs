//! A ready-made training graph that counts what is applied to its weights.

use crate::{
    builder::GraphBuilder,
    element::ElementType,
    proto::{ModelProto, TensorProto},
};

/// The gradient of each of `weights` weights `w` is 1, so that with SGD and learning rate 1 every weight is
/// minus the number of pushes that were applied to it. They begin with 0; the loss is 1, and there are no
/// data inputs.
pub fn counting(weights: usize) -> ModelProto {
    let mut graph = GraphBuilder::new("counting");
    let weight = graph.input("w", ElementType::F32, &[weights.into()]);
    // Its first value: nothing is counted yet.
    graph.constant(TensorProto::from_f32("w", &[weights], &vec![0.0; weights]));
    let zero = graph.constant(TensorProto::from_f32("zero", &[1], &[0.0]));
    let one = graph.constant(TensorProto::from_f32("one", &[1], &[1.0]));
    let scalar = graph.ints("scalar", &[]);
    // w * 0 + 1: the shape of w, the value 1.
    let nothing = graph.op("Mul", &[&weight, &zero], &[]);
    graph.named("w.grad", "Add", &[&nothing, &one], &[]);
    graph.named("loss", "Reshape", &[&one, &scalar], &[]);
    graph.named("loss_weight", "Reshape", &[&one, &scalar], &[]);
    for output in ["loss", "loss_weight", "w.grad"] {
        graph.output(output);
    }
    graph.finish()
}
