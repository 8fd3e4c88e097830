//! One way through the steps of a recurrent node: what it reads, and the states that it came through.
//!
//! Shapes: S steps, B samples, I numbers of a row of X, H of a state, G gates.

use syncline_onnx::{ElementType, attr_int};

use super::super::NodeGrad;
use super::super::lengths::{AxisRange, Length, cut};
use super::node::Recurrence;

/// The operands of one pass.
pub(super) struct Pass {
    /// From the last step to the first.
    pub(super) backwards: bool,
    /// Which of the node's passes it is, and how many there are.
    place: (usize, usize),
    pub(super) gates: i64,
    pub(super) hidden: i64,
    steps: Length,
    pub(super) samples: Length,
    /// `[S B, I]`.
    pub(super) x: String,
    /// `[G H, I]`.
    pub(super) w: String,
    /// `[G H, H]`.
    pub(super) r: String,
    /// Biases of the products with W and with R, `[G H]` each.
    pub(super) b: Option<(String, String)>,
    /// The first hidden state, `[B, H]`.
    pub(super) h0: String,
    /// The first cell state, `[B, H]`; LSTM alone has one.
    pub(super) c0: String,
    /// Where a sample has a step, `[S, B, 1]`; `None` if all samples are of full length.
    pub(super) within: Option<String>,
}

/// Hidden states of a pass.
pub(super) struct States {
    /// After each step, `[S, B, H]`; the first state where a sample has no step.
    pub(super) after: String,
    /// Before each step, `[S, B, H]`.
    pub(super) before: String,
    /// The same as rows, `[S B, H]`.
    pub(super) rows: String,
}

