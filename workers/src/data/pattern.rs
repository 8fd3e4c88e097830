//! Names of files with `*`, which stands for any characters.

use std::collections::{HashMap, hash_map::Entry};
use std::fs;
use std::path::Path;

use syncline_autodiff::glob;
use syncline_scheduler::spec::{DataSpec, Source};

use super::error::{DataError, FileError, FormatError, SettingError};
use super::remote;

/// A file of a source.
#[derive(Debug, Clone)]
struct Named {
    path: String,
    /// The pattern that means it, where it was not named itself.
    pattern: Option<String>,
    /// What `*` stands for, where it stands once in the pattern.
    star: Option<String>,
}

/// Puts the files that are there in the place of the patterns of a data set; returns what is doubtful about
/// them.
pub(crate) fn expand(spec: &mut DataSpec) -> Result<Vec<String>, DataError> {
    let parts = [
        ("source", Some(&mut spec.source)),
        ("test", spec.test.as_mut()),
        ("validation", spec.validation.as_mut()),
    ];
    let (mut part_of, mut doubts) = (HashMap::new(), Vec::new());
    for (part, source) in parts.into_iter().filter_map(|(part, source)| Some((part, source?))) {
        for Named { path, pattern, .. } in samples_of(source)? {
            // One that is missing is refused when it is read.
            let file = fs::canonicalize(&path).unwrap_or_else(|_| path.clone().into());
            let (other, before, by) = match part_of.entry(file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert((part, path, pattern));
                    continue;
                }
            };
            // Whoever names a file twice means it.
            if *other == part {
                let how = match (by.as_ref(), pattern.as_ref()) {
                    (Some(by), Some(pattern)) if by != pattern => {
                        format!("`{by}` and `{pattern}` both mean it")
                    }
                    (Some(by), Some(_)) if *before == path => format!("`{by}` stands there twice"),
                    (Some(by), None) | (None, Some(by)) => format!("it is named, and `{by}` means it"),
                    _ => continue,
                };
                let what = format!("`{path}` is twice in `{part}`: {how}");
                return Err(SettingError::Invalid { what }.into());
            }
            let both = format!("`{path}` is in `{other}` and in `{part}`");
            match by.as_ref().or(pattern.as_ref()) {
                Some(pattern) => {
                    let what = format!(
                        "{both}, of which one means it by `{pattern}`: write a pattern that leaves it out, or list the files"
                    );
                    return Err(SettingError::Invalid { what }.into());
                }
                None => doubts.push(format!(
                    "{both}: figures of samples that also train, or decide, flatter the model"
                )),
            }
        }
    }
    Ok(doubts)
}

/// The same of one source.
#[cfg(any(feature = "worker", test))]
pub(crate) fn expand_source(source: &mut Source) -> Result<(), DataError> {
    samples_of(source).map(drop)
}

/// Puts files in the place of the patterns of a source, and returns those that have samples.
fn samples_of(source: &mut Source) -> Result<Vec<Named>, DataError> {
    let lists = source.files_mut();
    let mut named =
        lists.iter().map(|files| files.iter().map(meant).collect()).collect::<Result<Vec<Vec<_>>, _>>()?;
    // Of lists the places count.
    if let [samples, labels] = named.as_mut_slice()
        && let ([samples], [labels]) = (samples.as_slice(), labels.as_mut_slice())
    {
        pair(samples, labels)?;
    }
    for (files, named) in lists.into_iter().zip(&named) {
        files.0 = named.iter().flatten().map(|file| file.path.clone()).collect();
    }
    Ok(named.into_iter().next().unwrap_or_default().concat())
}

/// The files that an entry of a list means.
fn meant(entry: &str) -> Result<Vec<Named>, DataError> {
    match is_pattern(entry) {
        true => matching(entry),
        false => Ok(vec![Named { path: entry.to_owned(), pattern: None, star: None }]),
    }
}

