//! Data to stdout, talk to stderr. Texts of others, such as the error of a user's function or a name in a file, move no cursor
//! and add no line of a table: JSON alone has them as they are.

use std::{
    borrow::Cow,
    io::{self, ErrorKind, Write},
};

use serde::Serialize;
use syncline_workers::printable;

use crate::cli::{CliError, Failure};

/// The same in one line, for a cell of a table.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" | ").replace(char::is_control, " ").into()
}

/// Prints data for people. A reader that has gone away ends the command, and that is a success.
pub fn print(text: &str) -> Result<(), Failure> {
    write(&printable(text))
}

fn write(text: &str) -> Result<(), Failure> {
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
    write(&text)
}

/// One of many JSON objects, each in a line of its own.
pub fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| CliError::Output { source: e.into() })?;
    write(&text)
}

/// Talks to the person in front of the terminal. Nobody listening is no reason to fail.
pub fn say(text: &str) {
    say_json(&printable(text));
}

/// Talks to the program that started us, in JSON.
pub(crate) fn say_json(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Lines up columns, a line for each row. Columns whose name begins with `>` are aligned to the right.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let one_line = |row: &Vec<String>| row.iter().map(|cell| one_line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
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

/// A text as a field of a CSV file, as RFC 4180 has it.
pub fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_move_no_cursor_and_make_no_lines() {
        #[rustfmt::skip]
        let cases = [
            ("plain, größe",                    "plain, größe",                 "plain, größe"),
            ("assertion\n  left: 1\n\n right: 2", "assertion\n  left: 1\n\n right: 2", "assertion | left: 1 | right: 2"),
            ("\x1b]52;c;eA==\x07ok\r\u{9b}2J",  " ]52;c;eA== ok  2J",           " ]52;c;eA== ok  2J"),
            ("a\tb",                            "a\tb",                         "a b"),
        ];
        for (text, shown, in_a_cell) in cases {
            assert_eq!((&*printable(text), &*one_line(text)), (shown, in_a_cell));
        }
        let rows = [vec!["it\npanicked".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["because", "c"], &rows), "because        c\nit | panicked  b");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "7".to_owned()]];
        assert_eq!(table(&["id", ">loss"], &rows), "id    loss\na       10\nlong     7");
        assert_eq!(table(&["id", ">loss"], &[]), "id  loss");
    }
}
