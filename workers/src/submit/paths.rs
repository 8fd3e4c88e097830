//! Paths of files as workers get them, which run in other folders.

use std::path::{Component, Path, PathBuf};

/// The path from the root, without `..` where that leads to the same file: the same job submitted from
/// another folder is the same job. Links stay, because the same link may lead elsewhere on another machine.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut short = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(short.pop()),
            other => short.push(other),
        }
    }
    // Behind a link to a folder, `..` is not the folder in which the link lies.
    let same = match (path.canonicalize(), short.canonicalize()) {
        (Ok(as_given), Ok(shortened)) => as_given == shortened,
        _ => false,
    };
    if same { short } else { path }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_way_up_and_down_again_is_left_out_unless_a_link_is_on_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("jobs/data")).unwrap();
        fs::create_dir_all(at("other/deep")).unwrap();
        fs::write(at("jobs/data.csv"), "1").unwrap();
        fs::write(at("other/data.csv"), "2").unwrap();
        symlink(at("other/deep"), at("jobs/link")).unwrap();
        #[rustfmt::skip]
        let cases = [
            ("jobs/data.csv",               "jobs/data.csv"),
            ("jobs/../jobs/data.csv",       "jobs/data.csv"),
            ("other/deep/../../jobs/./data.csv", "jobs/data.csv"),
            ("jobs/link/../data.csv",       "jobs/link/../data.csv"),
            ("jobs/link",                   "jobs/link"),
            ("jobs/../jobs/missing.csv",    "jobs/../jobs/missing.csv"),
        ];
        for (given, want) in cases {
            assert_eq!(absolute(&at(given)), at(want), "{given}");
        }
    }
}
