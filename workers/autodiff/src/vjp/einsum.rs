//! y = einsum of any number of operands: the gradient of an operand is the einsum of dy and the others.
//!
//! For `ij,jk->ik`, dA is `ik,jk->ij`. An index that only one operand has was summed over: its gradient is repeated, and so
//! is that of an index which the others have with size 1. An ellipsis is written out with letters that the equation does not use. Where an index occurs twice in one operand (a
//! diagonal), the gradient gets a letter of its own for the second axis and an identity matrix as another factor: for
//! `ii->i`, dA is `i,ij->ij`.

use std::collections::HashMap;

use syncline_onnx::{Dim, attr_ints, attr_string};

use super::{InputGrads, NodeGrad};
use crate::AutodiffError;
use crate::broadcast::unbroadcast;

pub(super) fn rule(n: &mut NodeGrad<'_>, dy: &str) -> Result<InputGrads, AutodiffError> {
    let equation = Equation::of(n)?;
    let mut grads = Vec::new();
    for operand in 0..equation.terms.len() {
        let grad = if n.needs(operand) { Some(gradient(n, &equation, operand, dy)?) } else { None };
        grads.push(grad);
    }
    Ok(grads)
}

fn gradient(
    n: &mut NodeGrad<'_>,
    equation: &Equation,
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
            let (terms, values): (Vec<String>, Vec<String>) = in_order(n, &factors).into_iter().unzip();
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

/// The factors, their axes in the order in which the letters first occur in the equation.
///
/// ONNX Runtime turns an operand that has them in another order itself, which costs the same as its `Transpose`, but divides by
/// zero where a selection left no elements, and ends the process (seen in 1.31.1).
fn in_order(n: &mut NodeGrad<'_>, factors: &[(&[char], &str)]) -> Vec<(String, String)> {
    let mut seen: Vec<char> = Vec::new();
    let mut ordered = Vec::new();
    for (term, value) in factors {
        for letter in *term {
            if !seen.contains(letter) {
                seen.push(*letter);
            }
        }
        let mut axes: Vec<usize> = (0..term.len()).collect();
        axes.sort_by_key(|axis| seen.iter().position(|letter| *letter == term[*axis]));
        let value = if axes.is_sorted() {
            (*value).to_owned()
        } else {
            let perm: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
            n.emitter.op("Transpose", &[value], &[attr_ints("perm", &perm)])
        };
        ordered.push((axes.iter().map(|axis| term[*axis]).collect(), value));
    }
    ordered
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

/// Whether the gradient of an operand may have size 1 along its axis `letter`, of size `own`, because another operand has.
fn is_short(
    n: &NodeGrad<'_>,
    equation: &Equation,
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

/// Brings the gradient to the operand's shape: axes that were summed away are repeated, repeated ones are summed.
fn repeated(
    n: &mut NodeGrad<'_>,
    equation: &Equation,
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

/// An equation without ellipses.
struct Equation {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
    /// Letters that the equation does not use.
    spare: Vec<char>,
    /// Size of each index, of those that are not 1 if there are any.
    sizes: HashMap<char, Dim>,
}

impl Equation {
    fn of(n: &NodeGrad<'_>) -> Result<Self, AutodiffError> {
        let text: String = n.node.string("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        let mut spare: Vec<char> =
            ('a'..='z').chain('A'..='Z').filter(|letter| !text.contains(*letter)).collect();
        let mut terms = Vec::new();
        let mut sizes: HashMap<char, Dim> = HashMap::new();
        let mut widest = 0;
        for (index, part) in parts.iter().enumerate() {
            let dims = n.dims(n.input(index))?;
            let letters = part.chars().filter(|c| *c != '.').count();
            let hidden = dims.len().saturating_sub(letters);
            if hidden > spare.len() {
                return Err(n.refuse("it has more axes than letters".to_owned()));
            }
            widest = widest.max(hidden);
            let term = written_out(part, &spare[..hidden]);
            if term.len() != dims.len() {
                return Err(n.refuse(format!("operand `{part}` does not fit its shape")));
            }
            for (letter, dim) in term.iter().zip(dims) {
                let known = sizes.entry(*letter).or_insert_with(|| dim.clone());
                if *known == Dim::Fixed(1) {
                    known.clone_from(dim);
                }
            }
            terms.push(term);
        }
        let result = match right {
            Some(right) => written_out(right, &spare[..widest]),
            None => implicit(&terms, &spare[..widest]),
        };
        let spare = spare.split_off(widest);
        if terms.iter().any(|term| term.len() > spare.len()) {
            return Err(n.refuse("it has more axes than letters".to_owned()));
        }
        Ok(Self { terms, result, spare, sizes })
    }

    /// The term of an operand with a letter of its own for each axis, and the pairs of letters that must be equal.
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

/// The letters of a term; an ellipsis stands for `hidden`, whose last letter is its last axis.
fn written_out(part: &str, hidden: &[char]) -> Vec<char> {
    match part.split_once("...") {
        Some((before, after)) => {
            before.chars().chain(hidden.iter().rev().copied()).chain(after.chars()).collect()
        }
        None => part.chars().collect(),
    }
}

/// The result that an equation without `->` means: the ellipsis, then letters that occur once, in order.
fn implicit(terms: &[Vec<char>], hidden: &[char]) -> Vec<char> {
    let all: Vec<char> = terms.iter().flatten().copied().collect();
    let once = |letter: &&char| all.iter().filter(|other| other == letter).count() == 1;
    let mut single: Vec<char> = all.iter().filter(once).filter(|c| !hidden.contains(c)).copied().collect();
    single.sort_unstable();
    hidden.iter().rev().copied().chain(single).collect()
}
