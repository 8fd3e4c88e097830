//! Where the numbers of an input are, while operators only pick and move them.
//!
//! Every number is followed by its place in the input, through the same picks and moves. Axes whose size
//! nobody knows are given one; what picks along them is not followed.

use std::collections::HashMap;

use syncline_onnx::Dim;
use syncline_onnx::proto::{GraphProto, NodeProto, TensorProto};

/// Stands for the size of an open axis; few other axes have it.
const OPEN_SIZE: usize = 7;
/// Inputs with more numbers than this are not followed.
const MOST_NUMBERS: usize = 1 << 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    /// Whether it is the batch, or has another size at another time.
    is_open: bool,
}

/// A tensor of places in the input.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    /// Unknown behind a move to a computed shape: nothing can be picked then.
    axes: Option<Vec<Axis>>,
    /// In row-major order of the axes, where these are known.
    places: Vec<u32>,
}

impl Positions {
    /// The input itself, whose first axis is the batch.
    pub(super) fn of(dims: &[Dim]) -> Option<Self> {
        let axis = |(index, dim): (usize, &Dim)| Axis {
            size: dim.fixed().unwrap_or(OPEN_SIZE),
            is_open: index == 0 || dim.fixed().is_none(),
        };
        let axes: Vec<Axis> = dims.iter().enumerate().map(axis).collect();
        let count = product(axes.iter().map(|axis| axis.size)).filter(|&count| count <= MOST_NUMBERS)?;
        Some(Self { axes: Some(axes), places: (0..count as u32).collect() })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|&place| place as usize)
    }

    /// What a node makes of them as its first input, one for each output; none if it does something else to
    /// them.
    pub(super) fn after(&self, node: &NodeProto, constants: &Constants<'_>) -> Vec<Self> {
        let moved = |axes: Option<Self>| vec![axes.unwrap_or_else(|| self.of_unknown_shape())];
        match node.op_type.as_str() {
            // Of numbers that have rows, a Cast changes none.
            "Cast" | "Identity" => vec![self.clone()],
            "Expand" => vec![self.of_unknown_shape()],
            "Reshape" => moved(self.reshaped(node, constants)),
            "Flatten" => moved(self.flattened(node)),
            "Squeeze" => moved(self.squeezed(node, constants)),
            "Unsqueeze" => moved(self.unsqueezed(node, constants)),
            "Transpose" => moved(self.transposed(node)),
            "Gather" => self.gathered(node, constants).into_iter().collect(),
            "Slice" => self.sliced(node, constants).into_iter().collect(),
            "Split" => self.split(node, constants).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn of_unknown_shape(&self) -> Self {
        Self { axes: None, places: self.places.clone() }
    }

    fn with_axes(&self, axes: Vec<Axis>) -> Option<Self> {
        let count = product(axes.iter().map(|axis| axis.size));
        (count == Some(self.len())).then(|| Self { axes: Some(axes), places: self.places.clone() })
    }

    fn reshaped(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let axes = self.axes.as_ref()?;
        let target = constants.numbers(node, 1)?;
        let keeps_zero = node.int("allowzero", 0) != 0;
        let size = |(index, &size): (usize, &i64)| match size {
            0 if !keeps_zero => Some(axes.get(index)?.size),
            -1 => Some(1),
            size => usize::try_from(size).ok(),
        };
        let mut sizes: Vec<usize> = target.iter().enumerate().map(size).collect::<Option<_>>()?;
        if let Some(rest) = target.iter().position(|&size| size == -1) {
            sizes[rest] = self.len().checked_div(product(sizes.iter().copied())?)?;
        }
        self.regrouped(&sizes)
    }

    fn flattened(&self, node: &NodeProto) -> Option<Self> {
        let axes = self.axes.as_ref()?;
        // Behind the last axis is a place as well.
        let at = match node.int("axis", 1) {
            at if at < 0 => at + axes.len() as i64,
            at => at,
        };
        let (front, back) = axes.split_at_checked(usize::try_from(at).ok()?)?;
        let all = |axes: &[Axis]| product(axes.iter().map(|axis| axis.size));
        self.regrouped(&[all(front)?, all(back)?])
    }

    /// The same numbers in the same order. Axes stay that are in front and at the back on both sides; what is
    /// between them is of open sizes if an open axis is part of it.
    fn regrouped(&self, sizes: &[usize]) -> Option<Self> {
        let from = self.axes.as_ref()?;
        let is_same = |(axis, size): &(&Axis, &usize)| axis.size == **size;
        let front = from.iter().zip(sizes).take_while(is_same).count();
        let (rest, new) = (&from[front..], &sizes[front..]);
        let back = rest.iter().rev().zip(new.iter().rev()).take_while(is_same).count();
        let (middle, last) = rest.split_at(rest.len() - back);
        let is_open = middle.iter().any(|axis| axis.is_open);
        let between = new[..new.len() - back].iter().map(|&size| Axis { size, is_open });
        let axes = from[..front].iter().copied().chain(between).chain(last.iter().copied());
        self.with_axes(axes.collect())
    }

    fn squeezed(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let axes = self.axes.as_ref()?;
        let gone: Vec<usize> = match node.input.get(1).is_some_and(|name| !name.is_empty()) {
            true => indices(&constants.numbers(node, 1)?, axes.len())?,
            false => (0..axes.len()).filter(|&index| axes[index].size == 1).collect(),
        };
        let kept = axes.iter().enumerate().filter(|(index, _)| !gone.contains(index));
        self.with_axes(kept.map(|(_, axis)| *axis).collect())
    }

    fn unsqueezed(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let mut old = self.axes.as_ref()?.iter().copied();
        let new = constants.numbers(node, 1)?;
        let count = old.len() + new.len();
        let new = indices(&new, count)?;
        let one = Axis { size: 1, is_open: false };
        let axis = |index| if new.contains(&index) { Some(one) } else { old.next() };
        self.with_axes((0..count).map(axis).collect::<Option<_>>()?)
    }

    fn transposed(&self, node: &NodeProto) -> Option<Self> {
        let axes = self.axes.as_ref()?;
        let order = match node.ints("perm") {
            Some(order) => indices(order, axes.len())?,
            None => (0..axes.len()).rev().collect(),
        };
        let moved = self.with_axes(order.iter().map(|&from| axes[from]).collect())?;
        let strides = self.strides()?;
        let mut from = vec![0];
        for of in order {
            let (size, stride) = (axes[of].size, strides[of]);
            let along = |first: usize| (0..size).map(move |index| first + index * stride);
            from = from.into_iter().flat_map(along).collect();
        }
        let places = from.into_iter().map(|from| self.places.get(from).copied());
        Some(Self { places: places.collect::<Option<_>>()?, ..moved })
    }

    /// How far apart two neighbors along each axis are.
    fn strides(&self) -> Option<Vec<usize>> {
        let axes = self.axes.as_ref()?;
        let stride = |index: usize| axes[index + 1..].iter().map(|axis| axis.size).product();
        Some((0..axes.len()).map(stride).collect())
    }

    fn gathered(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let axis = index(node.int("axis", 0), self.axes.as_ref()?.len())?;
        let chosen = indices(&constants.numbers(node, 1)?, self.axes.as_ref()?[axis].size)?;
        let new = constants.shape(node, 1)?.into_iter().map(|size| Axis { size, is_open: false });
        let mut picked = self.picked(axis, &chosen)?;
        picked.axes.as_mut()?.splice(axis..=axis, new);
        Some(picked)
    }

    fn sliced(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let (starts, ends) = (constants.numbers(node, 1)?, constants.numbers(node, 2)?);
        let optional = |slot: usize, default: fn(usize) -> i64| match node
            .input
            .get(slot)
            .is_some_and(|name| !name.is_empty())
        {
            true => constants.numbers(node, slot),
            false => Some((0..starts.len()).map(default).collect()),
        };
        let (axes, steps) = (optional(3, |index| index as i64)?, optional(4, |_| 1)?);
        let mut picked = self.clone();
        for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
            // Exporters write the whole of an axis in this way, whatever its size.
            if start == 0 && step == 1 && end >= i64::from(i32::MAX) {
                continue;
            }
            let axis = index(axis, self.axes.as_ref()?.len())?;
            picked = picked.picked(axis, &slice(start, end, step, self.axes.as_ref()?[axis].size)?)?;
        }
        Some(picked)
    }

    fn split(&self, node: &NodeProto, constants: &Constants<'_>) -> Option<Vec<Self>> {
        let axis = index(node.int("axis", 0), self.axes.as_ref()?.len())?;
        let size = self.axes.as_ref()?[axis].size;
        let lengths: Vec<usize> = match node.input.get(1).is_some_and(|name| !name.is_empty()) {
            true => constants.numbers(node, 1)?.iter().map(|&size| size as usize).collect(),
            // The last one has what is left.
            false => vec![size.div_ceil(node.output.len().max(1)); node.output.len()],
        };
        let begins = lengths.iter().scan(0usize, |end, length| {
            let begin = *end;
            *end = end.saturating_add(*length);
            Some((begin.min(size), (*end).min(size)))
        });
        begins.map(|(begin, end)| self.picked(axis, &(begin..end).collect::<Vec<_>>())).collect()
    }

    /// What is at these indices of an axis of known size.
    fn picked(&self, axis: usize, chosen: &[usize]) -> Option<Self> {
        let mut axes = self.axes.clone()?;
        let Axis { size, is_open } = axes[axis];
        if is_open {
            return None;
        }
        let inner = self.strides()?[axis];
        if size * inner == 0 || self.len() / size * chosen.len() > MOST_NUMBERS {
            return None;
        }
        let outer = self.places.chunks(size * inner);
        let places = outer.flat_map(|all| chosen.iter().map(move |&at| &all[at * inner..][..inner]));
        let places = places.flatten().copied().collect();
        axes[axis].size = chosen.len();
        Some(Self { axes: Some(axes), places })
    }
}