/// Puts files of labels into the order of those of the samples, by what `*` stands for in both, if both are
/// of such a pattern. Where it stands for nothing alike (`train-images-*` and `train-labels-*`, whose names
/// end in another way), their places count.
fn pair(samples: &[Named], labels: &mut Vec<Named>) -> Result<(), DataError> {
    let is_by_star = |files: &[Named]| files.iter().all(|file| file.star.is_some());
    if !is_by_star(samples) || !is_by_star(labels) {
        return Ok(());
    }
    if !samples.iter().any(|sample| labels.iter().any(|label| label.star == sample.star)) {
        return Ok(());
    }
    let alone = |file: &Named, others: &[Named]| {
        let (path, star) = (&file.path, file.star.as_deref().unwrap_or_default());
        let pattern = others.first().and_then(|other| other.pattern.as_deref()).unwrap_or_default();
        let what = format!(
            "no file that `{pattern}` means belongs to `{path}`: `*` stands for `{star}` in none of them"
        );
        SettingError::Invalid { what }
    };
    let sorted = |sample: &Named| {
        let label = labels.iter().find(|label| label.star == sample.star);
        label.cloned().ok_or_else(|| alone(sample, labels))
    };
    let paired = samples.iter().map(sorted).collect::<Result<Vec<_>, _>>()?;
    let left_over = labels.iter().find(|label| samples.iter().all(|sample| sample.star != label.star));
    if let Some(label) = left_over {
        return Err(alone(label, samples).into());
    }
    *labels = paired;
    Ok(())
}

/// A file whose name has such a character is itself.
fn is_pattern(path: &str) -> bool {
    path.contains('*') && !remote::is_url(path) && !Path::new(path).exists()
}

/// The files of a folder whose names a pattern means, in the order of the bytes of these, at least one. As
/// for a shell, files whose name begins with a dot are only meant by a pattern that does.
fn matching(path: &str) -> Result<Vec<Named>, DataError> {
    let nothing = |reason: &str| {
        DataError::from(FormatError::NoFile { pattern: path.to_owned(), reason: reason.to_owned() })
    };
    let (folder, pattern) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    if folder.contains('*') {
        return Err(nothing("`*` stands in the name of a file, not of a folder"));
    }
    let begin = &path[..path.len() - pattern.len()];
    let listed = Path::new(if begin.is_empty() { "." } else { begin });
    let failed = |source| FileError::Io { path: listed.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(listed).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if glob::matches(pattern, &name) && (pattern.starts_with('.') || !name.starts_with('.')) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(nothing("no file of that folder is called so"));
    }
    names.sort_unstable();
    let named = |name: String| Named {
        path: format!("{begin}{name}"),
        pattern: Some(path.to_owned()),
        star: star(pattern, &name).map(str::to_owned),
    };
    Ok(names.into_iter().map(named).collect())
}

