//! The manifest of an append-only file: which files hold the data, in a line each.
//!
//! A server goes by it alone. Where lines at its end are lost, it begins with less or with nothing, without a
//! word, and then truncates a file that was not named, of which it takes the name for a new one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::KitError;

/// As every server since version 7 has them unless it is told otherwise.
const FOLDER: &str = "appendonlydir";
const NAME: &str = "appendonly.aof";

/// Refuses a manifest that does not name a file with data that its server has written since. Reads nothing of
/// the data. Returns the file that changes were written to last, if there is one.
pub(crate) fn check_manifest(dir: &Path) -> Result<Option<PathBuf>, KitError> {
    let folder = dir.join(FOLDER);
    let manifest = folder.join(format!("{NAME}.manifest"));
    let files = match files(&folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(KitError::io("read", &folder)(error)),
    };
    let text = match fs::read(&manifest) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(KitError::io("read", &manifest)(error)),
    };
    let named = named(&text);
    match unnamed(&named, files.iter().map(String::as_str)) {
        None => Ok(newest_changes(&named).map(|part| folder.join(part.file))),
        Some(part) => Err(KitError::CutManifest { manifest, file: part.file.to_owned(), line: part.line() }),
    }
}

/// The files that a manifest names.
fn named(manifest: &str) -> Vec<Part<'_>> {
    let part = |line| Part::of(str::strip_prefix(line, "file ")?.split_whitespace().next()?);
    manifest.lines().filter_map(part).collect()
}

/// The newest of those with changes.
fn newest_changes<'a>(named: &[Part<'a>]) -> Option<Part<'a>> {
    named.iter().filter(|part| !part.is_base).max_by_key(|part| part.number).copied()
}

/// Names of the files that are not empty.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.len() > 0 {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// One of the files that make up the data: `appendonly.aof.2.base.rdb`, `appendonly.aof.3.incr.aof`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part<'a> {
    file: &'a str,
    number: u64,
    is_base: bool,
}

impl<'a> Part<'a> {
    fn of(file: &'a str) -> Option<Self> {
        let (number, kind) = file.strip_prefix(NAME)?.strip_prefix('.')?.split_once('.')?;
        let is_base = match kind {
            "base.rdb" | "base.aof" => true,
            "incr.aof" => false,
            _ => return None,
        };
        Some(Self { file, number: number.parse().ok()?, is_base })
    }

    /// As the manifest has it.
    fn line(self) -> String {
        let kind = if self.is_base { 'b' } else { 'i' };
        format!("file {} seq {} type {kind}", self.file, self.number)
    }
}

/// A file whose data would be lost: of changes, behind all that are named; of the beginning, where none is.
/// What a server leaves behind that ends while it writes its file anew is none: a new beginning beside the
/// one that is named, an empty file for changes, and files of before.
fn unnamed<'a>(named: &[Part<'_>], files: impl Iterator<Item = &'a str>) -> Option<Part<'a>> {
    let has_base = named.iter().any(|part| part.is_base);
    let newest = newest_changes(named).map(|part| part.number);
    files.filter_map(Part::of).find(|part| match part.is_base {
        true => !has_base,
        false => newest.is_none_or(|newest| part.number > newest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_changes_that_no_line_names_any_more_is_found_and_leftovers_are_none_table() {
        let base = "file appendonly.aof.2.base.rdb seq 2 type b\n";
        let changes = "file appendonly.aof.4.incr.aof seq 4 type i\n";
        let (both, whole) =
            (["appendonly.aof.2.base.rdb", "appendonly.aof.4.incr.aof"], format!("{base}{changes}"));
        #[rustfmt::skip]
        let cases: [(&str, &[&str], Option<&str>); 9] = [
            (&whole,   &both,                                                       None),
            ("",       &[],                                                         None),
            ("",       &["appendonly.aof.manifest", "temp-1.aof", "notes"],         None),
            (base,     &both,                                                       Some(changes.trim_end())),
            ("",       &both,                                                       Some(base.trim_end())),
            (changes,  &both,                                                       Some(base.trim_end())),
            (&whole,   &["appendonly.aof.3.base.rdb", both[0], both[1]],            None),
            (&whole,   &["appendonly.aof.3.incr.aof", both[0], both[1]],            None),
            (&whole,   &["appendonly.aof.5.incr.aof", both[0], both[1]],            Some("file appendonly.aof.5.incr.aof seq 5 type i")),
        ];
        for (manifest, files, want) in cases {
            let found = unnamed(&named(manifest), files.iter().copied()).map(Part::line);
            assert_eq!(found.as_deref(), want, "{manifest:?} {files:?}");
        }
    }
}
