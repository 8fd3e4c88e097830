//! y = x with updates written, added, multiplied in, or kept where they are larger or smaller, at indices
//! (ScatterND, ScatterElements).
//!
//! * Written: the updates receive dy read at the indices, dx is dy with zeros written there. Indices that
//!   repeat have no defined order then, and so no gradient either; with a reduction they may.
//! * Added: dx = dy.
//! * Largest, smallest: whoever is equal to the result shares dy with its equals.
//! * Multiplied: each factor receives dy times the product of the others, which is the product of all factors
//!   but zeros, where no other factor is zero.

use syncline_onnx::proto::AttributeProto;
use syncline_onnx::{attr_int, attr_string};

use super::positions::wide;
use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn nd(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let indices = wide(n, n.input(1));
    rule(n, dy, &ScatterTarget { indices, ops: ["ScatterND", "GatherND"], axis: None })
}

pub(super) fn elements(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let axis = Some(attr_int("axis", n.node.int("axis", 0)));
    let indices = n.input(1).to_owned();
    rule(n, dy, &ScatterTarget { indices, ops: ["ScatterElements", "GatherElements"], axis })
}

fn rule(n: &mut NodeGrad<'_>, dy: &str, at: &ScatterTarget) -> Result<InputGrads, AutodiffError> {
    let (dx, updates) = match n.node.string("reduction", "none") {
        "none" => {
            let zeros = n.zeros_like(n.input(2));
            (at.scatter(n, dy, &zeros, "none"), at.gather(n, dy))
        }
        "add" => (dy.to_owned(), at.gather(n, dy)),
        "max" | "min" => extreme(n, dy, at),
        "mul" => product(n, dy, at),
        other => return Err(n.refuse(format!("reduction `{other}`"))),
    };
    Ok(vec![n.needs(0).then_some(dx), None, n.needs(2).then_some(updates)])
}

fn extreme(n: &mut NodeGrad<'_>, dy: &str, at: &ScatterTarget) -> (String, String) {
    let (x, updates, y) = (n.input(0), n.input(2), n.output().to_owned());
    let won = |n: &mut NodeGrad<'_>, value: &str, result: &str| {
        let equal = n.call("Equal", &[value, result]);
        n.mask(&equal)
    };
    let kept = won(n, x, &y);
    let results = at.gather(n, &y);
    let taken = won(n, updates, &results);
    let winners = at.scatter(n, &kept, &taken, "add");
    let share = n.call("Div", &[dy, &winners]);
    let dx = n.call("Mul", &[&share, &kept]);
    let shares = at.gather(n, &share);
    (dx, n.call("Mul", &[&shares, &taken]))
}

fn product(n: &mut NodeGrad<'_>, dy: &str, at: &ScatterTarget) -> (String, String) {
    let (x, updates) = (n.input(0), n.input(2));
    let (zero, one) = (n.number(0.0), n.number(1.0));
    let without_zeros = |n: &mut NodeGrad<'_>, value: &str| {
        let is_zero = n.call("Equal", &[value, &zero]);
        let factors = n.call("Where", &[&is_zero, &one, value]);
        (n.mask(&is_zero), factors)
    };
    let (zeros_of_x, x_factors) = without_zeros(n, x);
    let (zeros_of_updates, factors) = without_zeros(n, updates);
    let zeros = at.scatter(n, &zeros_of_x, &zeros_of_updates, "add");
    let all = at.scatter(n, &x_factors, &factors, "mul");
    let all = n.call("Mul", &[dy, &all]);
    // A factor counts if every zero of its element is its own.
    let others = |n: &mut NodeGrad<'_>, all: &str, zeros: &str, own: &str, factors: &str| {
        let alone = n.call("Equal", &[zeros, own]);
        let product = n.call("Div", &[all, factors]);
        n.call("Where", &[&alone, &product, &zero])
    };
    let dx = others(n, &all, &zeros, &zeros_of_x, &x_factors);
    let (all, zeros) = (at.gather(n, &all), at.gather(n, &zeros));
    (dx, others(n, &all, &zeros, &zeros_of_updates, &factors))
}

/// Where the updates go.
struct ScatterTarget {
    indices: String,
    /// The operators that write and read there.
    ops: [&'static str; 2],
    axis: Option<AttributeProto>,
}

impl ScatterTarget {
    fn scatter(&self, n: &mut NodeGrad<'_>, data: &str, updates: &str, reduction: &str) -> String {
        let reduction = (reduction != "none").then(|| attr_string("reduction", reduction));
        let attributes: Vec<AttributeProto> = self.axis.iter().cloned().chain(reduction).collect();
        n.emitter.op(self.ops[0], &[data, &self.indices, updates], &attributes)
    }

    fn gather(&self, n: &mut NodeGrad<'_>, data: &str) -> String {
        n.emitter.op(self.ops[1], &[data, &self.indices], self.axis.as_slice())
    }
}