/// What `*` stands for in a name that a pattern means, if it stands there once.
fn star<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    let (first, last) = pattern.split_once('*').filter(|(_, last)| !last.contains('*'))?;
    name.strip_prefix(first)?.strip_suffix(last)
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::Files;

    use super::*;

    #[test]
    fn a_pattern_becomes_the_files_that_are_there_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for name in ["p-10.csv", "p-2.csv", "p-1.csv", ".p-0.csv", "q*.csv", "q1.csv"] {
            fs::write(at(name), "1").unwrap();
        }
        let expanded = |path: &str| {
            let mut source = Source::csv(path);
            expand_source(&mut source)
                .map(|()| source.paths().into_iter().map(str::to_owned).collect::<Vec<_>>())
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

    /// What becomes of a data set of files in a folder with these names.
    fn expanded(there: &[&str], spec: impl Fn(&dyn Fn(&str) -> String) -> DataSpec) -> (Vec<String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let folder = format!("{}/", dir.path().display());
        there.iter().for_each(|name| fs::write(dir.path().join(name), "1").unwrap());
        let mut spec = spec(&|name| format!("{folder}{name}"));
        let said = match expand(&mut spec) {
            Ok(doubts) => doubts.join(" "),
            Err(error) => error.to_string(),
        };
        (spec.paths().into_iter().map(|path| path.replace(&folder, "")).collect(), said.replace(&folder, ""))
    }

    #[test]
    fn a_file_in_two_parts_is_refused_where_a_pattern_means_it_and_doubtful_where_both_name_it_table() {
        let there = ["part-1.csv", "part-2.csv", "test.csv"];
        #[rustfmt::skip]
        let cases = [
            (["part-*.csv", "test.csv"],     ""),
            (["*.csv", "test.csv"],          "[E480] data: `test.csv` is in `source` and in `test`, of which one means it by `*.csv`"),
            (["part-1.csv", "part-*.csv"],   "[E480] data: `part-1.csv` is in `source` and in `test`, of which one means it by `part-*.csv`"),
            (["part-*.csv", "./part-2.csv"], "[E480] data: `./part-2.csv` is in `source` and in `test`"),
            (["part-1.csv", "part-1.csv"],   "`part-1.csv` is in `source` and in `test`: figures"),
            (["part-*.csv+*-1.csv", "test.csv"], "[E480] data: `part-1.csv` is twice in `source`: `part-*.csv` and `*-1.csv` both mean it"),
            (["part-1.csv+part-*.csv", "test.csv"], "[E480] data: `part-1.csv` is twice in `source`: it is named, and `part-*.csv` means it"),
            (["part-*.csv+./part-2.csv", "test.csv"], "[E480] data: `./part-2.csv` is twice in `source`: it is named, and `part-*.csv` means it"),
            (["part-*.csv+part-*.csv", "test.csv"], "[E480] data: `part-1.csv` is twice in `source`: `part-*.csv` stands there twice"),
            (["part-1.csv+part-1.csv", "test.csv"], ""),
        ];
        for (names, want) in cases {
            let [source, test] = names;
            let (_, said) = expanded(&there, |at| DataSpec {
                test: Some(Source::csv(at(test))),
                ..DataSpec::new(Source::csv(source.split('+').map(at).collect::<Vec<_>>()))
            });
            assert!(said.starts_with(want) && said.is_empty() == want.is_empty(), "{names:?}: {said}");
        }
        let (_, said) = expanded(&there, |at| DataSpec {
            validation: Some(Source::csv(at("part-*.csv"))),
            test: Some(Source::csv(at("part-1.csv"))),
            ..DataSpec::new(Source::csv(at("test.csv")))
        });
        assert!(said.contains("`part-1.csv` is in `test` and in `validation`"), "{said}");
    }

    #[test]
    fn files_of_labels_belong_to_samples_by_what_the_star_stands_for_table() {
        let none = |path, pattern, star| {
            format!(
                "[E480] data: no file that `{pattern}` means belongs to `{path}`: `*` stands for `{star}` in none of them"
            )
        };
        #[rustfmt::skip]
        let cases: [(&[&str], [&str; 2], Result<&[&str], String>); 6] = [
            (&["x-1", "x-2", "y-1", "y-2"],   ["x-*", "y-*"],  Ok(&["x-1", "x-2", "y-1", "y-2"])),
            // As names these are in another order.
            (&["x-1", "x-10", "1y", "10y"],   ["x-*", "*y"],   Ok(&["x-1", "x-10", "1y", "10y"])),
            (&["x-1", "x-2", "y-1", "y-3"],   ["x-*", "y-*"],  Err(none("x-2", "y-*", "2"))),
            (&["x-1", "y-1", "y-3"],          ["x-*", "y-*"],  Err(none("y-3", "x-*", "3"))),
            // By their places where a star may stand for anything, or a list says it.
            (&["a-x-1", "a-y-2"],             ["*x*", "*y*"],  Ok(&["a-x-1", "a-y-2"])),
            (&["x-1", "y-2"],                 ["x-1", "y-*"],  Ok(&["x-1", "y-2"])),
        ];
        for (there, names, want) in cases {
            let [samples, labels] = names;
            let (paths, said) = expanded(there, |at| {
                DataSpec::new(Source::Npy {
                    samples: Files::one(at(samples)),
                    labels: Files::one(at(labels)),
                })
            });
            match want {
                Ok(want) => assert_eq!(
                    (paths, said),
                    (want.iter().map(|&path| path.to_owned()).collect(), String::new())
                ),
                Err(want) => assert_eq!(said, want),
            }
        }
    }
}
