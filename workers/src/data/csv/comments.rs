//! Comments above the first record: lines that begin with `#`.

use std::path::Path;

use super::super::error::{DataError, FormatError};
use super::columns::LabelColumns;
use super::fields::Fields;
use super::header::First;
use super::input_columns::InputColumns;

/// Steps over comments. A line that has all names of the label, or of columns that inputs take, is no comment
/// but the header, whatever it begins with.
pub(super) fn pass_over(
    path: &Path,
    fields: &mut Fields<'_>,
    label: LabelColumns<'_>,
    inputs: &[InputColumns<'_>],
) -> Result<(), DataError> {
    let of_inputs: Vec<&String> = inputs.iter().flat_map(|input| input.columns).collect();
    let of_label = match label {
        LabelColumns::Named(names) | LabelColumns::PassedOver { names, .. } => names.iter().collect(),
        LabelColumns::Last(_) => Vec::new(),
    };
    let mut last = None;
    let separator = fields.separator().byte();
    while let Some(comment) = fields.line().filter(|line| is_comment(line)) {
        let has = |name: &&String| parts(comment, separator).any(|part| part == name.as_bytes());
        if [&of_inputs, &of_label].iter().any(|names| !names.is_empty() && names.iter().all(has)) {
            return Ok(());
        }
        last = Some((fields.line_number(), parts(comment, separator).count()));
        fields.skip_line();
    }
    let Some((line, columns)) = last.filter(|&(_, columns)| columns > 1) else { return Ok(()) };
    // As numpy.savetxt writes names; or a sentence with as many separators.
    let first = First::read(&mut fields.look_ahead())?;
    if first.has_number && first.names.len() == columns {
        let reason = format!(
            "line {line} begins with `#` and has {columns} columns, as the samples have: write it without the `#` if it names them, or set \
             `skip_lines = {line}` if it is a comment"
        );
        return Err(FormatError::Malformed { path: path.to_owned(), reason }.into());
    }
    Ok(())
}

/// Whether a line above the first record is one.
pub(super) fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"#")
}

/// What is between separators, without quotes.
fn parts(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    line.split(move |&byte| byte == separator).map(|part| {
        let part = part.trim_ascii();
        part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\"")).unwrap_or(part)
    })
}
