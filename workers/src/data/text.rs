//! A text as characters: each is its index among the distinct characters of the text, ascending by code
//! point.
//!
//! Sample i begins at character i · stride and has `context` characters; its labels are the characters one
//! further.

use std::io;
use std::path::Path;

use super::array::{Array, Numbers};
use super::error::{DataError, FileError, FormatError, SettingError, ValueError};
use super::file::{MAX_ELEMENTS, Step, too_large};
use super::signature::{ModelSignature, Target};

/// Characters between two steps.
const STEP_CHARACTERS: usize = 1 << 20;

/// Reads a text: what stands at each position, and what follows.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    context: u32,
    stride: u32,
    wanted: &ModelSignature,
    step: &mut Step<'_>,
) -> Result<(Array, Array), DataError> {
    let format = |reason: String| DataError::from(FormatError::Malformed { path: path.to_owned(), reason });
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format(format!("byte {} is not UTF-8", error.valid_up_to() + 1)))?;
    if context == 0 {
        return Err(SettingError::Invalid { what: "`context` must be at least 1, not 0".to_owned() }.into());
    }
    let context = context as usize;
    let stride = if stride == 0 { context } else { stride as usize };
    let vocabulary = vocabulary(text);
    if let Some(classes) = distinguishable_characters(wanted).filter(|&classes| vocabulary.len() > classes) {
        return Err(ValueError::VocabularyTooLarge {
            path: path.to_owned(),
            found: vocabulary.len(),
            classes,
        }
        .into());
    }
    let numbers =
        encode(text, &vocabulary, step).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
    let length = numbers.len();
    if length as u64 > MAX_ELEMENTS {
        return Err(too_large(path, MAX_ELEMENTS, "characters"));
    }
    if length <= context {
        return Err(format(format!(
            "{length} characters are no sample of {context} and the one that follows"
        )));
    }
    let rows = (length - 1 - context) / stride + 1;
    let array = |numbers, offset| Array::overlapping(path, numbers, vec![context], rows, (offset, stride));
    Ok((array(numbers.clone(), 0), array(numbers, 1)))
}

/// Characters that the model has a row and an output for, as far as it has a table and classes.
fn distinguishable_characters(wanted: &ModelSignature) -> Option<usize> {
    let classes = wanted.label.as_ref().and_then(|label| match label.target {
        Target::Classes { count, .. } => Some(count),
        Target::Values | Target::Probabilities => None,
    });
    wanted.inputs.iter().flat_map(|input| &input.rows).copied().flatten().chain(classes).min()
}

/// The distinct characters, ascending.
fn vocabulary(text: &str) -> Vec<char> {
    let mut seen = vec![false; char::MAX as usize + 1];
    for character in text.chars() {
        seen[character as usize] = true;
    }
    ('\0'..=char::MAX).filter(|&character| seen[character as usize]).collect()
}

fn encode(text: &str, vocabulary: &[char], step: &mut Step<'_>) -> io::Result<Numbers> {
    // Every character is there.
    let index = |character: char| vocabulary.partition_point(|&other| other < character);
    Ok(match vocabulary.len() {
        0..=256 => Numbers::U8(mapped(text, |character| index(character) as u8, step)?),
        _ => Numbers::I32(mapped(text, |character| index(character) as i32, step)?),
    })
}

fn mapped<T>(text: &str, number: impl Fn(char) -> T, step: &mut Step<'_>) -> io::Result<Vec<T>> {
    let mut numbers = Vec::new();
    let mut characters = text.chars();
    while !characters.as_str().is_empty() {
        numbers.extend(characters.by_ref().take(STEP_CHARACTERS).map(&number));
        step()?;
    }
    Ok(numbers)
}
