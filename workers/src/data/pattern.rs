//! Names of files with `*`, which stands for any characters.

use std::fs;
use std::path::Path;

use syncline_scheduler::spec::{DataSpec, Files, Source};

use super::error::DataError;
use super::remote;

/// Puts the files that are there in the place of the patterns of a data set.
pub(crate) fn expand(spec: &mut DataSpec) -> Result<(), DataError> {
    spec.sources_mut().flat_map(Source::files_mut).try_for_each(expand_list)
}

/// The same of one list.
pub(crate) fn expand_list(files: &mut Files) -> Result<(), DataError> {
    let mut found = Vec::with_capacity(files.0.len());
    for path in std::mem::take(&mut files.0) {
        match is_pattern(&path) {
            true => found.extend(matching(&path)?),
            false => found.push(path),
        }
    }
    files.0 = found;
    Ok(())
}

/// A file whose name has such a character is itself.
fn is_pattern(path: &str) -> bool {
    path.contains('*') && !remote::is_url(path) && !Path::new(path).exists()
}

/// The files of a folder whose names a pattern means, in the order of the bytes of these, at least one. As for a shell, files whose name
/// begins with a dot are only meant by a pattern that does.
fn matching(path: &str) -> Result<Vec<String>, DataError> {
    let nothing = |reason: &str| DataError::NoFile { pattern: path.to_owned(), reason: reason.to_owned() };
    let (folder, pattern) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    if folder.contains('*') {
        return Err(nothing("`*` stands in the name of a file, not of a folder"));
    }
    let begin = &path[..path.len() - pattern.len()];
    let listed = Path::new(if begin.is_empty() { "." } else { begin });
    let failed = |source| DataError::Io { path: listed.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(listed).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if means(pattern.as_bytes(), name.as_bytes()) && (pattern.starts_with('.') || !name.starts_with('.'))
        {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(nothing("no file of that folder is called so"));
    }
    names.sort_unstable();
    Ok(names.into_iter().map(|name| format!("{begin}{name}")).collect())
}

/// Whether a pattern means a name: the parts between its stars follow each other there, the first one at the begin, the last one at
/// the end.
fn means(pattern: &[u8], name: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        // The first place is as good as any: it leaves most for the parts behind it.
        let at = (0..=rest.len()).find(|&at| rest[at..].starts_with(part));
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        #[rustfmt::skip]
        let cases = [
            ("part-*.csv", "part-1.csv",     true),  ("part-*.csv", "part-.csv",    true),
            ("part-*.csv", "part-1.csv.gz",  false), ("part-*.csv", "apart-1.csv",  false),
            ("*",          "",               true),  ("a*b*c",      "abc",          true),
            ("a*b*c",      "a1b2bc",         true),  ("a*b*c",      "acb",          false),
            ("ab*ba",      "aba",            false), ("*-1*",       "x-1",          true),
            ("*aab",       "aaab",           true),  ("a",          "ab",           false),
        ];
        for (pattern, name, want) in cases {
            assert_eq!(means(pattern.as_bytes(), name.as_bytes()), want, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_becomes_the_files_that_are_there_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for name in ["p-10.csv", "p-2.csv", "p-1.csv", ".p-0.csv", "q*.csv", "q1.csv"] {
            fs::write(at(name), "1").unwrap();
        }
        let expanded = |path: &str| {
            let mut files = Files::one(path);
            expand_list(&mut files).map(|()| files.0)
        };
        assert_eq!(expanded(&at("p-*.csv")).unwrap(), ["p-1.csv", "p-10.csv", "p-2.csv"].map(at));
        assert_eq!(expanded(&at("*.csv")).unwrap().len(), 5, "hidden files are not meant");
        assert_eq!(expanded(&at("q*.csv")).unwrap(), [at("q*.csv")], "there is a file of that name");
        let error = expanded(&at("r-*.csv")).unwrap_err();
        assert!(error.code() == "E591" && error.to_string().contains("r-*.csv"), "{error}");
        let error = expanded(&at("*/p-1.csv")).unwrap_err();
        assert!(error.to_string().contains("not of a folder"), "{error}");
        let error = expanded(&at("none/p-*.csv")).unwrap_err();
        assert!(error.code() == "E330" && error.to_string().contains("none/"), "{error}");
    }
}
