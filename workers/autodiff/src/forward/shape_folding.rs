//! Sizes that exporters compute while the model runs, as constants.
//!
//! `Reshape(y, Shape(x))` and `Resize` to `Concat(Shape(x)[0:2], [8, 8])` leave ONNX Runtime without the sizes of the
//! result, though all but the batch are numbers. Here integer lists are followed through the operators that take shapes
//! apart and put them together; an entry is a number or the size of an open axis. Where a list tells enough, a reshape
//! gets a constant target (0 for an axis that stays, -1 for one that follows from the others), a resize to sizes
//! becomes one by scales where these are exact, and a slice at half of the channels gets constant ends. An open size that moved to another axis is written beside the result of its reshape: ONNX Runtime
//! would take it for a size of its own, and gradients would look for repeated axes while the model runs.

use std::collections::{HashMap, HashSet};

use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use syncline_onnx::{Dim, TensorType, Types};

use super::int_constants::IntConstants;

/// An entry of an integer list.
#[derive(Debug, Clone, PartialEq)]
enum Entry {
    Known(i64),
    /// The size of an axis that has this name.
    Open(Dim),
}

/// Writes constants where it can; returns whether anything has changed. Values behind them may have known sizes then,
/// so that a second time finds more.
pub(crate) fn fold_shapes(graph: &mut GraphProto, types: &Types) -> bool {
    let constants = IntConstants::of(graph);
    let mut lists: HashMap<String, Vec<Entry>> = HashMap::new();
    let (taken, mut made, mut declared) = (names(graph), Vec::new(), Vec::new());
    for node in graph.node.iter_mut().filter(|node| node.domain.is_empty()) {
        let list = |position: usize| {
            let name = node.input.get(position)?;
            let constant =
                constants.get(name).map(|list| list.iter().map(|&size| Entry::Known(size)).collect());
            constant.or_else(|| lists.get(name).cloned())
        };
        if let (Some(entries), Some(output)) = (follow(node, &list, types), node.output.first()) {
            lists.insert(output.clone(), entries);
            continue;
        }
        let computed =
            |position: usize| node.input.get(position).is_some_and(|name| constants.get(name).is_none());
        let (target, position) = match node.op_type.as_str() {
            "Reshape" if computed(1) => {
                let sizes = list(1);
                declared.extend(sizes.as_ref().and_then(|sizes| result(node, sizes, types)));
                (sizes.and_then(|sizes| target(node, &sizes, types)), 1)
            }
            "Resize" if computed(3) && is_plain_resize(node) => {
                let sizes = list(3);
                let scales = sizes.as_ref().and_then(|sizes| scales(node, sizes, types));
                if scales.is_none() {
                    declared.extend(sizes.as_ref().and_then(|sizes| result(node, sizes, types)));
                }
                (scales, 2)
            }
            "Slice" | "Split" | "Tile" | "Expand" | "Pad" => {
                let known = (1..node.input.len()).filter(|&position| computed(position));
                let known = known.filter_map(|position| Some((position, numbers(&list(position)?)?)));
                for (position, numbers) in known.collect::<Vec<_>>() {
                    let output = node.output.first().map_or("", String::as_str);
                    let name = format!("{output}/numbers_{position}");
                    if !taken.contains(&name) {
                        made.push(TensorProto::from_i64(&name, &[numbers.len()], &numbers));
                        node.input[position] = name;
                    }
                }
                continue;
            }
            _ => continue,
        };
        let Some(mut tensor) = target else { continue };
        tensor.name = format!("{}/sizes", node.output.first().map_or("", String::as_str));
        if taken.contains(&tensor.name) {
            continue;
        }
        node.input.truncate(position + 1);
        node.input[position].clone_from(&tensor.name);
        made.push(tensor);
    }
    // What is declared already tells nobody anything new.
    declared.retain(|value| !graph.value_info.contains(value));
    let changed = !(made.is_empty() && declared.is_empty());
    graph.initializer.extend(made);
    let renewed: HashSet<&String> = declared.iter().map(|value: &ValueInfoProto| &value.name).collect();
    graph.value_info.retain(|value| !renewed.contains(&value.name));
    graph.value_info.extend(declared);
    changed
}