impl Pass {
    pub(super) fn of(n: &mut NodeGrad<'_>, node: &Recurrence, index: usize, backwards: bool) -> Self {
        let (x, place) = (n.input(0), (index, node.passes()));
        let (steps, samples) = (Length::of(n, x, 0), Length::of(n, x, 1));
        let width = node.gates * node.hidden;
        let b = match n.input(3) {
            "" => None,
            b => {
                let b = part(n, b, 0, place);
                let half = |n: &mut NodeGrad<'_>, half: i64| {
                    let (begin, size) = (Length::Known(half * width), Length::Known(width));
                    cut(n, &b, &AxisRange { axis: 0, begin, size })
                };
                Some((half(n, 0), half(n, 1)))
            }
        };
        let first = |n: &mut NodeGrad<'_>, input: usize| match n.input(input) {
            "" => {
                let shape = Length::lists(n, &[samples.clone(), Length::Known(node.hidden)]);
                n.zeros(&shape)
            }
            state => part(n, state, 0, place),
        };
        let (h0, c0) = (first(n, 5), first(n, 6));
        // Shape inference may not know what stands behind a Dropout.
        let of_row = Length::of(n, x, 2);
        let shape = Length::lists(n, &[Length::Known(-1), of_row]);
        let rows = n.call("Reshape", &[x, &shape]);
        Self {
            backwards,
            place,
            gates: node.gates,
            hidden: node.hidden,
            x: rows,
            w: part(n, n.input(1), 0, place),
            r: part(n, n.input(2), 0, place),
            b,
            h0,
            c0,
            within: within(n, &steps),
            steps,
            samples,
        }
    }

    /// The part of a value of the node, an output or the gradient of one, that belongs to this pass.
    pub(super) fn part(&self, n: &mut NodeGrad<'_>, value: &str, axis: i64) -> String {
        part(n, value, axis, self.place)
    }

    /// Rows of steps and samples, `[S, B, width]`, from `[S B, width]`.
    pub(super) fn in_steps(&self, n: &mut NodeGrad<'_>, rows: &str, width: i64) -> String {
        let shape = match (&self.steps, &self.samples) {
            (Length::Known(steps), _) => n.emitter.ints(&[*steps, -1, width]),
            (_, Length::Known(samples)) => n.emitter.ints(&[-1, *samples, width]),
            (steps, samples) => Length::lists(n, &[steps.clone(), samples.clone(), Length::Known(width)]),
        };
        n.call("Reshape", &[rows, &shape])
    }

    /// The hidden states that the pass came through.
    pub(super) fn states(&self, n: &mut NodeGrad<'_>) -> States {
        let known = n.node.output.iter().find(|output| !output.is_empty()).map_or("", String::as_str);
        let y = n.emitter.optional_output(known, 0);
        let mut after = self.part(n, &y, 1);
        if let Some(within) = &self.within {
            after = n.call("Where", &[within, &after, &self.h0]);
        }
        let zero = n.emitter.ints(&[0]);
        let first = n.call("Unsqueeze", &[&self.h0, &zero]);
        // Without the last of the pass, behind the first.
        let (from, to) = if self.backwards { (1, i64::MAX) } else { (0, -1) };
        let (from, to) = (n.emitter.ints(&[from]), n.emitter.ints(&[to]));
        let rest = n.call("Slice", &[&after, &from, &to, &zero]);
        let parts = if self.backwards { [&rest, &first] } else { [&first, &rest] };
        let before = n.emitter.op("Concat", &parts.map(String::as_str), &[attr_int("axis", 0)]);
        let rows = n.reshaped(&before, &[-1, self.hidden]);
        States { after, before, rows }
    }

    /// X W^T plus the bias of W, and that of R if asked, as rows.
    pub(super) fn gates_of_input(&self, n: &mut NodeGrad<'_>, both_biases: bool) -> String {
        let bias = self.b.as_ref().map(|(w, r)| if both_biases { n.call("Add", &[w, r]) } else { w.clone() });
        let operands = [Some(&self.x), Some(&self.w), bias.as_ref()];
        let operands: Vec<&str> = operands.into_iter().flatten().map(String::as_str).collect();
        n.emitter.op("Gemm", &operands, &[attr_int("transB", 1)])
    }

    /// Gate `index` of values with all gates side by side in their last axis.
    pub(super) fn gate(&self, n: &mut NodeGrad<'_>, values: &str, axis: usize, index: i64) -> String {
        self.gates(n, values, axis, index, 1)
    }

    /// Gates from `first` on, `count` of them.
    pub(super) fn gates(
        &self,
        n: &mut NodeGrad<'_>,
        values: &str,
        axis: usize,
        first: i64,
        count: i64,
    ) -> String {
        let (begin, size) = (Length::Known(first * self.hidden), Length::Known(count * self.hidden));
        cut(n, values, &AxisRange { axis, begin, size })
    }

    /// `value` where a sample has a step, 0 elsewhere.
    pub(super) fn or_zero(&self, n: &mut NodeGrad<'_>, value: String) -> String {
        self.or_number(n, value, 0.0)
    }

    /// `value` where a sample has a step, 1 elsewhere.
    pub(super) fn or_one(&self, n: &mut NodeGrad<'_>, value: String) -> String {
        self.or_number(n, value, 1.0)
    }

    fn or_number(&self, n: &mut NodeGrad<'_>, value: String, number: f64) -> String {
        match &self.within {
            Some(within) => {
                let number = n.number(number);
                n.call("Where", &[within, &value, &number])
            }
            None => value,
        }
    }
}

/// What belongs to one of several passes; the axis goes.
fn part(n: &mut NodeGrad<'_>, value: &str, axis: i64, (index, passes): (usize, usize)) -> String {
    if passes == 1 {
        let axes = n.emitter.ints(&[axis]);
        return n.call("Squeeze", &[value, &axes]);
    }
    let index = n.emitter.int(index as i64);
    n.emitter.op("Gather", &[value, &index], &[attr_int("axis", axis)])
}

/// Where a sample has a step, `[S, B, 1]`; `None` if the node does not read lengths.
fn within(n: &mut NodeGrad<'_>, steps: &Length) -> Option<String> {
    let lengths = n.input(4);
    if lengths.is_empty() {
        return None;
    }
    let (zero, one, last) = (n.emitter.int(0), n.emitter.int(1), n.emitter.ints(&[1]));
    let (count, first) = (steps.list(n), n.emitter.ints(&[0]));
    let count = n.call("Squeeze", &[&count, &first]);
    let numbers = n.call("Range", &[&zero, &count, &one]);
    let axes = n.emitter.ints(&[1, 2]);
    let numbers = n.call("Unsqueeze", &[&numbers, &axes]);
    let lengths = n.emitter.cast(lengths, ElementType::I64);
    let lengths = n.call("Unsqueeze", &[&lengths, &last]);
    Some(n.call("Less", &[&numbers, &lengths]))
}
