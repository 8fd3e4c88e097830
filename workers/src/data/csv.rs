//! Comma-separated numbers, one sample a line, the label in the last columns.

use std::path::Path;

use super::dataset::{Labels, Raw, Target, check_target, class};
use super::error::DataError;
use super::file::{MAX_ELEMENTS, too_large};

/// Reads a table. `skip_lines` lines at the top are not looked at; empty lines at the end are allowed.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    label_columns: u32,
    skip_lines: u32,
    target: &Target,
) -> Result<Raw, DataError> {
    let format = |reason: String| DataError::Format { path: path.to_owned(), reason };
    let label_columns = label_columns as usize;
    check_target(target, label_columns)?;
    let lines = bytes.trim_ascii_end().split(|&byte| byte == b'\n');
    let mut lines = (1u64..).zip(lines).skip(skip_lines as usize).peekable();
    let first = lines.peek().filter(|(_, line)| !line.trim_ascii().is_empty());
    let columns = first.map_or(0, |(_, line)| line.iter().filter(|&&byte| byte == b',').count() + 1);
    if columns == 0 {
        return Err(format("it has no samples".to_owned()));
    }
    if columns <= label_columns {
        return Err(format(format!(
            "{columns} columns leave no feature beside {label_columns} label columns"
        )));
    }
    let width = columns - label_columns;
    let (mut features, mut classes, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (row, (number, line)) in lines.enumerate() {
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
            let not_finite = || DataError::NotFinite {
                path: path.to_owned(),
                row: row + 1,
                column: column + 1,
                value: value as f32,
            };
            match target {
                _ if column < width => features.push(value as f32),
                Target::Classes { count } => classes.push(class(path, row, value, *count)?),
                Target::Values { .. } if (value as f32).is_finite() => values.push(value as f32),
                Target::Values { .. } => return Err(not_finite()),
            }
        }
    }
    let rows = features.len() / width;
    let labels = match target {
        Target::Classes { .. } => Labels::Classes(classes),
        Target::Values { shape } => Labels::Values { shape: shape.clone(), data: values },
    };
    Ok(Raw { features, shape: vec![width], labels, rows })
}

fn parse(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}
