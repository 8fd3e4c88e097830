//! The equation of an `Einsum`, its ellipsis written out with letters that it does not use.

use syncline_onnx::attr_ints;

use crate::emitter::Emitter;

/// An equation without ellipses.
pub(crate) struct Equation {
    pub(crate) terms: Vec<Vec<char>>,
    pub(crate) result: Vec<char>,
    /// Letters that stand for an ellipsis, in their order.
    pub(crate) ellipsis: Vec<char>,
    /// Letters that the equation does not use.
    pub(crate) spare: Vec<char>,
}

impl Equation {
    /// An equation whose operands have so many axes.
    ///
    /// # Errors
    ///
    /// Says why it does not fit them.
    pub(crate) fn parse(text: &str, ranks: &[usize]) -> Result<Self, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        if parts.len() != ranks.len() {
            return Err(format!("it has {} operands for {} inputs", parts.len(), ranks.len()));
        }
        let mut spare: Vec<char> =
            ('a'..='z').chain('A'..='Z').filter(|letter| !text.contains(*letter)).collect();
        let mut terms = Vec::new();
        let mut widest = 0;
        for (part, rank) in parts.iter().zip(ranks) {
            let letters = part.chars().filter(|c| *c != '.').count();
            let hidden = rank.saturating_sub(letters);
            if hidden > spare.len() {
                return Err("it has more axes than letters".to_owned());
            }
            widest = widest.max(hidden);
            let term = written_out(part, &spare[..hidden]);
            if term.len() != *rank {
                return Err(format!("operand `{part}` does not fit its shape"));
            }
            terms.push(term);
        }
        let result = match right {
            Some(right) => written_out(right, &spare[..widest]),
            None => implicit(&terms, &spare[..widest]),
        };
        let unused = spare.split_off(widest);
        let ellipsis = spare.into_iter().rev().collect();
        Ok(Self { terms, result, ellipsis, spare: unused })
    }
}

/// The axes of each term in the order in which the letters first occur.
///
/// ONNX Runtime turns an operand that has them in another order itself, which costs the same as its
/// `Transpose`, but divides by zero where a selection left no elements, and ends the process (seen in
/// 1.31.1).
pub(crate) fn axes_in_order(terms: &[&[char]]) -> Vec<Vec<usize>> {
    let letters = first_occurrences(terms);
    let ordered = terms.iter().map(|term| {
        let mut axes: Vec<usize> = (0..term.len()).collect();
        axes.sort_by_key(|axis| letters.iter().position(|letter| *letter == term[*axis]));
        axes
    });
    ordered.collect()
}

/// The letters of a term for these axes of it.
pub(crate) fn reordered(term: &[char], axes: &[usize]) -> Vec<char> {
    axes.iter().map(|axis| term[*axis]).collect()
}

/// An operand with its axes in another order.
pub(crate) fn transposed(e: &mut Emitter, value: &str, axes: &[usize]) -> String {
    if axes.is_sorted() {
        return value.to_owned();
    }
    let perm: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
    e.op("Transpose", &[value], &[attr_ints("perm", &perm)])
}

/// The letters of all terms, each once.
fn first_occurrences(terms: &[&[char]]) -> Vec<char> {
    let mut letters: Vec<char> = Vec::new();
    for letter in terms.iter().copied().flatten() {
        if !letters.contains(letter) {
            letters.push(*letter);
        }
    }
    letters
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
