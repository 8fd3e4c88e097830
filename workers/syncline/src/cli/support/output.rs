//! Data to stdout, talk to stderr. Texts of others, such as the error of a user's function or a name in a
//! file, move no cursor and add no line of a table: JSON alone has them as they are, with escapes.

use std::{
    borrow::Cow,
    io::{self, ErrorKind, Write},
};

use serde::Serialize;
use syncline_workers::{is_invisible, printable};

use crate::cli::{CliError, Failure};

/// The same in one line, for a cell of a table.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    if !text.contains(char::is_control) {
        return text;
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
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    written.and_then(|()| stdout.flush()).map_err(stdout_failed)
}

/// Whether whoever read what is written, from stdout or a pipe, has gone away as `head` does: then nothing
/// has failed.
pub(crate) fn reader_has_gone(source: &io::Error) -> bool {
    source.kind() == ErrorKind::BrokenPipe
}

/// Why a command ends whose stdout takes no more.
pub(crate) fn stdout_failed(source: io::Error) -> Failure {
    match reader_has_gone(&source) {
        true => Failure::reader_gone(),
        false => CliError::Output { source }.into(),
    }
}

/// Prints exactly one JSON value.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::Output { source: e.into() })?;
    write(&escaped(&text))
}

/// One of many JSON objects, each in a line of its own.
pub fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|e| CliError::Output { source: e.into() })?;
    write(&escaped(&text))
}

/// JSON without characters that a terminal obeys or hides, of which serde_json escapes only those that JSON
/// forbids. All of them are within strings.
fn escaped(json: &str) -> Cow<'_, str> {
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}') || is_invisible(c);
    if !json.contains(obeyed) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match obeyed(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text.into()
}

/// Talks to the person in front of the terminal. Nobody listening is no reason to fail.
pub fn say(text: &str) {
    say_line(&printable(text));
}

/// Talks to the program that started us, in JSON.
pub(crate) fn say_json(text: &str) {
    say_line(&escaped(text));
}

fn say_line(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Between two columns.
const GAP: usize = 2;

/// Lines up columns, a line for each row. Columns whose name begins with `>` are aligned to the right. Where
/// the terminal is narrower, those that find no room come in blocks below, each with the first column in
/// front.
pub fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    table_within(columns, rows, terminal.map_or(usize::MAX, |(width, _)| width.0.into()))
}

fn table_within(columns: &[&str], rows: &[Vec<String>], limit: usize) -> String {
    let one_line = |row: &Vec<String>| row.iter().map(|cell| one_line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
    let names: Vec<&str> = columns.iter().map(|column| column.trim_start_matches('>')).collect();
    let width = |(i, name): (usize, &&str)| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.max().unwrap_or(0).max(name.chars().count())
    };
    let widths: Vec<usize> = names.iter().enumerate().map(width).collect();
    let line = |cells: &[&str], block: &[usize]| {
        let padded = block.iter().filter_map(|i| {
            let (cell, width) = (cells.get(*i)?, widths[*i]);
            Some(if columns[*i].starts_with('>') {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            })
        });
        padded.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    let in_lines = |block: Vec<usize>| {
        let body = rows.iter().map(|row| line(&row.iter().map(String::as_str).collect::<Vec<_>>(), &block));
        std::iter::once(line(&names, &block)).chain(body).collect::<Vec<_>>().join("\n")
    };
    blocks(&widths, limit).into_iter().map(in_lines).collect::<Vec<_>>().join("\n\n")
}

/// Which columns stand beside each other in lines of at most so many characters: the first one everywhere,
/// each other once.
fn blocks(widths: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let (mut blocks, mut block, mut used) = (Vec::new(), vec![0], first);
    for (i, width) in widths.iter().enumerate().skip(1) {
        if block.len() > 1 && used + GAP + width > limit {
            blocks.push(std::mem::replace(&mut block, vec![0]));
            used = first;
        }
        block.push(i);
        used += GAP + width;
    }
    blocks.push(block);
    blocks
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
            ("a\u{202e}txt.exe",                "a txt.exe",                    "a txt.exe"),
        ];
        for (text, shown, in_a_cell) in cases {
            assert_eq!((&*printable(text), &*one_line(text)), (shown, in_a_cell));
        }
        let rows = [vec!["it\npanicked".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["because", "c"], &rows), "because        c\nit | panicked  b");
    }

    #[test]
    fn json_reads_as_the_same_text_and_holds_nothing_that_a_terminal_obeys_or_hides() {
        for text in ["plain, größe", "\u{7f}\u{9b}2J", "a\u{202e}b\u{feff}", "\x1b[2J\n"] {
            let json = serde_json::to_string(text).unwrap();
            let json = escaped(&json);
            assert_eq!(printable(&json), json);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn columns_that_find_no_room_come_below_with_the_first_one_in_front() {
        let rows = [["a", "10", "done", "12 s"], ["long", "7", "failed", "3 s"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let columns = ["id", ">loss", "state", ">age"];
        let wide = "id    loss  state    age\na       10  done    12 s\nlong     7  failed   3 s";
        let narrow =
            "id    loss  state\na       10  done\nlong     7  failed\n\nid     age\na     12 s\nlong   3 s";
        let single = "id    loss\na       10\nlong     7\n\nid    state\na     done\nlong  failed\n\nid     age\na     12 s\nlong   3 s";
        for (limit, shown) in [(usize::MAX, wide), (24, wide), (23, narrow), (10, single), (0, single)] {
            assert_eq!(table_within(&columns, &rows, limit), shown, "{limit}");
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "7".to_owned()]];
        assert_eq!(table(&["id", ">loss"], &rows), "id    loss\na       10\nlong     7");
        assert_eq!(table(&["id", ">loss"], &[]), "id  loss");
    }
}
