//! What the graphs inside a node read from outside.

use crate::proto::NodeProto;

/// Every name that subgraphs of a node mention; more than they capture, which does no harm.
pub fn captured(node: &NodeProto) -> Vec<&str> {
    let graphs = node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
    let mut names = Vec::new();
    for graph in graphs {
        names.extend(graph.output.iter().map(|output| output.name.as_str()));
        for inner in &graph.node {
            names.extend(inner.input.iter().map(String::as_str));
            names.extend(captured(inner));
        }
    }
    names
}
