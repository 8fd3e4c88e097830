//! The equation of an `Einsum`, its ellipsis written out with letters that it does not use.

use syncline_onnx::attr_ints;

use crate::emitter::Emitter;

/// An equation without ellipses.
pub(crate) struct Equation {
    pub(crate) terms: Vec<Vec<char>>,
    pub(crate) result: Vec<char>,
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
        let spare = spare.split_off(widest);
        Ok(Self { terms, result, spare })
    }
}

/// The operands, their axes in the order in which the letters first occur, and the terms that they have then.
///
/// ONNX Runtime turns an operand that has them in another order itself, which costs the same as its `Transpose`, but divides by
/// zero where a selection left no elements, and ends the process (seen in 1.31.1).
pub(crate) fn in_order(e: &mut Emitter, operands: &[(&[char], &str)]) -> (Vec<Vec<char>>, Vec<String>) {
    let letters = first_occurrences(operands.iter().map(|(term, _)| *term));
    let ordered = operands.iter().map(|(term, value)| {
        let mut axes: Vec<usize> = (0..term.len()).collect();
        axes.sort_by_key(|axis| letters.iter().position(|letter| *letter == term[*axis]));
        let value = if axes.is_sorted() {
            (*value).to_owned()
        } else {
            let perm: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
            e.op("Transpose", &[value], &[attr_ints("perm", &perm)])
        };
        (axes.iter().map(|axis| term[*axis]).collect(), value)
    });
    ordered.unzip()
}

/// Whether every operand has its axes in that order.
pub(crate) fn is_in_order(terms: &[Vec<char>]) -> bool {
    let letters = first_occurrences(terms.iter().map(Vec::as_slice));
    terms.iter().all(|term| term.is_sorted_by_key(|letter| letters.iter().position(|other| other == letter)))
}

/// The letters of all terms, each once.
fn first_occurrences<'a>(terms: impl Iterator<Item = &'a [char]>) -> Vec<char> {
    let mut letters: Vec<char> = Vec::new();
    for letter in terms.flatten() {
        if !letters.contains(letter) {
            letters.push(*letter);
        }
    }
    letters
}

/// The text of an equation.
pub(crate) fn equation_text<'a>(terms: impl IntoIterator<Item = &'a [char]>, result: &[char]) -> String {
    let terms: Vec<String> = terms.into_iter().map(|term| term.iter().collect()).collect();
    format!("{}->{}", terms.join(","), result.iter().collect::<String>())
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
