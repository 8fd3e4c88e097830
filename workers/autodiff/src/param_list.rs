//! Lists of parameters, as PyTorch prints them, and names that are not in a model.

use std::collections::HashSet;
use std::fmt::Write as _;

/// Most unknown names that an error shows, and most near ones for each.
const MOST_SHOWN: usize = 5;
const MOST_NEAR: usize = 3;

/// The names in a list: one a line, or as Python prints a list of them. Blank lines and a byte order mark do
/// not count.
pub fn names_of(text: &str) -> Vec<String> {
    let outside = |c: char| c.is_whitespace() || "[]()'\"\u{feff}".contains(c);
    let names = text.split(['\n', ',']).map(|name| name.trim_matches(outside));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Names that are not among the known ones, each with those that are near it, in a sentence; `None` if there
/// are none.
pub(super) fn unknown(wanted: &[String], known: &[&str]) -> Option<String> {
    let set: HashSet<&str> = known.iter().copied().collect();
    let missing: Vec<&String> = wanted.iter().filter(|name| !set.contains(name.as_str())).collect();
    let mut text = String::new();
    for name in missing.iter().take(MOST_SHOWN) {
        let near = near(name, known);
        let near = near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = match near.is_empty() {
            true => write!(text, "{separator}`{name}`"),
            false => write!(text, "{separator}`{name}` (near: {near})"),
        };
    }
    if missing.len() > MOST_SHOWN {
        let _ = write!(text, " and {} more", missing.len() - MOST_SHOWN);
    }
    (!missing.is_empty()).then_some(text)
}

/// A name or pattern that means none of the known ones, with those that are near it, or else the first ones.
pub(super) fn unknown_pattern<'a>(pattern: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() || !near(pattern, &known).is_empty() {
        return unknown(&[pattern.to_owned()], &known).unwrap_or_default();
    }
    let first = known.iter().take(MOST_SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = known.len().saturating_sub(MOST_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("`{pattern}` (it has {first}{more})")
}

/// The known names that could be meant, best first: those that end alike (wrappers put words in front), then
/// those that differ in a few letters.
pub(super) fn near<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let ends_alike = |other: &str| {
        let (long, short) = if name.len() > other.len() { (name, other) } else { (other, name) };
        long.strip_suffix(short).is_some_and(|rest| rest.ends_with('.'))
    };
    let mut scored: Vec<(usize, &str)> = known
        .iter()
        .filter_map(|&other| match ends_alike(other) {
            true => Some((0, other)),
            false => Some((1 + strsim::levenshtein(name, other), other))
                .filter(|(score, _)| *score <= 1 + name.len() / 4),
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(MOST_NEAR).map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_python_prints_them() {
        let want = ["fc.weight", "fc.bias"];
        for text in [
            "fc.weight\nfc.bias\n",
            "\u{feff}fc.weight\r\n\r\nfc.bias",
            "['fc.weight', 'fc.bias']\n",
            "fc.weight,fc.bias",
        ] {
            assert_eq!(names_of(text), want, "{text:?}");
        }
        assert!(names_of(" \n[]\n").is_empty());
    }

    #[test]
    fn an_unknown_name_comes_with_those_that_could_be_meant() {
        let known = ["fc.weight", "fc.bias", "model.fc2.weight", "conv.weight"];
        #[rustfmt::skip]
        let cases: [(&[&str], Option<&str>); 5] = [
            (&["fc.weight", "fc.bias"],  None),
            (&["fc.wieght"],             Some("`fc.wieght` (near: `fc.weight`)")),
            (&["module.fc.bias"],        Some("`module.fc.bias` (near: `fc.bias`)")),
            (&["fc2.weight"],            Some("`fc2.weight` (near: `model.fc2.weight`, `fc.weight`)")),
            (&["a", "b", "c", "d", "e", "f"], Some("`a`, `b`, `c`, `d`, `e` and 1 more")),
        ];
        for (wanted, want) in cases {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(unknown(&wanted, &known).as_deref(), want, "{wanted:?}");
        }
    }

    #[test]
    fn a_pattern_that_is_near_nothing_comes_with_the_first_names() {
        let known = ["a.weight", "a.bias", "b.weight", "b.bias", "head.weight", "head.bias"];
        #[rustfmt::skip]
        let cases: [(&str, &[&str], &str); 4] = [
            ("heat.weight",   &known,     "`heat.weight` (near: `head.weight`)"),
            ("encoder.*",     &known[..2], "`encoder.*` (it has `a.weight`, `a.bias`)"),
            ("encoder.*",     &known,     "`encoder.*` (it has `a.weight`, `a.bias`, `b.weight`, `b.bias`, `head.weight` and 1 more)"),
            ("encoder.*",     &[],        "`encoder.*`"),
        ];
        for (pattern, known, want) in cases {
            assert_eq!(unknown_pattern(pattern, known.iter().copied()), want);
        }
    }
}
