//! Nodes in an order in which every value is made before it is read.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::OnnxError;
use crate::proto::NodeProto;

/// Kahn's algorithm; among ready nodes the earliest goes first, so that a sorted graph stays as it is.
pub(crate) fn sort(nodes: &mut Vec<NodeProto>, reads: &[HashSet<String>]) -> Result<(), OnnxError> {
    let mut producer = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        producer
            .extend(node.output.iter().filter(|name| !name.is_empty()).map(|name| (name.as_str(), index)));
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut unmet = vec![0usize; nodes.len()];
    for (index, names) in reads.iter().enumerate() {
        let before: HashSet<usize> =
            names.iter().filter_map(|name| producer.get(name.as_str()).copied()).collect();
        unmet[index] = before.len();
        before.into_iter().for_each(|earlier| users[earlier].push(index));
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&index| unmet[index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &user in &users[index] {
            unmet[user] -= 1;
            if unmet[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if let Some(node) = on_a_cycle(&unmet, &users).map(|index| &nodes[index]) {
        return Err(OnnxError::Cycle { node: node.label().to_owned(), op: node.op_type.clone() });
    }
    let sorted = order.into_iter().map(|index| std::mem::take(&mut nodes[index])).collect();
    *nodes = sorted;
    Ok(())
}

/// A node on a cycle, of those that wait forever; others may only lie behind one. `None` if none waits.
fn on_a_cycle(unmet: &[usize], users: &[Vec<usize>]) -> Option<usize> {
    let mut waits_for: Vec<Option<usize>> = vec![None; unmet.len()];
    for (index, users) in users.iter().enumerate().filter(|(index, _)| unmet[*index] > 0) {
        users.iter().for_each(|&user| waits_for[user] = Some(index));
    }
    // Whoever waits, waits for one that waits: the way against the edges comes back to where it was.
    let mut at = unmet.iter().position(|&count| count > 0)?;
    while let Some(before) = waits_for[at].take() {
        at = before;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(reads: &[&str], makes: &str) -> NodeProto {
        let input = reads.iter().map(|&name| name.to_owned()).collect();
        NodeProto { input, output: vec![makes.to_owned()], name: makes.to_owned(), ..NodeProto::default() }
    }

    fn sorted(mut nodes: Vec<NodeProto>) -> Result<Vec<String>, OnnxError> {
        let reads: Vec<HashSet<String>> = nodes.iter().map(|n| n.input.iter().cloned().collect()).collect();
        sort(&mut nodes, &reads)?;
        Ok(nodes.into_iter().map(|node| node.name).collect())
    }

    #[test]
    fn every_value_is_made_before_it_is_read_and_what_is_sorted_stays() {
        assert_eq!(
            sorted(vec![node(&["b"], "c"), node(&["x"], "a"), node(&["a"], "b")]).unwrap(),
            ["a", "b", "c"]
        );
        assert_eq!(sorted(vec![node(&["x"], "b"), node(&["x"], "a")]).unwrap(), ["b", "a"]);
    }

    #[test]
    fn the_node_that_is_named_lies_on_the_cycle_and_not_behind_it() {
        let behind = node(&["b"], "behind");
        let nodes = vec![behind, node(&["x"], "before"), node(&["before", "b"], "a"), node(&["a"], "b")];
        let OnnxError::Cycle { node: named, .. } = sorted(nodes).unwrap_err() else {
            panic!("another fault")
        };
        assert!(["a", "b"].contains(&named.as_str()), "{named}");
        assert!(matches!(sorted(vec![node(&["a"], "a")]), Err(OnnxError::Cycle { .. })));
    }
}
