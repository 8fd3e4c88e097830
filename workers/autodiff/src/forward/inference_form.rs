//! A whole model as it predicts: what leaves Syncline computes the same for a sample alone as in any batch.

use std::collections::HashSet;

use syncline_onnx::captured;
use syncline_onnx::proto::{GraphProto, ModelProto};

use super::training_form::evaluation_form;

/// The model with every BatchNormalization on the statistics that it remembers, and with no Dropout, however
/// it was exported. Graphs inside of nodes and functions are changed as well.
pub fn inference_form(mut model: ModelProto) -> ModelProto {
    model.graph = model.graph.map(form);
    for function in &mut model.functions {
        let graph = GraphProto { node: std::mem::take(&mut function.node), ..GraphProto::default() };
        // What leaves a function is read wherever it is called.
        function.node = formed(&graph).node;
    }
    model
}

fn form(graph: GraphProto) -> GraphProto {
    let before: HashSet<String> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    let were_read = read_of(&graph);
    let mut graph = formed(&graph);
    let read = read_of(&graph);
    // Running statistics after a step that nobody reads; other idle nodes are the user's own.
    graph.node.retain(|node| {
        let idle = node.output.iter().all(|output| !read.contains(output));
        !(idle && node.op_type == "Identity" && node.output.iter().all(|output| before.contains(output)))
    });
    remove_idle(&mut graph, &were_read);
    graph
}

/// Names of all values that something reads, inner graphs included, or that leave the graph.
fn read_of(graph: &GraphProto) -> HashSet<String> {
    let mut read: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    for node in &graph.node {
        read.extend(node.input.iter().cloned());
        read.extend(captured(node).into_iter().map(str::to_owned));
    }
    read
}

/// Removes what made values that were read before and are not now, such as the rate of a Dropout that is
/// gone: ONNX Runtime warns of constants that nobody reads.
fn remove_idle(graph: &mut GraphProto, were_read: &HashSet<String>) {
    loop {
        let read = read_of(graph);
        // A constant that is an input as well would have to be fed.
        let inputs: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        let idle = |name: &String| were_read.contains(name) && !read.contains(name);
        let parts = graph.node.len() + graph.initializer.len();
        graph.initializer.retain(|tensor| !idle(&tensor.name) || inputs.contains(tensor.name.as_str()));
        graph.node.retain(|node| {
            let is_read = node.output.iter().any(|output| read.contains(output));
            is_read || !node.output.iter().any(idle)
        });
        if graph.node.len() + graph.initializer.len() == parts {
            return;
        }
        graph.value_info.retain(|value| !idle(&value.name));
    }
}

fn formed(graph: &GraphProto) -> GraphProto {
    let mut graph = evaluation_form(graph);
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.g = attribute.g.take().map(form);
        attribute.graphs = std::mem::take(&mut attribute.graphs).into_iter().map(form).collect();
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::proto::{NodeProto, TensorProto, ValueInfoProto};
    use syncline_onnx::{ElementType, GraphBuilder, attr_int};

    #[test]
    fn norms_evaluate_nothing_drops_and_what_a_step_would_remember_is_gone() {
        let mut graph = GraphBuilder::new("training form");
        let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
        let [scale, bias, mean, variance] =
            ["scale", "bias", "mean", "variance"].map(|name| graph.weight(name, &[2], &[1.0; 2]));
        let ratio = graph.constant(TensorProto::from_f32("ratio", &[], &[0.5]));
        let on = graph.constant(TensorProto::from_bool("on", true));
        let y = graph.named("y", "Dropout", &[&x, &ratio, &on], &[]);
        let z = graph.named(
            "z",
            "BatchNormalization",
            &[&y, &scale, &bias, &mean, &variance],
            &[attr_int("training_mode", 1)],
        );
        graph.output(&z);
        let mut model = graph.finish();
        let inner = model.graph.as_mut().unwrap();
        inner.node.last_mut().unwrap().output.extend(["next_mean".to_owned(), "next_variance".to_owned()]);
        inner.output.push(ValueInfoProto::untyped("next_mean"));

        let formed = inference_form(model).graph.unwrap();
        let of = |node: &NodeProto| (node.op_type.clone(), node.output.clone(), node.attribute.len());
        let nodes: Vec<_> = formed.node.iter().map(of).collect();
        let want = [("Identity", "next_mean"), ("Identity", "y"), ("BatchNormalization", "z")];
        let want: Vec<_> =
            want.iter().map(|(op, output)| ((*op).to_owned(), vec![(*output).to_owned()], 0)).collect();
        assert_eq!(nodes, want);
        let constants: Vec<&str> = formed.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(constants, ["scale", "bias", "mean", "variance"]);
    }

    #[test]
    fn what_only_a_dropout_read_goes_with_it_and_what_was_idle_before_stays() {
        let mut graph = GraphBuilder::new("dropout");
        let x = graph.input("x", ElementType::F32, &[2.into()]);
        let shared = graph.constant(TensorProto::from_f32("shared", &[], &[0.5]));
        let scale = graph.constant(TensorProto::from_f32("scale", &[], &[0.5]));
        graph.constant(TensorProto::from_f32("idle", &[], &[0.5]));
        let ratio = graph.named("ratio", "Mul", &[&scale, &scale], &[]);
        graph.named("idle_too", "Neg", &[&scale], &[]);
        let y = graph.named("y", "Dropout", &[&x, &ratio], &[]);
        let z = graph.named("z", "Dropout", &[&y, &shared], &[]);
        let out = graph.named("out", "Mul", &[&z, &shared], &[]);
        graph.output(&out);
        let formed = inference_form(graph.finish()).graph.unwrap();
        let nodes: Vec<&str> = formed.node.iter().map(|node| node.output[0].as_str()).collect();
        assert_eq!(nodes, ["idle_too", "y", "z", "out"]);
        let constants: Vec<&str> = formed.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(constants, ["shared", "scale", "idle"]);
    }
}
