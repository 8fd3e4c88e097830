//! docs/operators.md says what the sources say. `SYNCLINE_WRITE_DOCS=1` writes the lists anew.

use std::{fmt::Write, fs, path::Path};

use syncline_autodiff::{NONE_NEEDED, REFUSED, REWRITTEN, Support, support, supported_operators};

const BEGIN: &str = "<!-- from here on written by workers/autodiff/tests/operators_document.rs -->\n";

fn lists() -> String {
    let mut text = String::new();
    let mut list = |title: &str, ops: &[&str]| {
        writeln!(text, "\n## {title}\n").unwrap();
        for row in ops.chunks(8) {
            writeln!(text, "{}", row.join(", ") + ",").unwrap();
        }
        text.truncate(text.trim_end_matches([',', '\n']).len());
        text.push('\n');
    };
    list("With a gradient", &supported_operators());
    list("Without need of a gradient", NONE_NEEDED);
    text.push_str("\n## Refused\n\n| operator | reason |\n|---|---|\n");
    for (op, reason) in REFUSED {
        writeln!(text, "| {op} | {reason} |").unwrap();
    }
    text
}

#[test]
fn the_document_lists_what_the_sources_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, lists_there) = text.split_once(BEGIN).unwrap();
    if std::env::var_os("SYNCLINE_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{}", lists())).unwrap();
        return;
    }
    assert_eq!(lists_there, lists(), "run this test with SYNCLINE_WRITE_DOCS=1");
}

#[test]
fn no_operator_stands_in_two_lists() {
    for op in supported_operators() {
        assert_eq!(support(op), Support::Gradient);
        assert!(!NONE_NEEDED.contains(&op) && REFUSED.iter().all(|(name, _)| *name != op), "{op}");
    }
    for (op, reason) in REFUSED {
        assert_eq!(support(op), Support::Refused(reason));
        assert!(!NONE_NEEDED.contains(op), "{op}");
    }
    for op in REWRITTEN {
        assert_eq!(support(op), Support::Rewritten);
    }
    assert_eq!(support("NoSuchOperator"), Support::Unknown);
}

#[test]
fn lists_are_sorted() {
    let refused: Vec<&str> = REFUSED.iter().map(|(op, _)| *op).collect();
    for ops in [&supported_operators()[..], NONE_NEEDED, &refused] {
        assert!(ops.is_sorted(), "{ops:?}");
    }
}
