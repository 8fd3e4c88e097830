//! Comma-separated numbers, one sample a line, the label in the last columns.

use std::path::Path;

use syncline_engine::input;

use super::array::{Array, Numbers};
use super::error::DataError;
use super::file::{MAX_ELEMENTS, too_large};

/// Reads a table: samples and labels. `skip_lines` lines at the top are not looked at; empty lines at the end are
/// allowed.
pub(super) fn read(
    (path, bytes): (&Path, &[u8]),
    label_columns: u32,
    skip_lines: u32,
) -> Result<(Array, Array), DataError> {
    let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
    let label_columns = label_columns as usize;
    let lines = input::without_mark(bytes).trim_ascii_end().split(|&byte| byte == b'\n');
    let mut lines = (1u64..).zip(lines).skip(skip_lines as usize).peekable();
    let first = lines.peek().copied().filter(|(_, line)| !line.trim_ascii().is_empty());
    let Some((number, line)) = first else { return Err(format("it has no samples".to_owned())) };
    let columns = line.iter().filter(|&&byte| byte == b',').count() + 1;
    if columns <= label_columns {
        let comments = lines.take_while(|(_, line)| line.starts_with(b"#")).count() + skip_lines as usize;
        let (found, label) = (counted(columns), counted(label_columns));
        return Err(format(format!(
            "line {number} has {found}, which leaves no feature beside {label} of the label{}",
            cause(line, comments)
        )));
    }
    let width = columns - label_columns;
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let found = line.iter().filter(|&&byte| byte == b',').count() + 1;
        if found != columns || line.trim_ascii().is_empty() {
            let found = if line.trim_ascii().is_empty() { 0 } else { found };
            return Err(DataError::Columns { path: path.to_owned(), line: number, found, expected: columns });
        }
        if (features.len() + columns) as u64 > MAX_ELEMENTS {
            return Err(too_large(path, MAX_ELEMENTS, "numbers"));
        }
        for (column, field) in line.split(|&byte| byte == b',').enumerate() {
            let value = parse(field).ok_or_else(|| DataError::Number {
                path: path.to_owned(),
                line: number,
                column: column + 1,
                text: String::from_utf8_lossy(field.trim_ascii()).chars().take(40).collect(),
            })?;
            if column < width { features.push(value as f32) } else { labels.push(value) }
        }
    }
    let rows = features.len() / width;
    Ok((
        Array::new(path, Numbers::F32(features), vec![width], rows),
        Array::new(path, Numbers::F64(labels), vec![label_columns], rows),
    ))
}

fn parse(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}

fn counted(columns: usize) -> String {
    format!("{columns} column{}", if columns == 1 { "" } else { "s" })
}

/// Why a line has so few columns, as far as it tells. `comments`: lines to skip, if it is one of those at the top.
fn cause(line: &[u8], comments: usize) -> String {
    let line = line.trim_ascii();
    let separator = [(b';', "semicolons"), (b'\t', "tabs"), (b' ', "spaces")];
    let separator = separator.iter().find(|(byte, _)| line.contains(byte));
    match (line.starts_with(b"#"), separator) {
        (true, _) => format!("; it looks like a comment: set `skip_lines = {comments}`"),
        (false, Some((_, name))) => {
            format!("; it looks as if {name} separate its columns: only commas do")
        }
        (false, None) => String::new(),
    }
}

/// What to do about a field that is no number.
pub(super) fn hint(line: u64, field: &str) -> Option<&'static str> {
    let bare = field.trim_matches(['"', '\'']);
    if field.contains([';', '\t']) {
        return Some(
            "columns are separated by commas, and decimals have a point: write the file again with those",
        );
    }
    if bare.len() < field.len() && parse(bare.as_bytes()).is_some() {
        return Some("numbers stand without quotes: write the file again without them");
    }
    (line == 1).then_some("if the first line is a header, set skip_lines = 1")
}
