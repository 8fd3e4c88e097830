//! Names with a wildcard: `*` stands for any characters, none included.

use std::collections::HashSet;

/// Names and patterns, of which a name takes constant time.
pub(crate) struct Patterns<'a> {
    names: HashSet<&'a str>,
    patterns: Vec<&'a str>,
}

impl<'a> Patterns<'a> {
    pub(crate) fn of(list: &'a [String]) -> Self {
        let (patterns, names): (Vec<&str>, Vec<&str>) =
            list.iter().map(String::as_str).partition(|text| text.contains('*'));
        Self { names: names.into_iter().collect(), patterns }
    }

    /// Whether one of them says the whole of `name`.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.names.contains(name) || self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether the whole of `name` is what `pattern` says. O(pattern * name) at worst, without recursion.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and how much of the name it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((at, swallowed)) = star {
            star = Some((at, swallowed + 1));
            (p, n) = (at + 1, swallowed + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        #[rustfmt::skip]
        let cases = [
            ("fc1.weight", "fc1.weight",  true),
            ("fc1.weight", "fc1.weight2", false),
            ("fc1.*",      "fc1.weight",  true),
            ("fc1.*",      "fc1",         false),
            ("*.bias",     "a.b.bias",    true),
            ("*.bias",     "bias",        false),
            ("*a*a",       "banana",      true),
            ("*a*b",       "banana",      false),
            ("**",         "",            true),
            ("",           "",            true),
            ("",           "a",           false),
            ("l*.w*t",     "layer.1.wt",  true),
            ("a*b*c",      "a1b2bc",      true),
            ("a*b*c",      "acb",         false),
            ("ab*ba",      "aba",         false),
            ("*aab",       "aaab",        true),
        ];
        for (pattern, name, want) in cases {
            assert_eq!(matches(pattern, name), want, "{pattern} on {name}");
        }
    }

    fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| by_definition(rest, &name[at..])),
            Some((byte, rest)) => name.first() == Some(byte) && by_definition(rest, &name[1..]),
        }
    }

    proptest::proptest! {
        #[test]
        fn as_the_definition_says(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
            assert_eq!(matches(&pattern, &name), by_definition(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