/// Every name that stands for a value.
fn names(graph: &GraphProto) -> HashSet<String> {
    let inputs = graph.input.iter().map(|input| &input.name);
    let constants = graph.initializer.iter().map(|tensor| &tensor.name);
    inputs.chain(constants).chain(graph.node.iter().flat_map(|node| &node.output)).cloned().collect()
}

/// The list that a node makes of others.
fn follow(node: &NodeProto, list: &dyn Fn(usize) -> Option<Vec<Entry>>, types: &Types) -> Option<Vec<Entry>> {
    match node.op_type.as_str() {
        "Shape" => {
            let dims = &types.get(node.input.first()?)?.dims;
            let end = bounded(node.int("end", i64::MAX), dims.len());
            let entry = |dim: &Dim| match dim.fixed() {
                Some(size) => Entry::Known(i64::try_from(size).unwrap_or(i64::MAX)),
                None => Entry::Open(dim.clone()),
            };
            Some(dims.get(bounded(node.int("start", 0), dims.len())..end)?.iter().map(entry).collect())
        }
        "Add" | "Sub" | "Mul" | "Div" => elementwise(&node.op_type, &list(0)?, &list(1)?),
        "Identity" | "Squeeze" => list(0),
        // Of more numbers it makes a table, of which others take rows.
        "Unsqueeze" => list(0).filter(|entries| entries.len() == 1),
        "Cast" if node.int("to", 0) == 7 => list(0),
        "Concat" if node.int("axis", 0) == 0 => {
            (0..node.input.len()).map(list).collect::<Option<Vec<_>>>().map(|lists| lists.concat())
        }
        "Gather" if node.int("axis", 0) == 0 => {
            let (from, indices) = (list(0)?, list(1)?);
            let pick = |index: &Entry| match index {
                Entry::Known(index) if *index < from.len() as i64 => {
                    let index = if *index < 0 { index + from.len() as i64 } else { *index };
                    from.get(usize::try_from(index).ok()?).cloned()
                }
                _ => None,
            };
            indices.iter().map(pick).collect()
        }
        "Slice" => {
            let from = list(0)?;
            let one = |position: usize| match list(position)?.as_slice() {
                [Entry::Known(number)] => Some(*number),
                _ => None,
            };
            let stepped = node.input.get(4).is_some_and(|name| !name.is_empty()) && one(4)? != 1;
            let (start, end) = (bounded(one(1)?, from.len()), bounded(one(2)?, from.len()));
            from.get(start..end).filter(|_| !stepped).map(<[Entry]>::to_vec)
        }
        _ => None,
    }
}

/// Arithmetic of two lists, of which one may have a single entry for all of the other.
fn elementwise(op: &str, left: &[Entry], right: &[Entry]) -> Option<Vec<Entry>> {
    let length = left.len().max(right.len());
    let at = |list: &[Entry], at: usize| match list {
        [entry] => Some(entry.clone()),
        list => list.get(at).cloned(),
    };
    let entry = |position: usize| match (at(left, position)?, at(right, position)?) {
        (Entry::Known(left), Entry::Known(right)) => Some(Entry::Known(match op {
            "Add" => left.checked_add(right)?,
            "Sub" => left.checked_sub(right)?,
            "Mul" => left.checked_mul(right)?,
            _ => left.checked_div(right)?,
        })),
        (open @ Entry::Open(_), Entry::Known(same)) if same == i64::from(matches!(op, "Mul" | "Div")) => {
            Some(open)
        }
        _ => None,
    };
    (0..length).map(entry).collect()
}

/// The list, if all of it is known.
fn numbers(entries: &[Entry]) -> Option<Vec<i64>> {
    let number = |entry: &Entry| match entry {
        Entry::Known(number) => Some(*number),
        Entry::Open(_) => None,
    };
    entries.iter().map(number).collect()
}

/// A position in a list of this length; negative ones count from the back.
fn bounded(position: i64, length: usize) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let front = if position < 0 { position.saturating_add(length) } else { position };
    usize::try_from(front.clamp(0, length)).unwrap_or(0)
}