/// An index, which may count from the end, into so many.
fn index(index: i64, size: usize) -> Option<usize> {
    let from_front = if index < 0 { index.checked_add(size as i64)? } else { index };
    usize::try_from(from_front).ok().filter(|&index| index < size)
}

fn indices(all: &[i64], size: usize) -> Option<Vec<usize>> {
    all.iter().map(|&one| index(one, size)).collect()
}

/// The indices of a slice of an axis, as ONNX bounds its ends.
fn slice(start: i64, end: i64, step: i64, size: usize) -> Option<Vec<usize>> {
    let size = size as i64;
    let (least, most) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let bounded = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(least, most);
    let (start, end) = (bounded(start), bounded(end));
    let is_before_end = |at: &i64| if step < 0 { *at > end } else { *at < end };
    let all = std::iter::successors(Some(start), |at| at.checked_add(step)).take_while(is_before_end);
    (step != 0).then(|| all.map(|at| at as usize).collect())
}

fn product(mut sizes: impl Iterator<Item = usize>) -> Option<usize> {
    sizes.try_fold(1usize, usize::checked_mul)
}

/// Constants of a graph, by name.
pub(super) struct Constants<'g>(HashMap<&'g str, &'g TensorProto>);

impl<'g> Constants<'g> {
    pub(super) fn of(graph: &'g GraphProto) -> Self {
        let held = graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor));
        let made = graph.node.iter().filter(|node| node.op_type == "Constant");
        let made = made
            .filter_map(|node| Some((node.output.first()?.as_str(), node.attribute("value")?.t.as_ref()?)));
        Self(held.chain(made).collect())
    }

    fn tensor(&self, node: &NodeProto, slot: usize) -> Option<&'g TensorProto> {
        self.0.get(node.input.get(slot)?.as_str()).copied()
    }

    fn numbers(&self, node: &NodeProto, slot: usize) -> Option<Vec<i64>> {
        self.tensor(node, slot)?.to_i64()
    }

    fn shape(&self, node: &NodeProto, slot: usize) -> Option<Vec<usize>> {
        Some(self.tensor(node, slot)?.shape())
    }
}
