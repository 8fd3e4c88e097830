//! docs/errors.md and the sources name the same codes with the same texts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Codes whose text is put together at run time.
const FREE_TEXT: &[&str] = &[
    "E052", "E053", "E055", "E058", "E059", "E060", "E210", "E220", "E226", "E400", "E500", "E596", "E602",
    "E620", "E649",
];

/// The folders of all crates.
const ROOMS: [&str; 11] = [
    "scheduler",
    "engine",
    "engine/kit",
    "engine/rpc",
    "ps",
    "workers",
    "workers/onnx",
    "workers/autodiff",
    "workers/runtime",
    "workers/syncline",
    "examples",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// `E123` at the beginning of `text`.
fn code(text: &str) -> Option<&str> {
    let code = text.get(..4)?;
    (code.starts_with('E') && code[1..].bytes().all(|b| b.is_ascii_digit())).then_some(code)
}

/// What a string literal says, with `…` for everything that is filled in.
fn plain(literal: &str) -> String {
    let mut text = String::new();
    let (mut chars, mut depth) = (literal.chars().peekable(), 0);
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => text.push(' '),
                // A line that goes on: its indentation is not part of the text.
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some(other) => text.push(other),
                None => {}
            },
            '{' => {
                depth += 1;
                text.push('…');
            }
            '}' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text.trim().to_owned()
}

/// Every code in the sources with its texts: `[E123] text` and `"E123"`.
fn in_sources() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    for room in ROOMS {
        sources(&root().join(room).join("src"), &mut files);
    }
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        for (at, _) in file.match_indices("[E").chain(file.match_indices("\"E")) {
            let Some(code) = code(&file[at + 1..]) else { continue };
            let rest = &file[at + 5..];
            match rest.strip_prefix("] ") {
                Some(text) => {
                    let ends = |(i, _): &(usize, &str)| !text[..*i].ends_with('\\');
                    let end = text.match_indices('"').find(ends).map_or(0, |(i, _)| i);
                    found.entry(code.to_owned()).or_default().insert(plain(&text[..end]));
                }
                None if rest.starts_with(['"', ']']) => {
                    found.entry(code.to_owned()).or_default();
                }
                None => {}
            }
        }
    }
    found
}

fn in_document() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| E"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        assert!(cells.len() == 4 && cells.iter().all(|c| !c.is_empty()), "four cells are needed: {row}");
        let twice = found.insert(format!("E{}", cells[0]), cells[1].to_owned());
        assert!(twice.is_none(), "E{} stands there twice", cells[0]);
    }
    found
}

#[test]
fn the_document_names_every_code_and_no_other() {
    let (sources, document) = (in_sources(), in_document());
    let undocumented: Vec<_> = sources.keys().filter(|c| !document.contains_key(*c)).collect();
    assert!(undocumented.is_empty(), "not in docs/errors.md: {undocumented:?}");
    let gone: Vec<_> = document.keys().filter(|c| !sources.contains_key(*c)).collect();
    assert!(gone.is_empty(), "only in docs/errors.md: {gone:?}");
}

#[test]
fn the_document_says_what_the_sources_say() {
    let sources = in_sources();
    for (code, text) in in_document() {
        match FREE_TEXT.contains(&code.as_str()) {
            true => assert_eq!(text, "—", "{code}"),
            false => {
                assert!(sources[&code].contains(&text), "{code}: `{text}` is none of {:?}", sources[&code])
            }
        }
    }
}

#[test]
fn the_codes_of_each_section_of_the_document_are_in_their_order() {
    let text = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    for section in text.split("\n## ") {
        let codes: Vec<_> = section.lines().filter_map(|line| code(line.strip_prefix("| ")?)).collect();
        assert!(codes.is_sorted(), "{codes:?}");
    }
}