/// The target of a reshape, if one entry at most is left to ONNX Runtime.
fn target(node: &NodeProto, sizes: &[Entry], types: &Types) -> Option<TensorProto> {
    let from = &types.get(node.input.first()?)?.dims;
    if node.int("allowzero", 0) != 0 {
        return None;
    }
    let stays = |at: usize, dim: &Dim| from.get(at).is_some_and(|from| from.same(dim));
    let entry = |(at, entry): (usize, &Entry)| match entry {
        Entry::Known(size) => *size,
        Entry::Open(dim) if stays(at, dim) => 0,
        Entry::Open(_) => -1,
    };
    let entries: Vec<i64> = sizes.iter().enumerate().map(entry).collect();
    let left = entries.iter().filter(|&&size| size < 0).count();
    (left <= 1).then(|| TensorProto::from_i64("", &[entries.len()], &entries))
}

/// What a reshape to these sizes makes, with the names of its open axes; `None` where nothing more than its target says
/// is known.
fn result(node: &NodeProto, sizes: &[Entry], types: &Types) -> Option<ValueInfoProto> {
    let (from, output) = (types.get(node.input.first()?)?, node.output.first()?);
    let dim = |entry: &Entry| match entry {
        Entry::Known(size) => usize::try_from(*size).ok().filter(|size| *size > 0).map(Dim::Fixed),
        Entry::Open(dim) => Some(dim.clone()),
    };
    let named = sizes.iter().any(|entry| matches!(entry, Entry::Open(Dim::Symbol(_))));
    let dims = sizes.iter().map(dim).collect::<Option<Vec<_>>>().filter(|_| named)?;
    Some(TensorType::new(from.element, dims).to_value_info(output))
}

/// Whether a resize gives its result the sizes that it is told.
fn is_plain_resize(node: &NodeProto) -> bool {
    node.ints("axes").is_none() && node.string("keep_aspect_ratio_policy", "stretch") == "stretch"
}

