//! What docs/errors.md says of a code, where the error itself is not at hand.

const PAGE: &str = include_str!("../../../../../docs/errors.md");

/// What to do about an error of this code, in plain text; `None` if there is nothing to do, or no such code.
pub(crate) fn what_to_do(code: &str) -> Option<String> {
    let start = format!("| {code} | ");
    let row = PAGE.lines().find(|line| line.starts_with(&start))?;
    let (_, advice) = row.trim_end_matches(" |").rsplit_once(" | ")?;
    (!advice.starts_with("Nothing")).then(|| in_a_sentence(&without_links(advice)))
}

/// Links become their texts: `[data.md](data.md)` is `data.md`.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, (name, behind))) = rest.split_once('[').and_then(|(before, link)| {
        let (name, target) = link.split_once("](")?;
        Some((before, (name, target.split_once(')')?.1)))
    }) {
        plain += before;
        plain += name;
        rest = behind;
    }
    plain + rest
}

/// As hints begin, if that is a word and no name.
fn in_a_sentence(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_read_from_the_page() {
        let told = what_to_do("E327").unwrap();
        assert!(told.starts_with("see the reason in the text") && told.ends_with("less memory"), "{told}");
        assert!(what_to_do("E480").unwrap().contains("data.md shows the settings"));
        assert_eq!((what_to_do("E137").is_none(), what_to_do("no code"), what_to_do("")), (true, None, None));
    }

    #[test]
    fn a_link_is_told_by_its_text() {
        assert_eq!(without_links("see [a.md](a.md#b), or [c](d) if [e]"), "see a.md, or c if [e]");
        assert_eq!(in_a_sentence("ONNX Runtime"), "ONNX Runtime");
    }
}
