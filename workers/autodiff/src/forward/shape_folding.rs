//! Sizes that exporters compute while the model runs, as constants.
//!
//! `Reshape(y, Shape(x))` and `Resize` to `Concat(Shape(x)[0:2], [8, 8])` leave ONNX Runtime without the
//! sizes of the result, though all but the batch are numbers. Here integer lists are followed through the
//! operators that take shapes apart and put them together; an entry is a number or the size of an open axis.
//! Where a list tells enough, a reshape gets a constant target (0 for an axis that stays, -1 for one that
//! follows from the others), a resize to sizes becomes one by scales where these are exact, and a slice at
//! half of the channels gets constant ends. An open size that moved to another axis is written beside the
//! result of its reshape: ONNX Runtime would take it for a size of its own, and gradients would look for
//! repeated axes while the model runs.

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

/// Writes constants where it can; returns whether anything has changed. Values behind them may have known
/// sizes then, so that a second time finds more.
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

/// What a reshape to these sizes makes, with the names of its open axes; `None` where nothing more than its
/// target says is known.
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
            // ONNX Runtime rounds the product down, in single precision where it runs and in double where it
            // infers shapes: a scale whose product falls short would lose an element.
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
mod tests;
