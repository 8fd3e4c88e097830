//! Data to stdout, talk to stderr.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::cli::{CliError, Failure};

/// Prints data. A reader that has gone away ends the command, and that is a success.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
    {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        Err(source) => Err(CliError::Output { source }.into()),
    }
}

/// Prints exactly one JSON value.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::Output { source: e.into() })?;
    print(&text)
}

/// One of many JSON objects, each in a line of its own.
pub fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| CliError::Output { source: e.into() })?;
    print(&text)
}

/// Talks to the person in front of the terminal. Nobody listening is no reason to fail.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Lines up columns. Columns whose name begins with `>` are aligned to the right.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize, name: &str| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.max().unwrap_or(0).max(name.chars().count())
    };
    let shape: Vec<(bool, &str, usize)> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let name = column.trim_start_matches('>');
            (column.starts_with('>'), name, width(i, name))
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&shape).map(|(cell, (right, _, width))| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(shape.iter().map(|s| s.1).collect());
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(head).chain(body).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "7".to_owned()]];
        assert_eq!(table(&["id", ">loss"], &rows), "id    loss\na       10\nlong     7");
        assert_eq!(table(&["id", ">loss"], &[]), "id  loss");
    }
}
