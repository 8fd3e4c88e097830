//! What the outputs of a graph need, and what they do not.

use super::{Graph, Node, ValueId};
use crate::proto::GraphProto;

/// Operators whose outputs behind the first are optional; those that a rule asked for and nobody reads cost
/// time.
const OPTIONAL_OUTPUTS: &[&str] = &["Dropout", "LayerNormalization", "MaxPool"];

impl Graph {
    /// The graph without the nodes, constants and optional outputs that its outputs do not need. Its inputs
    /// stay.
    pub fn remove_dead(self) -> GraphProto {
        self.split_off_dead().0
    }

    /// The same, without the inputs that its outputs do not need.
    pub fn remove_dead_and_inputs(self) -> GraphProto {
        let (mut graph, is_live) = self.split_off_dead();
        graph.input.retain(|input| is_live(&input.name));
        graph
    }

    /// The living part of the graph, and whether the value of a name is live.
    fn split_off_dead(self) -> (GraphProto, impl Fn(&str) -> bool) {
        let mut live = vec![false; self.value_count()];
        self.graph_outputs().for_each(|output| live[output.0] = true);
        live[ValueId::OMITTED.0] = false;
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for mut node in self.nodes.into_iter().rev() {
            if !node.outputs.iter().any(|output| live[output.0]) {
                continue;
            }
            let reads = node.inputs.iter().chain(&node.captures);
            reads.filter(|value| **value != ValueId::OMITTED).for_each(|value| live[value.0] = true);
            trim(&mut node, &live);
            nodes.push(node.proto);
        }
        nodes.reverse();
        let names = self.names;
        let is_live = move |name: &str| names.get(name).is_some_and(|value| live[value.0]);
        let constants = self.constants.into_iter().filter(|tensor| is_live(&tensor.name)).collect();
        (GraphProto { node: nodes, initializer: constants, ..self.interface }, is_live)
    }
}

/// Takes optional outputs away that nothing reads.
fn trim(node: &mut Node, live: &[bool]) {
    let standard = node.proto.domain.is_empty();
    if !standard || !OPTIONAL_OUTPUTS.contains(&node.proto.op_type.as_str()) {
        return;
    }
    let mut kept = 1;
    for (index, (name, value)) in node.proto.output.iter_mut().zip(&node.outputs).enumerate().skip(1) {
        if live[value.0] {
            kept = index + 1;
        } else {
            name.clear();
        }
    }
    node.proto.output.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, NodeProto, ValueInfoProto};
    use crate::{ElementType, GraphBuilder};

    /// x -> MaxPool -> y; x -> Exp -> e; the outputs of the graph are these.
    fn pruned(outputs: &[&str], inner: Option<&str>) -> GraphProto {
        let mut builder = GraphBuilder::new("dead");
        let x = builder.input("x", ElementType::F32, &[1.into(), 1.into(), 4.into(), 4.into()]);
        builder.named("y", "MaxPool", &[&x], &[]);
        builder.named("e", "Exp", &[&x], &[]);
        builder.weight("w", &[1], &[1.0]);
        let mut graph = Graph::from(builder.finish().graph.unwrap());
        let (pool, x) = (graph.producer(graph.value("y").unwrap()).unwrap(), graph.value("x").unwrap());
        let positions = graph.optional_output(pool, 1);
        assert_eq!(graph.optional_output(pool, 1), positions);
        graph.rename(positions, "positions");
        if let Some(read) = inner {
            let inner = GraphProto { output: vec![ValueInfoProto::untyped(read)], ..GraphProto::default() };
            let branch = AttributeProto { g: Some(inner), ..AttributeProto::default() };
            graph.push(NodeProto::named("branch", "If", &[graph.name(x)], &[branch]));
        }
        outputs.iter().for_each(|name| graph.push_output(ValueInfoProto::untyped(*name)));
        graph.remove_dead()
    }

    #[test]
    fn only_what_the_outputs_need_stays() {
        #[rustfmt::skip]
        let cases: [(&str, &[&str], Option<&str>, &[&[&str]]); 5] = [
            ("one output",           &["y"],              None,      &[&["y"]]),
            ("an optional output",   &["positions"],      None,      &[&["y", "positions"]]),
            ("both nodes",           &["e", "y"],         None,      &[&["y"], &["e"]]),
            ("a subgraph reads",     &["branch"],         Some("e"), &[&["e"], &["branch"]]),
            ("a constant",           &["w"],              None,      &[]),
        ];
        for (name, outputs, inner, want) in cases {
            let graph = pruned(outputs, inner);
            let found: Vec<&[String]> = graph.node.iter().map(|node| node.output.as_slice()).collect();
            assert_eq!(found, want, "{name}");
            assert_eq!(graph.initializer.len(), usize::from(outputs == ["w"]), "{name}");
        }
    }
}
