//! What the graphs inside a node read from outside.

use crate::proto::NodeProto;

/// Every name that subgraphs of a node mention; more than they capture, which does no harm.
pub fn captured(node: &NodeProto) -> Vec<&str> {
    let mut names = Vec::new();
    for graph in node.subgraphs() {
        names.extend(graph.output.iter().map(|output| output.name.as_str()));
        for inner in &graph.node {
            names.extend(inner.input.iter().map(String::as_str));
            names.extend(captured(inner));
        }
    }
    names
}
