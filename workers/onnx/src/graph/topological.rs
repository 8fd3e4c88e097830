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
    if let Some(stuck) = unmet.iter().position(|&count| count > 0) {
        let node = &nodes[stuck];
        return Err(OnnxError::Cycle { node: node.label().to_owned(), op: node.op_type.clone() });
    }
    let sorted = order.into_iter().map(|index| std::mem::take(&mut nodes[index])).collect();
    *nodes = sorted;
    Ok(())
}
