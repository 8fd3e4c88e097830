//! y = x^p, element by element: dx = dy * p * x^(p-1) and dp = dy * y * log x, summed over what was repeated.
//!
//! Where p is 0, dx is 0 even at x = 0. Where x is not positive, y has no slope in p, and dp is 0. The
//! exponents of everyday models (2, 3, 1/2) are constants and need no power.

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let dx = if n.needs(0) {
        let slope = slope(n);
        let product = n.call("Mul", &[dy, &slope]);
        Some(n.summed_for(&product, 0)?)
    } else {
        None
    };
    let dp = if n.needs(1) { Some(exponent(n, dy)?) } else { None };
    Ok(vec![dx, dp])
}

/// p * x^(p-1).
fn slope(n: &mut NodeGrad<'_>) -> String {
    let (x, y) = (n.input(0), n.output());
    let known = n.emitter.known_float(n.input(1));
    if known == Some(0.5) {
        let half = n.number(0.5);
        return n.call("Div", &[&half, y]);
    }
    if let Some(p) = known.filter(|p| [2.0, 3.0].contains(p)) {
        let factor = n.number(p);
        let power = if p == 2.0 { x.to_owned() } else { n.call("Mul", &[x, x]) };
        return n.call("Mul", &[&power, &factor]);
    }
    let p = exponent_as_base(n);
    let one = n.number(1.0);
    let less = n.call("Sub", &[&p, &one]);
    let power = n.call("Pow", &[x, &less]);
    let slope = n.call("Mul", &[&power, &p]);
    if known.is_some_and(|p| p != 0.0) {
        return slope;
    }
    let zero = n.number(0.0);
    let none = n.call("Equal", &[&p, &zero]);
    n.call("Where", &[&none, &zero, &slope])
}

/// dp, summed.
fn exponent(n: &mut NodeGrad<'_>, dy: &str) -> Result<String, AutodiffError> {
    let (x, y) = (n.input(0), n.output());
    let (zero, one) = (n.number(0.0), n.number(1.0));
    let positive = n.call("Greater", &[x, &zero]);
    let safe = n.call("Where", &[&positive, x, &one]);
    let log = n.call("Log", &[&safe]);
    let product = n.call("Mul", &[y, &log]);
    let product = n.call("Mul", &[dy, &product]);
    // y may be infinite or no number where x is not positive.
    let product = n.call("Where", &[&positive, &product, &zero]);
    let sum = n.summed_for(&product, 1)?;
    let element = n.types.get(n.input(1)).map(|ty| ty.element);
    Ok(match element.filter(|element| *element != n.element()) {
        Some(element) => n.emitter.cast(&sum, element),
        None => sum,
    })
}

/// The exponent in the element type of the base; the standard lets them differ.
fn exponent_as_base(n: &mut NodeGrad<'_>) -> String {
    let (p, element) = (n.input(1), n.element());
    let same = n.types.get(p).is_none_or(|ty| ty.element == element);
    if same { p.to_owned() } else { n.emitter.cast(p, element) }
}