/// The scales of a resize to these sizes, if every axis that changes has a known size before and after.
fn scales(node: &NodeProto, sizes: &[Entry], types: &Types) -> Option<TensorProto> {
    let from = &types.get(node.input.first()?)?.dims;
    if from.len() != sizes.len() {
        return None;
    }
    let scale = |(from, to): (&Dim, &Entry)| match (from.fixed(), to) {
        (Some(from), Entry::Known(to)) if from > 0 && *to > 0 => {
            let scale = *to as f32 / from as f32;
            // ONNX Runtime rounds the product down, in single precision where it runs and in double where it infers shapes: a
            // scale whose product falls short would lose an element.
            let runs = (scale * from as f32).floor() == *to as f32;
            (runs && (f64::from(scale) * from as f64).floor() == *to as f64).then_some(scale)
        }
        (None, Entry::Open(to)) if from.same(to) => Some(1.0),
        _ => None,
    };
    let scales: Option<Vec<f32>> = from.iter().zip(sizes).map(scale).collect();
    scales.map(|scales| TensorProto::from_f32("", &[scales.len()], &scales))
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_onnx::{ElementType, GraphBuilder, TensorType, attr_int};

    /// x `[batch, 6, time, 8]` with what `then` makes of it; the types of x and of `like`, which has the same shape.
    fn graph(then: impl FnOnce(&mut GraphBuilder, &str) -> String) -> (GraphProto, Types) {
        let mut graph = GraphBuilder::new("shapes").with_opset(18);
        let dims = ["batch".into(), 6.into(), "time".into(), 8.into()];
        let ty = TensorType::new(ElementType::F32, dims.to_vec());
        let x = graph.input("x", ElementType::F32, &dims);
        let y = then(&mut graph, &x);
        graph.output(&y);
        (graph.finish().graph.unwrap(), Types::from([(x, ty)]))
    }

    /// The constant that the last node reads at this position after the rewriting.
    fn constant(graph: &GraphProto, position: usize) -> Option<&TensorProto> {
        let name = graph.node.last()?.input.get(position)?;
        graph.initializer.iter().find(|tensor| tensor.name == *name)
    }

    #[test]
    fn targets_of_reshapes() {
        #[rustfmt::skip]
        #[allow(clippy::type_complexity, reason = "a table")]
        let cases: [(&str, fn(&mut GraphBuilder, &str) -> String, Option<&[i64]>); 8] = [
            ("the whole shape", |g, x| g.op("Shape", &[x], &[]), Some(&[0, 6, 0, 8])),
            ("a part of it", |g, x| g.op("Shape", &[x], &[attr_int("start", -3), attr_int("end", 3)]),
                Some(&[6, -1])),
            ("gathered and put together", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                let (first, rest, zero) = (g.ints("first", &[0]), g.ints("rest", &[-1]), g.ints("zero", &[0]));
                let batch = g.op("Gather", &[&shape, &first], &[]);
                let batch = g.op("Squeeze", &[&batch, &zero], &[]);
                let batch = g.op("Unsqueeze", &[&batch, &zero], &[]);
                g.op("Concat", &[&batch, &rest], &[attr_int("axis", 0)])
            }, Some(&[0, -1])),
            ("sliced", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                let (start, end) = (g.ints("start", &[1]), g.ints("end", &[i64::MAX]));
                g.op("Slice", &[&shape, &start, &end], &[])
            }, Some(&[6, -1, 8])),
            ("two open sizes that moved", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                let indices = g.ints("indices", &[2, 0, 1]);
                g.op("Gather", &[&shape, &indices], &[])
            }, None),
            ("computed otherwise", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                g.op("Add", &[&shape, &shape], &[])
            }, None),
            ("half of the channels", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                let factors = g.ints("factors", &[1, 4, 1, 1]);
                let (add, more) = (g.ints("add", &[0]), g.ints("more", &[0, -2, 0, 1]));
                let divisors = g.ints("divisors", &[1, 7, 1, 2]);
                let sizes = g.op("Mul", &[&shape, &factors], &[]);
                let sizes = g.op("Add", &[&sizes, &add], &[]);
                let sizes = g.op("Sub", &[&sizes, &more], &[]);
                g.op("Div", &[&sizes, &divisors], &[])
            }, Some(&[0, 3, 0, 3])),
            ("by nothing", |g, x| {
                let shape = g.op("Shape", &[x], &[]);
                let zero = g.ints("zero", &[0]);
                g.op("Div", &[&shape, &zero], &[])
            }, None),
        ];
        for (name, sizes, want) in cases {
            let (mut graph, types) = graph(|graph, x| {
                let sizes = sizes(graph, x);
                graph.op("Reshape", &[x, &sizes], &[])
            });
            let named = name == "two open sizes that moved";
            assert_eq!(fold_shapes(&mut graph, &types), want.is_some() || named, "{name}");
            let found = constant(&graph, 1).and_then(TensorProto::to_i64);
            assert_eq!(found.as_deref(), want, "{name}");
            assert!(!fold_shapes(&mut graph, &types), "{name}: a second time finds nothing");
        }
    }

    /// As exporters write attention: all axes but two in one, and apart again.
    #[test]
    fn an_open_size_keeps_its_name_where_a_reshape_moves_it() {
        let (mut graph, types) = graph(|graph, x| {
            let shape = graph.op("Shape", &[x], &[]);
            let apart = graph.ints("apart", &[2, 0]);
            let sizes = graph.op("Gather", &[&shape, &apart], &[]);
            let rest = graph.ints("rest", &[48]);
            let sizes = graph.op("Concat", &[&sizes, &rest], &[attr_int("axis", 0)]);
            graph.op("Reshape", &[x, &sizes], &[])
        });
        let y = graph.node.last().unwrap().output[0].clone();
        assert!(fold_shapes(&mut graph, &types), "types are inferred anew with the sizes that were declared");
        assert!(!fold_shapes(&mut graph, &types), "a second time declares nothing else");
        let declared: Vec<_> = graph.value_info.iter().filter(|value| value.name == y).collect();
        let [value] = declared.as_slice() else { panic!("{declared:?}") };
        let dims = TensorType::from_value_info(value).unwrap().dims;
        assert_eq!(dims, [Dim::from("time"), Dim::from("batch"), Dim::from(48)]);
    }

    /// As exporters write `chunk`.
    #[test]
    fn a_slice_at_half_of_an_axis_has_constant_ends() {
        let (mut graph, types) = graph(|graph, x| {
            let shape = graph.op("Shape", &[x], &[]);
            let axis = graph.ints("axis", &[1]);
            let channels = graph.op("Gather", &[&shape, &axis], &[]);
            let two = graph.ints("two", &[2]);
            let half = graph.op("Div", &[&channels, &two], &[]);
            graph.op("Slice", &[x, &half, &channels, &axis], &[])
        });
        assert!(fold_shapes(&mut graph, &types));
        let found = [1, 2].map(|position| constant(&graph, position).and_then(TensorProto::to_i64));
        assert_eq!(found.map(Option::unwrap), [vec![3], vec![6]]);
        assert!(!fold_shapes(&mut graph, &types), "a second time finds nothing");
    }

    #[test]
    fn sizes_of_a_resize_become_scales() {
        let resize = |time: usize, width: i64| {
            let (mut graph, types) = graph(|graph, x| {
                let shape = graph.op("Shape", &[x], &[]);
                let indices = graph.ints("indices", &[0, 1, time as i64]);
                let kept = graph.op("Gather", &[&shape, &indices], &[]);
                let width = graph.ints("width", &[width]);
                let sizes = graph.op("Concat", &[&kept, &width], &[attr_int("axis", 0)]);
                graph.op("Resize", &[x, "", "", &sizes], &[])
            });
            fold_shapes(&mut graph, &types);
            constant(&graph, 2).and_then(|tensor| tensor.to_f32().ok())
        };
        assert_eq!(resize(2, 20), Some(vec![1.0, 1.0, 1.0, 2.5]));
        assert_eq!(resize(0, 20), None, "the open axis would get another size");
        assert_eq!(resize(2, 0), None);
    }

    /// 7 / 6 as a float falls short of 7 / 6: ONNX Runtime would infer six channels, and make seven.
    #[test]
    fn a_resize_whose_scales_would_be_inexact_keeps_its_sizes_which_are_declared() {
        let (mut graph, types) = graph(|graph, x| {
            let shape = graph.op("Shape", &[x], &[]);
            let (kept, channels) = (graph.ints("kept", &[0]), graph.ints("channels", &[7]));
            let rest = graph.ints("rest", &[2, 3]);
            let first = graph.op("Gather", &[&shape, &kept], &[]);
            let last = graph.op("Gather", &[&shape, &rest], &[]);
            let sizes = graph.op("Concat", &[&first, &channels, &last], &[attr_int("axis", 0)]);
            graph.op("Resize", &[x, "", "", &sizes], &[])
        });
        assert!(fold_shapes(&mut graph, &types));
        assert!(graph.node.last().unwrap().input[3].starts_with("concat"), "the sizes stay");
        let y = graph.node.last().unwrap().output[0].clone();
        let declared = graph.value_info.iter().find(|value| value.name == y).unwrap();
        let dims = TensorType::from_value_info(declared).unwrap().dims;
        assert_eq!(dims, ["batch".into(), 7.into(), "time".into(), Dim::from(8)]);
        assert!(!fold_shapes(&mut graph, &types), "a second time finds nothing");
    }

    #[test]
    fn rows_of_a_table_are_no_entries_of_a_list() {
        let (mut graph, types) = graph(|graph, x| {
            let table = graph.constant(TensorProto::from_i64("table", &[2, 2], &[6, -1, 8, -1]));
            let row = graph.constant(TensorProto::from_i64("row", &[], &[1]));
            let sizes = graph.op("Gather", &[&table, &row], &[]);
            graph.op("Reshape", &[x, &sizes], &[])
        });
        assert!(!fold_shapes(&mut graph, &types));
    }

    #[test]
    fn hostile_positions_are_left_alone() {
        for index in [i64::MIN, i64::MAX, 4, -5] {
            let (mut graph, types) = graph(|graph, x| {
                let shape = graph.op("Shape", &[x], &[]);
                let indices = graph.ints("indices", &[index]);
                let sizes = graph.op("Gather", &[&shape, &indices], &[]);
                graph.op("Reshape", &[x, &sizes], &[])
            });
            assert!(!fold_shapes(&mut graph, &types), "{index}");
        }
    }
}
