//! y = einsum of any number of operands: the gradient of an operand is the einsum of dy and the others.
//!
//! For `ij,jk->ik`, dA is `ik,jk->ij`. An index that only one operand has was summed over: its gradient is
//! repeated, and so is that of an index which the others have with size 1. An ellipsis is written out with
//! letters that the equation does not use. Where an index occurs twice in one operand (a diagonal), the
//! gradient gets a letter of its own for the second axis and an identity matrix as another factor: for
//! `ii->i`, dA is `i,ij->ij`.

use std::collections::HashMap;

use syncline_onnx::{Dim, attr_string};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::unbroadcast;
use crate::einsum::{Equation, axes_in_order, reordered, transposed};

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let equation = SizedEquation::of(n)?;
    let mut grads = Vec::new();
    for operand in 0..equation.terms.len() {
        let grad = if n.needs(operand) { Some(gradient(n, &equation, operand, dy)?) } else { None };
        grads.push(grad);
    }
    Ok(grads)
}

fn gradient(
    n: &mut NodeGrad<'_>,
    equation: &SizedEquation,
    operand: usize,
    dy: &str,
) -> Result<String, AutodiffError> {
    let (term, twins) = equation.apart(operand);
    let others: Vec<usize> = (0..equation.terms.len()).filter(|other| *other != operand).collect();
    let elsewhere = |letter: &char| {
        equation.result.contains(letter)
            || others.iter().any(|other| equation.terms[*other].contains(letter))
            || twins.iter().flatten().any(|twin| twin == letter)
    };
    let present: Vec<char> = term.iter().copied().filter(elsewhere).collect();

    let identities: Vec<String> = twins
        .iter()
        .map(|pair| identity(n, operand, term.iter().position(|letter| *letter == pair[1]).unwrap_or(0)))
        .collect();
    let mut factors: Vec<(&[char], &str)> =
        others.iter().map(|&other| (equation.terms[other].as_slice(), n.input(other))).collect();
    factors.extend(twins.iter().zip(&identities).map(|(pair, eye)| (pair.as_slice(), eye.as_str())));
    // A dy without axes is multiplied at the end: not every runtime reads an empty term.
    if !equation.result.is_empty() {
        factors.insert(0, (&equation.result, dy));
    }
    let mut grad = match factors.as_slice() {
        [] => dy.to_owned(),
        [(only, value)] if *only == present => (*value).to_owned(),
        _ => {
            let terms: Vec<&[char]> = factors.iter().map(|(term, _)| *term).collect();
            let axes = axes_in_order(&terms);
            let values: Vec<String> = factors
                .iter()
                .zip(&axes)
                .map(|((_, value), axes)| transposed(n.emitter, value, axes))
                .collect();
            let terms: Vec<String> =
                terms.iter().zip(&axes).map(|(term, axes)| reordered(term, axes).iter().collect()).collect();
            let text = format!("{}->{}", terms.join(","), present.iter().collect::<String>());
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            n.emitter.op("Einsum", &values, &[attr_string("equation", &text)])
        }
    };
    if equation.result.is_empty() && !factors.is_empty() {
        grad = n.emitter.op("Mul", &[&grad, dy], &[]);
    }
    repeated(n, equation, operand, &term, grad, &elsewhere)
}

/// The identity matrix as large as this axis of an operand.
fn identity(n: &mut NodeGrad<'_>, operand: usize, axis: usize) -> String {
    let value = n.input(operand);
    let shape = n.shape(value);
    let axis = n.emitter.ints(&[axis as i64, axis as i64]);
    let square = n.call("Gather", &[&shape, &axis]);
    let zeros = n.zeros(&square);
    n.call("EyeLike", &[&zeros])
}

/// Whether the gradient of an operand may have size 1 along its axis `letter`, of size `own`, because another
/// operand has.
fn is_short(
    n: &NodeGrad<'_>,
    equation: &SizedEquation,
    operand: usize,
    letter: char,
    own: &Dim,
) -> Result<bool, AutodiffError> {
    // The result has the largest size.
    if equation.result.contains(&letter) || *own == Dim::Fixed(1) {
        return Ok(false);
    }
    for (other, term) in equation.terms.iter().enumerate().filter(|(other, _)| *other != operand) {
        let dims = n.dims(n.input(other))?;
        if term.iter().zip(dims).any(|(found, dim)| *found == letter && !dim.same(own)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Brings the gradient to the operand's shape: axes that were summed away are repeated, repeated ones are
/// summed.
fn repeated(
    n: &mut NodeGrad<'_>,
    equation: &SizedEquation,
    operand: usize,
    term: &[char],
    mut grad: String,
    elsewhere: &dyn Fn(&char) -> bool,
) -> Result<String, AutodiffError> {
    let value = n.input(operand);
    let to = n.dims(value)?;
    let missing: Vec<i64> =
        (0..).zip(term).filter(|(_, letter)| !elsewhere(letter)).map(|(axis, _)| axis).collect();
    let from: Vec<Dim> = term
        .iter()
        .zip(to)
        .map(|(letter, own)| match elsewhere(letter) {
            true => equation.sizes.get(letter).unwrap_or(own).clone(),
            false => own.clone(),
        })
        .collect();
    let mut short = !missing.is_empty();
    for (letter, own) in equation.terms[operand].iter().zip(to) {
        short |= is_short(n, equation, operand, *letter, own)?;
    }
    if !missing.is_empty() {
        let axes = n.emitter.ints(&missing);
        grad = n.emitter.op("Unsqueeze", &[&grad, &axes], &[]);
    }
    if short {
        let shape = n.emitter.op("Shape", &[value], &[]);
        grad = n.emitter.op("Expand", &[&grad, &shape], &[]);
    }
    Ok(unbroadcast(n.emitter, &grad, &from, value, to))
}

/// An equation and how large its indices are.
struct SizedEquation {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
    /// Letters that the equation does not use, as many as any term has.
    spare: Vec<char>,
    /// Size of each index, of those that are not 1 if there are any.
    sizes: HashMap<char, Dim>,
}

impl SizedEquation {
    fn of(n: &NodeGrad<'_>) -> Result<Self, AutodiffError> {
        let dims: Vec<&[Dim]> = n.node.input.iter().map(|input| n.dims(input)).collect::<Result<_, _>>()?;
        let ranks: Vec<usize> = dims.iter().map(|dims| dims.len()).collect();
        let equation = Equation::parse(n.node.string("equation", ""), &ranks);
        let Equation { terms, result, spare, .. } = equation.map_err(|reason| n.refuse(reason))?;
        if terms.iter().any(|term| term.len() > spare.len()) {
            return Err(n.refuse("it has more axes than letters".to_owned()));
        }
        let mut sizes: HashMap<char, Dim> = HashMap::new();
        for (letter, dim) in terms.iter().flatten().zip(dims.iter().copied().flatten()) {
            let known = sizes.entry(*letter).or_insert_with(|| dim.clone());
            if *known == Dim::Fixed(1) {
                known.clone_from(dim);
            }
        }
        Ok(Self { terms, result, spare, sizes })
    }

    /// The term of an operand with a letter of its own for each axis, and the pairs of letters that must be
    /// equal.
    fn apart(&self, operand: usize) -> (Vec<char>, Vec<[char; 2]>) {
        let (mut term, mut twins) = (Vec::new(), Vec::new());
        for (&letter, &spare) in self.terms[operand].iter().zip(&self.spare) {
            if term.contains(&letter) {
                twins.push([letter, spare]);
                term.push(spare);
            } else {
                term.push(letter);
            }
        }
        (term, twins)
    }
}
