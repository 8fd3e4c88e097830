//! Which node of a model ends the process that loads it: the last of the fewest nodes that do.

use std::collections::HashSet;

use syncline_onnx::{ModelProto, proto::ValueInfoProto};

/// The model cut off behind its first `count` nodes: what nobody reads there is an output.
pub(super) fn first_nodes(mut model: ModelProto, count: usize) -> ModelProto {
    let Some(graph) = &mut model.graph else { return model };
    graph.node.truncate(count);
    let read: HashSet<&str> = graph.node.iter().flat_map(|node| &node.input).map(String::as_str).collect();
    let made = graph.node.iter().flat_map(|node| &node.output);
    let ends = made.filter(|name| !name.is_empty() && !read.contains(name.as_str()));
    let ends: Vec<ValueInfoProto> =
        ends.map(|name| ValueInfoProto { name: name.clone(), ..Default::default() }).collect();
    graph.output = ends;
    graph.value_info.clear();
    model
}

/// The least count from 1 to `all` for which `ends` holds, if it holds for `all`; it is asked about
/// log2(`all`) times. `None` as soon as it cannot be told.
pub(super) fn smallest_crashing(all: usize, mut ends: impl FnMut(usize) -> Option<bool>) -> Option<usize> {
    if all == 0 || !ends(all)? {
        return None;
    }
    let (mut good, mut bad) = (0, all);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if ends(middle)? { bad = middle } else { good = middle }
    }
    Some(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::mlp;

    #[test]
    fn the_first_count_that_ends_the_process_is_found() {
        for all in 1..20 {
            for wanted in 1..=all {
                assert_eq!(smallest_crashing(all, |count| Some(count >= wanted)), Some(wanted));
            }
            assert_eq!(smallest_crashing(all, |_| Some(false)), None);
            assert_eq!(smallest_crashing(all, |_| None), None);
        }
        assert_eq!(smallest_crashing(0, |_| Some(true)), None);
    }

    #[test]
    fn what_is_left_of_a_model_ends_where_nobody_reads_on() {
        let part = first_nodes(mlp(&[3, 4, 2], 1), 2).graph.unwrap_or_default();
        assert_eq!((part.node.len(), part.output.len()), (2, 1));
        assert_eq!(part.output[0].name, part.node[1].output[0]);
    }
}
